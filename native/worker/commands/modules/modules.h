// SPDX-License-Identifier: Apache-2.0
// Modules, libraries, and their contents: functions, variables, texture and surface references.
#pragma once

#include <cstdint>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "worker/commands/memory/charges.h"
#include "worker/commands/modules/functions.h"
#include "worker/commands/modules/images.h"
#include "worker/commands/modules/loaded_modules.h"
#include "worker/core/function_order.h"
#include "worker/core/session_objects.h"
#include "worker/core/session_part.h"
#include "worker/images/linked_fatbins.h"

namespace millpond::worker {

class Modules : private SessionPart {
 public:
  Modules(SessionCore& session, Images& images, Functions& functions, Charges& charges, FunctionOrder& order,
          SessionObjects& objects, LoadedModules& loaded)
      : SessionPart(session),
        images_(images),
        functions_(functions),
        charges_(charges),
        order_(order),
        objects_(objects),
        loaded_(loaded) {}

  CUresult onModuleLoad(const cmd::Decoded<cmd::ModuleLoad>& command);
  CUresult onModuleUnload(const cmd::Decoded<cmd::ModuleUnload>& command);
  CUresult onLibraryGetModule(const cmd::Decoded<cmd::LibraryGetModule>& command);
  CUresult onFunctionNames(const cmd::Decoded<cmd::FunctionNames>& command);
  CUresult onGetFunction(const cmd::Decoded<cmd::GetFunction>& command);
  CUresult onGetGlobal(const cmd::Decoded<cmd::GetGlobal>& command);
  CUresult onGetReference(const cmd::Decoded<cmd::GetReference>& command);
  CUresult onTextureReferenceDestroy(const cmd::Decoded<cmd::TextureReferenceDestroy>& command);

 private:
  /// Memory that the driver takes for it; none if unknown.
  std::optional<ImageMemory> memoryOf(const Image& image, const LinkedFatbins& fatbins);
  /// Drops the objects of a module or library.
  void dropChildren(uint64_t owner);

  Images& images_;
  Functions& functions_;
  Charges& charges_;
  FunctionOrder& order_;
  SessionObjects& objects_;
  LoadedModules& loaded_;
  std::unordered_map<uint64_t, std::vector<uint64_t>> children_;  ///< module or library → its functions and kernels
  /// objects that do not end on their own: modules of libraries, references of modules
  std::unordered_set<uint64_t> borrowed_;
};

}  // namespace millpond::worker
