// SPDX-License-Identifier: Apache-2.0
// Texture and surface objects.
#pragma once

#include <cstdint>
#include <unordered_map>

#include "worker/commands/memory/frees.h"
#include "worker/core/session_part.h"
#include "worker/memory/address_gate.h"

namespace millpond::worker {

class Textures : private SessionPart {
 public:
  Textures(SessionCore& session, AddressGate& addresses, Frees& frees)
      : SessionPart(session), addresses_(addresses), frees_(frees) {}

  bool empty() const { return textures_.empty(); }
  void forgetContext(uint16_t number) {
    std::erase_if(textures_, [number](const auto& each) { return each.second.context == number; });
  }

  CUresult onTextureCreate(const cmd::Decoded<cmd::TextureCreate>& command);
  CUresult onTextureDestroy(const cmd::Decoded<cmd::TextureDestroy>& command);

 private:
  struct Texture {
    uint16_t context = 0;
    bool isSurface = false;
  };

  AddressGate& addresses_;
  Frees& frees_;
  std::unordered_map<uint64_t, Texture> textures_;  ///< texture and surface objects
};

}  // namespace millpond::worker
