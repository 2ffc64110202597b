// SPDX-License-Identifier: Apache-2.0
#include "client/image_sender.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>

#include "base/sha256.h"

namespace millpond::client {
namespace {

constexpr size_t kPiece = size_t{512} << 10;
/// Over a network, asking for an image by its hash costs a round trip. Through shared memory the bytes arrive sooner than
/// they are hashed.
constexpr size_t kWorthAsking = 4096;

CUresult sendBytes(Call& call, uint64_t handle, std::span<const std::byte> bytes) {
  if (call.session().remote() && bytes.size() >= kWorthAsking) {
    cmd::ImageOffer offer{};
    offer.handle = handle;
    offer.total = bytes.size();
    const Sha256 hash = sha256(bytes);
    static_assert(sizeof offer.hash == sizeof hash);
    std::memcpy(offer.hash, hash.data(), hash.size());
    cmd::ImageOfferReply reply{};
    if (const CUresult r = call.wait(offer, reply); r != CUDA_SUCCESS || reply.known) return r;
  }
  cmd::ImagePart part{};
  part.handle = handle;
  part.total = bytes.size();
  for (size_t at = 0; at < bytes.size(); at += kPiece) {
    part.offset = at;
    const CUresult r = call.postData(part, bytes.subspan(at, std::min(kPiece, bytes.size() - at)));
    if (r != CUDA_SUCCESS) return r;
  }
  return CUDA_SUCCESS;
}

}  // namespace

CUresult sendImage(Call& call, uint64_t handle, std::span<const std::span<const std::byte>> parts, ImagePlaces& places) {
  places.clear();
  if (parts.size() == 1) return sendBytes(call, handle, parts.front());
  std::vector<std::byte> whole;
  for (const auto part : parts) {
    whole.resize((whole.size() + 7) / 8 * 8);
    places.push_back(whole.size());
    whole.insert(whole.end(), part.begin(), part.end());
  }
  return sendBytes(call, handle, whole);
}

CUresult readImageFile(const char* path, std::vector<char>& bytes) {
  if (path == nullptr) return CUDA_ERROR_INVALID_VALUE;
  // Streams would bring half of the C++ library into other people's programs.
  const std::unique_ptr<FILE, int (*)(FILE*)> file(std::fopen(path, "re"), &std::fclose);
  if (!file) return CUDA_ERROR_FILE_NOT_FOUND;
  char chunk[65536];
  while (const size_t n = std::fread(chunk, 1, sizeof chunk, file.get())) bytes.insert(bytes.end(), chunk, chunk + n);
  if (std::ferror(file.get())) return CUDA_ERROR_INVALID_IMAGE;
  bytes.push_back('\0');
  return CUDA_SUCCESS;
}

}  // namespace millpond::client
