// SPDX-License-Identifier: Apache-2.0
// Texture and surface references: those of modules, which end with them, and those that the program made.
#include <string>

#include "worker/session/executor.h"

namespace millpond::worker {

CUresult Executor::onGetReference(const cmd::Decoded<cmd::GetReference>& command) {
  const auto& get = command.fixed;
  if (command.tail[0].size() > cmd::kMaxStringBytes) return violation("a name that is too long");
  const std::string name(reinterpret_cast<const char*>(command.tail[0].data()), command.tail[0].size());
  CUmodule module = nullptr;
  if (!handle(HandleKind::kModule, get.owner, module)) return violation("unknown module");
  if (!module) return CUDA_ERROR_INVALID_HANDLE;
  const HandleKind kind = handle::kind(get.handle);
  void* object = nullptr;
  CUresult rc;
  if (kind == HandleKind::kTextureReference) {
    CUtexref texture = nullptr;
    rc = driver_.cuModuleGetTexRef(&texture, module, name.c_str());
    object = texture;
  } else if (kind == HandleKind::kSurfaceReference) {
    CUsurfref surface = nullptr;
    rc = driver_.cuModuleGetSurfRef(&surface, module, name.c_str());
    object = surface;
  } else {
    return violation("a reference of no kind");
  }
  if (rc) return rc;
  if (!adopt(kind, get.handle, object)) return violation("the handle of a reference is taken");
  children_[get.owner].push_back(get.handle);
  borrowed_.insert(get.handle);
  reply(cmd::GetReferenceReply{});
  return CUDA_SUCCESS;
}

CUresult Executor::onTextureReferenceDestroy(const cmd::Decoded<cmd::TextureReferenceDestroy>& command) {
  const uint64_t wire = command.fixed.handle;
  CUtexref reference = nullptr;
  if (!handle(HandleKind::kTextureReference, wire, reference)) return violation("unknown texture reference");
  if (borrowed_.contains(wire)) return violation("the reference is its module's");
  drop(HandleKind::kTextureReference, wire);
  return reference ? driver_.cuTexRefDestroy(reference) : CUDA_ERROR_INVALID_VALUE;
}

}  // namespace millpond::worker
