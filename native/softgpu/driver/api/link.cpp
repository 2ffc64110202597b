// SPDX-License-Identifier: Apache-2.0
// Entry points: linking at run time. Input and output are PTX.
#include <fstream>
#include <iterator>

#include "softgpu/driver/api/api.h"

using namespace millpond::softgpu;
using namespace millpond::softgpu::api;

namespace {

template <typename Body>
CUresult withLink(CUlinkState handle, Body body) {
  return withContext([&](Driver& driver, const ContextPtr&) -> CUresult {
    const std::shared_ptr<Link> link = driver.links().find(handle);
    return link ? body(*link) : CUDA_ERROR_INVALID_HANDLE;
  });
}

CUresult addInput(Link& link, CUjitInputType type, millpond::image::Bytes data) {
  std::string text;
  if (CUresult result = readLinkInput(type, data, link.options, &text)) return result;
  link.texts.push_back(std::move(text));
  return CUDA_SUCCESS;
}

}  // namespace

extern "C" {

CUresult cuLinkCreate_v2(unsigned int numOptions, CUjit_option* options, void** optionValues, CUlinkState* stateOut) {
  return withContext([&](Driver& driver, const ContextPtr&) -> CUresult {
    if (!stateOut || (numOptions > 0 && (!options || !optionValues))) return CUDA_ERROR_INVALID_VALUE;
    auto link = std::make_shared<Link>();
    link->options = {numOptions, options, optionValues};
    *stateOut = driver.links().add(std::move(link));
    return CUDA_SUCCESS;
  });
}

CUresult cuLinkAddData_v2(CUlinkState state, CUjitInputType type, void* data, size_t size, const char*, unsigned int,
                          CUjit_option*, void**) {
  return withLink(state, [&](Link& link) -> CUresult {
    if (!data) return CUDA_ERROR_INVALID_VALUE;
    return addInput(link, type, {static_cast<const std::byte*>(data), size});
  });
}

CUresult cuLinkAddFile_v2(CUlinkState state, CUjitInputType type, const char* path, unsigned int, CUjit_option*,
                          void**) {
  return withLink(state, [&](Link& link) -> CUresult {
    if (!path) return CUDA_ERROR_INVALID_VALUE;
    std::ifstream file(path, std::ios::binary);
    if (!file) return CUDA_ERROR_FILE_NOT_FOUND;
    const std::string content{std::istreambuf_iterator<char>(file), {}};
    return addInput(link, type, std::as_bytes(std::span(content)));
  });
}

CUresult cuLinkComplete(CUlinkState state, void** cubinOut, size_t* sizeOut) {
  return withLink(state, [&](Link& link) -> CUresult {
    if (!cubinOut || link.texts.empty()) return CUDA_ERROR_INVALID_VALUE;
    if (CUresult result = linkPrograms(link.texts, link.options, &link.linked)) return result;
    *cubinOut = link.linked.data();
    if (sizeOut) *sizeOut = link.linked.size() + 1;  // with its terminating zero
    return CUDA_SUCCESS;
  });
}

CUresult cuLinkDestroy(CUlinkState state) {
  return withDriver([&](Driver& driver) -> CUresult {
    return driver.links().remove(state) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
  });
}

}  // extern "C"
