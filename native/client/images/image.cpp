// SPDX-License-Identifier: Apache-2.0
#include "client/images/image.h"

#include <cstdint>
#include <cstring>

#include "cuda/image_extent.h"

namespace millpond::client {
namespace {

struct Wrapper {
  uint32_t magic;
  uint32_t version;
  const void* data;
  const void* aux;
};

template <typename T>
T read(const void* from, uint64_t offset = 0) {
  T value;
  std::memcpy(&value, static_cast<const char*>(from) + offset, sizeof(T));
  return value;
}

/// More than any program was ever linked from.
constexpr size_t kMaxFatbins = 4096;

CUresult oneImage(const void* image, size_t known, std::span<const std::byte>& bytes) {
  const uint64_t extent = imageExtent(image, known);
  if (extent == 0) return CUDA_ERROR_INVALID_IMAGE;
  bytes = {static_cast<const std::byte*>(image), extent};
  return CUDA_SUCCESS;
}

}  // namespace

bool isWrapper(const void* image) noexcept {
  // The magic contains no zero, so the comparison stops at the end of a shorter text.
  return image && std::strncmp(static_cast<const char*>(image), "\xb1\x43\x62\x46", sizeof kWrapperMagic) == 0;
}

CUresult imageBytes(const void* image, size_t known, std::vector<std::span<const std::byte>>& parts) noexcept {
  parts.clear();
  if (image == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto add = [&](const void* each, size_t certain) {
    std::span<const std::byte> bytes;
    const CUresult result = each ? oneImage(each, certain, bytes) : CUDA_ERROR_INVALID_IMAGE;
    if (result == CUDA_SUCCESS) parts.push_back(bytes);
    return result;
  };
  if (known != kUnknownBytes || !isWrapper(image)) return add(image, known);
  const auto wrapper = read<Wrapper>(image);
  if (const CUresult r = add(wrapper.data, kUnknownBytes); r != CUDA_SUCCESS) return r;
  if (wrapper.version != 2 || !wrapper.aux) return CUDA_SUCCESS;
  for (size_t i = 0;; ++i) {
    const auto* each = read<const void*>(wrapper.aux, i * sizeof(void*));
    if (!each) return CUDA_SUCCESS;
    if (parts.size() >= kMaxFatbins || read<uint32_t>(each) != kFatbinMagic) return CUDA_ERROR_INVALID_IMAGE;
    if (const CUresult r = add(each, kUnknownBytes); r != CUDA_SUCCESS) return r;
  }
}

}  // namespace millpond::client
