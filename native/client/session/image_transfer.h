// SPDX-License-Identifier: Apache-2.0
// Transfers an image to the worker: by its hash if its host has it, in pieces otherwise.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "base/sha256.h"
#include "cuda/gen/cuda_api.h"
#include "protocol/gen/commands.h"

namespace millpond::client {

/// Over a network, requesting an image by its hash costs a round trip. Through shared memory sending the bytes is
/// faster than hashing them.
inline constexpr size_t kWorthAsking = 4096;
inline constexpr size_t kImagePiece = size_t{512} << 10;

/// Sends an image through an object with the `wait` and `postData` of a Call, for the command that will use it under
/// `handle`.
template <typename Link>
CUresult sendImageBytes(Link& link, bool isRemote, uint64_t handle, std::span<const std::byte> bytes) {
  if (isRemote && bytes.size() >= kWorthAsking) {
    cmd::ImageOffer offer{};
    offer.handle = handle;
    offer.total = bytes.size();
    const Sha256 hash = sha256(bytes);
    static_assert(sizeof offer.hash == sizeof hash);
    std::memcpy(offer.hash, hash.data(), hash.size());
    cmd::ImageOfferReply reply{};
    if (const CUresult r = link.wait(offer, reply); r != CUDA_SUCCESS || reply.known) return r;
  }
  cmd::ImagePart part{};
  part.handle = handle;
  part.total = bytes.size();
  for (size_t at = 0; at < bytes.size(); at += kImagePiece) {
    part.offset = at;
    const CUresult r = link.postData(part, bytes.subspan(at, std::min(kImagePiece, bytes.size() - at)));
    if (r != CUDA_SUCCESS) return r;
  }
  return CUDA_SUCCESS;
}

}  // namespace millpond::client
