// SPDX-License-Identifier: Apache-2.0
// The launches of CUDA 3, in which a function remembers its block shape and its parameters.
#include <cstring>

#include "client/call/call.h"
#include "client/gen/api.h"

namespace millpond::client::api {
namespace {

constexpr size_t kMaxParameterBytes = 32764;

/// The function's settings; nullptr if there are none.
LegacyLaunch* legacy(Call& call, CUfunction function, CUresult& result) {
  result = call.entry();
  if (result != CUDA_SUCCESS) return nullptr;
  HandleTable::Slot* slot = call.remote().handles.find(HandleKind::kFunction, function);
  if (!slot || !slot->function) {
    result = CUDA_ERROR_INVALID_HANDLE;
    return nullptr;
  }
  return &slot->function->legacy;
}

CUresult set(const char* name, CUfunction function, int offset, const void* from, size_t bytes) {
  Call call(name, Needs::kCurrent);
  CUresult result = CUDA_SUCCESS;
  LegacyLaunch* launch = legacy(call, function, result);
  if (!launch) return result;
  const auto at = static_cast<size_t>(offset);
  if (offset < 0 || !from || bytes > kMaxParameterBytes || at > kMaxParameterBytes - bytes)
    return CUDA_ERROR_INVALID_VALUE;
  if (launch->parameters.size() < at + bytes) launch->parameters.resize(at + bytes);
  std::memcpy(launch->parameters.data() + at, from, bytes);
  return CUDA_SUCCESS;
}

CUresult launchGrid(const char* name, CUfunction function, int width, int height, CUstream stream) {
  LegacyLaunch shape;
  {
    Call call(name, Needs::kCurrent);
    CUresult result = CUDA_SUCCESS;
    const LegacyLaunch* launch = legacy(call, function, result);
    if (!launch) return result;
    shape = *launch;
  }
  if (width <= 0 || height <= 0) return CUDA_ERROR_INVALID_VALUE;
  size_t bytes = shape.parameters.size();
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, shape.parameters.data(), CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes,
                   CU_LAUNCH_PARAM_END};
  return api::cuLaunchKernel(Flavour::kLegacy, function, static_cast<unsigned>(width), static_cast<unsigned>(height), 1,
                             shape.blockX, shape.blockY, shape.blockZ, shape.sharedBytes, stream, nullptr,
                             bytes ? extra : nullptr);
}

}  // namespace

CUresult cuFuncSetBlockShape(CUfunction hfunc, int x, int y, int z) noexcept {
  Call call("cuFuncSetBlockShape", Needs::kCurrent);
  CUresult result = CUDA_SUCCESS;
  LegacyLaunch* launch = legacy(call, hfunc, result);
  if (!launch) return result;
  if (x <= 0 || y <= 0 || z <= 0) return CUDA_ERROR_INVALID_VALUE;
  launch->blockX = static_cast<unsigned>(x);
  launch->blockY = static_cast<unsigned>(y);
  launch->blockZ = static_cast<unsigned>(z);
  return CUDA_SUCCESS;
}

CUresult cuFuncSetSharedSize(CUfunction hfunc, unsigned int bytes) noexcept {
  Call call("cuFuncSetSharedSize", Needs::kCurrent);
  CUresult result = CUDA_SUCCESS;
  LegacyLaunch* launch = legacy(call, hfunc, result);
  if (launch) launch->sharedBytes = bytes;
  return result;
}

CUresult cuParamSetSize(CUfunction hfunc, unsigned int numbytes) noexcept {
  Call call("cuParamSetSize", Needs::kCurrent);
  CUresult result = CUDA_SUCCESS;
  LegacyLaunch* launch = legacy(call, hfunc, result);
  if (!launch) return result;
  if (numbytes > kMaxParameterBytes) return CUDA_ERROR_INVALID_VALUE;
  launch->parameters.resize(numbytes);
  return CUDA_SUCCESS;
}

CUresult cuParamSeti(CUfunction hfunc, int offset, unsigned int value) noexcept {
  return set("cuParamSeti", hfunc, offset, &value, sizeof value);
}

CUresult cuParamSetf(CUfunction hfunc, int offset, float value) noexcept {
  return set("cuParamSetf", hfunc, offset, &value, sizeof value);
}

CUresult cuParamSetv(CUfunction hfunc, int offset, void* ptr, unsigned int numbytes) noexcept {
  return set("cuParamSetv", hfunc, offset, ptr, numbytes);
}

CUresult cuLaunch(CUfunction f) noexcept { return launchGrid("cuLaunch", f, 1, 1, nullptr); }

CUresult cuLaunchGrid(CUfunction f, int grid_width, int grid_height) noexcept {
  return launchGrid("cuLaunchGrid", f, grid_width, grid_height, nullptr);
}

CUresult cuLaunchGridAsync(CUfunction f, int grid_width, int grid_height, CUstream hStream) noexcept {
  return launchGrid("cuLaunchGridAsync", f, grid_width, grid_height, hStream);
}

}  // namespace millpond::client::api
