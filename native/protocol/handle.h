// SPDX-License-Identifier: Apache-2.0
// The format of the handles that a client chooses; the application holds them as opaque pointers.
#pragma once

#include <cstdint>

#include "protocol/gen/handle_kind.h"

namespace millpond {

namespace handle {

/// Bits 4–11 one more than the kind, 12–31 index, 32–47 generation; the low four bits are 0 as in a pointer.
inline constexpr uint32_t kMaxHandles = uint32_t{1} << 20;

constexpr uint64_t make(HandleKind kind, uint32_t index, uint16_t generation) {
  return ((static_cast<uint64_t>(kind) + 1) << 4) | (static_cast<uint64_t>(index) << 12) |
         (static_cast<uint64_t>(generation) << 32);
}
constexpr HandleKind kind(uint64_t wire) { return static_cast<HandleKind>(((wire >> 4) & 0xff) - 1); }
/// Whether objects of this kind belong to a context and end with it. Libraries, their kernels and graphs do not.
constexpr bool livesInContext(HandleKind kind) {
  return kind == HandleKind::kStream || kind == HandleKind::kEvent || kind == HandleKind::kModule ||
         kind == HandleKind::kFunction || kind == HandleKind::kArray || kind == HandleKind::kMipmappedArray ||
         kind == HandleKind::kTextureReference || kind == HandleKind::kSurfaceReference;
}
constexpr uint32_t index(uint64_t wire) { return static_cast<uint32_t>((wire >> 12) & 0xfffff); }

}  // namespace handle
}  // namespace millpond
