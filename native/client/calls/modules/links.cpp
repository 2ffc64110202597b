// SPDX-License-Identifier: Apache-2.0
// Linking device code at run time.
#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>

#include "client/call/call.h"
#include "client/call/image_sender.h"
#include "client/calls/modules/jit_reply.h"
#include "client/gen/api.h"
#include "client/images/image.h"
#include "client/process/client.h"

namespace millpond::client::api {
namespace {

struct Link {
  JitOptions options;
  std::vector<std::byte> code;  ///< the linked code: valid for the program until it destroys the link
};

struct Links {
  std::mutex mutex;
  std::map<uint64_t, std::unique_ptr<Link>> all;

  /// Only one thread at a time uses a link, as with the driver.
  Link* find(uint64_t wire) {
    std::lock_guard lock(mutex);
    const auto found = all.find(wire);
    return found == all.end() ? nullptr : found->second.get();
  }
};

Links& links() {
  static auto& made = *new Links();
  return made;
}

template <typename Command, typename Reply, typename... Tails>
CUresult waitForJit(Call& call, const Command& wire, const JitOptions& options, const Tails&... tails) {
  std::vector<std::byte> whole;
  Session::Answer answer;
  answer.whole = &whole;
  const CUresult result = call.waitFor(wire, answer, tails...);
  deliverJit<Reply>(whole, options);
  return result;
}

CUresult add(Call& call, CUlinkState state, CUjitInputType type, std::span<const std::byte> data, const char* name,
             unsigned count, CUjit_option* options, void** values) {
  if (const CUresult r = call.entry(); r != CUDA_SUCCESS) return r;
  cmd::LinkAdd wire{};
  if (const CUresult r = call.handle(HandleKind::kLinkState, state, wire.handle); r != CUDA_SUCCESS) return r;
  const Link* link = links().find(wire.handle);
  if (!link) return CUDA_ERROR_INVALID_HANDLE;
  if (data.empty() || type >= CU_JIT_NUM_INPUT_TYPES) return CUDA_ERROR_INVALID_VALUE;
  JitOptions jit;
  if (const CUresult r = jit.read(count, options, values); r != CUDA_SUCCESS) return r;
  wire.type = type;
  ImagePlaces places;
  if (const CUresult r = sendImage(call, wire.handle, std::span(&data, 1), places); r != CUDA_SUCCESS) return r;
  const std::span<const char> title(name ? name : "", name ? std::strlen(name) : 0);
  return waitForJit<cmd::LinkAdd, cmd::LinkAddReply>(call, wire, link->options, std::as_bytes(title),
                                                     std::as_bytes(jit.records()));
}

CUresult readCode(Call& call, uint64_t handle, std::vector<std::byte>& code) {
  cmd::LinkRead wire{};
  wire.handle = handle;
  for (;;) {
    wire.offset = code.size();
    std::vector<std::byte> whole;
    Session::Answer answer;
    answer.whole = &whole;
    if (const CUresult r = call.waitFor(wire, answer); r != CUDA_SUCCESS) return r;
    cmd::Decoded<cmd::LinkReadReply> reply;
    if (!cmd::decode(whole, reply)) return CUDA_ERROR_UNKNOWN;
    code.insert(code.end(), reply.tail[0].begin(), reply.tail[0].end());
    if (code.size() >= reply.fixed.total || reply.tail[0].empty()) return CUDA_SUCCESS;
  }
}

}  // namespace

CUresult cuLinkCreate_v2(unsigned int numOptions, CUjit_option* options, void** optionValues,
                         CUlinkState* stateOut) noexcept {
  Call call("cuLinkCreate_v2", Needs::kCurrent);
  if (const CUresult r = call.entry(); r != CUDA_SUCCESS) return r;
  if (!stateOut) return CUDA_ERROR_INVALID_VALUE;
  auto link = std::make_unique<Link>();
  if (const CUresult r = link->options.read(numOptions, options, optionValues); r != CUDA_SUCCESS) return r;
  void* handle = nullptr;
  cmd::LinkCreate wire{};
  wire.handle = call.create(HandleKind::kLinkState, &handle);
  cmd::LinkCreateReply reply{};
  if (const CUresult r = call.wait(wire, reply, std::as_bytes(link->options.records())); r != CUDA_SUCCESS) {
    call.remote().handles.recycle(call.remote().handles.claim(HandleKind::kLinkState, handle));
    return r;
  }
  {
    std::lock_guard lock(links().mutex);
    links().all[wire.handle] = std::move(link);
  }
  *stateOut = static_cast<CUlinkState>(handle);
  return CUDA_SUCCESS;
}

CUresult cuLinkAddData_v2(CUlinkState state, CUjitInputType type, void* data, size_t size, const char* name,
                          unsigned int numOptions, CUjit_option* options, void** optionValues) noexcept {
  Call call("cuLinkAddData_v2", Needs::kAny);
  if (!data || size == 0) return CUDA_ERROR_INVALID_VALUE;
  // The worker itself appends the zero to text.
  const auto* bytes = static_cast<const std::byte*>(data);
  if (type == CU_JIT_INPUT_PTX && size > 1 && bytes[size - 1] == std::byte{0}) --size;
  return add(call, state, type, {bytes, size}, name, numOptions, options, optionValues);
}

CUresult cuLinkAddFile_v2(CUlinkState state, CUjitInputType type, const char* path, unsigned int numOptions,
                          CUjit_option* options, void** optionValues) noexcept {
  Call call("cuLinkAddFile_v2", Needs::kAny);
  if (const CUresult r = call.entry(); r != CUDA_SUCCESS) return r;
  std::vector<char> bytes;
  if (const CUresult r = readImageFile(path, bytes); r != CUDA_SUCCESS) return r;
  return add(call, state, type, std::as_bytes(std::span(bytes).first(bytes.size() - 1)), path, numOptions, options,
             optionValues);
}

CUresult cuLinkComplete(CUlinkState state, void** cubinOut, size_t* sizeOut) noexcept {
  Call call("cuLinkComplete", Needs::kAny);
  if (const CUresult r = call.entry(); r != CUDA_SUCCESS) return r;
  cmd::LinkComplete wire{};
  if (const CUresult r = call.handle(HandleKind::kLinkState, state, wire.handle); r != CUDA_SUCCESS) return r;
  Link* link = links().find(wire.handle);
  if (!link) return CUDA_ERROR_INVALID_HANDLE;
  if (!cubinOut) return CUDA_ERROR_INVALID_VALUE;
  const CUresult result = waitForJit<cmd::LinkComplete, cmd::LinkCompleteReply>(call, wire, link->options);
  if (result != CUDA_SUCCESS) return result;
  link->code.clear();
  if (const CUresult r = readCode(call, wire.handle, link->code); r != CUDA_SUCCESS) return r;
  *cubinOut = link->code.data();
  if (sizeOut) *sizeOut = link->code.size();
  return CUDA_SUCCESS;
}

CUresult cuLinkDestroy(CUlinkState state) noexcept {
  Call call("cuLinkDestroy", Needs::kNothing);
  if (const CUresult r = call.entry(); r != CUDA_SUCCESS) return r;
  cmd::LinkDestroy wire{};
  if (const CUresult r = call.destroy(HandleKind::kLinkState, state, wire.handle); r != CUDA_SUCCESS) return r;
  {
    std::lock_guard lock(links().mutex);
    links().all.erase(wire.handle);
  }
  return call.post(wire);
}

}  // namespace millpond::client::api
