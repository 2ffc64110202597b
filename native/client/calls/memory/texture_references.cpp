// SPDX-License-Identifier: Apache-2.0
// Texture and surface references of modules. All else about them is generated.
#include <cstring>
#include <memory>
#include <string>

#include "client/call/call.h"
#include "client/gen/api.h"

namespace millpond::client::api {
namespace {

/// The same name always gives the same reference, which belongs to the module.
CUresult getReference(const char* callName, HandleKind kind, CUmodule module, const char* name, void** out) {
  Call call(callName, Needs::kCurrent);
  if (const CUresult r = call.entry(); r != CUDA_SUCCESS) return r;
  cmd::GetReference wire{};
  if (const CUresult r = call.handle(HandleKind::kModule, module, wire.owner); r != CUDA_SUCCESS) return r;
  if (out == nullptr || name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  // No function, and no reference of the other kind, has this name.
  auto info = std::make_unique<FunctionInfo>();
  info->name = std::string(1, '\0') + (kind == HandleKind::kTextureReference ? "texture " : "surface ") + name;
  info->owner = wire.owner;
  HandleTable& handles = call.remote().handles;
  if (const uint64_t known = handles.childNamed(wire.owner, info->name)) {
    *out = reinterpret_cast<void*>(known);
    return CUDA_SUCCESS;
  }
  void* handle = nullptr;
  wire.handle = call.create(kind, &handle);
  cmd::GetReferenceReply reply{};
  if (const CUresult r = call.wait(wire, reply, std::as_bytes(std::span(name, std::strlen(name)))); r != CUDA_SUCCESS) {
    handles.recycle(handles.claim(kind, handle));
    return r;
  }
  handles.describe(wire.owner, wire.handle, std::move(info));
  *out = handle;
  return CUDA_SUCCESS;
}

}  // namespace

CUresult cuModuleGetTexRef(CUtexref* pTexRef, CUmodule hmod, const char* name) noexcept {
  return getReference("cuModuleGetTexRef", HandleKind::kTextureReference, hmod, name,
                      reinterpret_cast<void**>(pTexRef));
}

CUresult cuModuleGetSurfRef(CUsurfref* pSurfRef, CUmodule hmod, const char* name) noexcept {
  return getReference("cuModuleGetSurfRef", HandleKind::kSurfaceReference, hmod, name,
                      reinterpret_cast<void**>(pSurfRef));
}

}  // namespace millpond::client::api
