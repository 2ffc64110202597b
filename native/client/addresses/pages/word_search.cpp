// SPDX-License-Identifier: Apache-2.0
#include "client/addresses/pages/word_search.h"

#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace millpond::client {
namespace {

uint64_t loadWord(const std::byte* at) {
  uint64_t word;
  std::memcpy(&word, at, sizeof(word));
  return word;
}

#if defined(__x86_64__)
/// Vector comparisons are signed, so both sides are shifted by half of the range.
constexpr uint64_t kHalf = uint64_t{1} << 63;

__attribute__((target("avx2"))) inline __m256i areWithin(const std::byte* at, __m256i moved, __m256i end) {
  const __m256i words = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at));
  return _mm256_cmpgt_epi64(end, _mm256_sub_epi64(words, moved));
}

/// Number of bytes at the beginning, in whole blocks, without such a word. GCC 12 unrolls no vector loop at -O2.
__attribute__((target("avx2"))) size_t bytesWithoutByVectors(std::span<const std::byte> bytes, uint64_t least,
                                                             uint64_t range) {
  constexpr size_t kVector = 32;
  constexpr size_t kFourVectors = 4 * kVector;
  const __m256i moved = _mm256_set1_epi64x(static_cast<int64_t>(least + kHalf));
  const __m256i end = _mm256_set1_epi64x(static_cast<int64_t>(range + kHalf));
  size_t offset = 0;
  for (; offset + kFourVectors <= bytes.size(); offset += kFourVectors) {
    const std::byte* at = bytes.data() + offset;
    const __m256i first = _mm256_or_si256(areWithin(at, moved, end), areWithin(at + kVector, moved, end));
    const __m256i second =
        _mm256_or_si256(areWithin(at + 2 * kVector, moved, end), areWithin(at + 3 * kVector, moved, end));
    const __m256i any = _mm256_or_si256(first, second);
    if (!_mm256_testz_si256(any, any)) break;
  }
  return offset;
}

const bool hasVectors = __builtin_cpu_supports("avx2");
#endif

}  // namespace

size_t findWord(std::span<const std::byte> bytes, uint64_t least, uint64_t range) {
  size_t offset = 0;
#if defined(__x86_64__)
  if (hasVectors) offset = bytesWithoutByVectors(bytes, least, range);
#endif
  for (; offset + sizeof(uint64_t) <= bytes.size(); offset += sizeof(uint64_t))
    if (loadWord(bytes.data() + offset) - least < range) return offset;
  return bytes.size();
}

}  // namespace millpond::client
