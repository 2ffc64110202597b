// SPDX-License-Identifier: Apache-2.0
// Core dumps of the GPU: settings can be read back, and settings that would cause a dump are refused. Process-wide
// settings work before cuInit.
#include "client/state/core_dumps.h"
#include "base/log.h"
#include "client/call/call.h"
#include "client/gen/api.h"

namespace millpond::client::api {
namespace {

CUresult set(uint16_t context, CUcoredumpSettings attribute, const void* value, size_t* size) {
  const CUresult result = CoreDumps::instance().set(context, attribute, value, size);
  if (result == CUDA_ERROR_NOT_SUPPORTED)
    log(LogLevel::Warn, "core dumps of the GPU are not supported: the driver would write them on the GPU's host");
  return result;
}

}  // namespace

CUresult cuCoredumpGetAttribute(CUcoredumpSettings attrib, void* value, size_t* size) noexcept {
  Call call("cuCoredumpGetAttribute", Needs::kCurrent);
  if (const CUresult r = call.entry(); r != CUDA_SUCCESS) return r;
  return CoreDumps::instance().get(call.context(), attrib, value, size);
}

CUresult cuCoredumpGetAttributeGlobal(CUcoredumpSettings attrib, void* value, size_t* size) noexcept {
  return CoreDumps::instance().get(CoreDumps::kProcess, attrib, value, size);
}

CUresult cuCoredumpSetAttribute(CUcoredumpSettings attrib, void* value, size_t* size) noexcept {
  Call call("cuCoredumpSetAttribute", Needs::kCurrent);
  if (const CUresult r = call.entry(); r != CUDA_SUCCESS) return r;
  return set(call.context(), attrib, value, size);
}

CUresult cuCoredumpSetAttributeGlobal(CUcoredumpSettings attrib, void* value, size_t* size) noexcept {
  return set(CoreDumps::kProcess, attrib, value, size);
}

}  // namespace millpond::client::api
