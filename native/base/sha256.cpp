// SPDX-License-Identifier: Apache-2.0
#include "base/sha256.h"

#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace millpond {
namespace {

constexpr size_t kBlock = 64;
using State = std::array<uint32_t, 8>;

constexpr State kInitial = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                            0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};

alignas(16) constexpr uint32_t kRound[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

constexpr uint32_t rotated(uint32_t x, int n) { return (x >> n) | (x << (32 - n)); }

using Compress = void (*)(State& state, const std::byte* data, size_t blocks);

void compressPortable(State& state, const std::byte* data, size_t blocks) {
  for (; blocks; --blocks, data += kBlock) {
    uint32_t w[64];
    for (size_t i = 0; i < 16; ++i) {
      uint32_t word;
      std::memcpy(&word, data + 4 * i, 4);
      w[i] = __builtin_bswap32(word);
    }
    for (size_t i = 16; i < 64; ++i) {
      const uint32_t a = w[i - 15], b = w[i - 2];
      w[i] = w[i - 16] + (rotated(a, 7) ^ rotated(a, 18) ^ (a >> 3)) + w[i - 7] +
             (rotated(b, 17) ^ rotated(b, 19) ^ (b >> 10));
    }
    State s = state;
    for (size_t i = 0; i < 64; ++i) {
      const uint32_t choice = (s[4] & s[5]) ^ (~s[4] & s[6]);
      const uint32_t majority = (s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]);
      const uint32_t one =
          s[7] + (rotated(s[4], 6) ^ rotated(s[4], 11) ^ rotated(s[4], 25)) + choice + kRound[i] + w[i];
      const uint32_t two = (rotated(s[0], 2) ^ rotated(s[0], 13) ^ rotated(s[0], 22)) + majority;
      s = {one + two, s[0], s[1], s[2], s[3] + one, s[4], s[5], s[6]};
    }
    for (size_t i = 0; i < 8; ++i) state[i] += s[i];
  }
}

#if defined(__x86_64__)
// The instructions take the state as {a,b,e,f} and {c,d,g,h}, highest word first, and do two rounds at a time.
__attribute__((target("sha,sse4.1,ssse3"))) void compressSha(State& state, const std::byte* data, size_t blocks) {
  const __m128i swap = _mm_set_epi64x(0x0c0d0e0f08090a0bLL, 0x0405060700010203LL);
  const auto word = [](uint32_t x) { return static_cast<int>(x); };
  __m128i abef = _mm_set_epi32(word(state[0]), word(state[1]), word(state[4]), word(state[5]));
  __m128i cdgh = _mm_set_epi32(word(state[2]), word(state[3]), word(state[6]), word(state[7]));
  for (; blocks; --blocks, data += kBlock) {
    const __m128i abefBefore = abef, cdghBefore = cdgh;
    __m128i m[4];
    for (int i = 0; i < 4; ++i)
      m[i] = _mm_shuffle_epi8(_mm_loadu_si128(reinterpret_cast<const __m128i*>(data) + i), swap);
    for (int group = 0; group < 16; ++group) {
      __m128i& now = m[group & 3];
      const __m128i constants = _mm_load_si128(reinterpret_cast<const __m128i*>(kRound) + group);
      __m128i sum = _mm_add_epi32(now, constants);
      cdgh = _mm_sha256rnds2_epu32(cdgh, abef, sum);
      sum = _mm_shuffle_epi32(sum, 0x0e);
      abef = _mm_sha256rnds2_epu32(abef, cdgh, sum);
      if (group >= 12) continue;
      // This word is replaced by the one of the group four later.
      const __m128i next = m[(group + 1) & 3], third = m[(group + 2) & 3], last = m[(group + 3) & 3];
      __m128i fresh = _mm_add_epi32(_mm_sha256msg1_epu32(now, next), _mm_alignr_epi8(last, third, 4));
      now = _mm_sha256msg2_epu32(fresh, last);
    }
    abef = _mm_add_epi32(abef, abefBefore);
    cdgh = _mm_add_epi32(cdgh, cdghBefore);
  }
  const auto at = [](__m128i v, int i) {
    uint32_t words[4];
    std::memcpy(words, &v, sizeof words);
    return words[i];
  };
  state = {at(abef, 3), at(abef, 2), at(cdgh, 3), at(cdgh, 2), at(abef, 1), at(abef, 0), at(cdgh, 1), at(cdgh, 0)};
}

bool hasShaInstructions() {
  uint32_t a = 7, b = 0, c = 0, d = 0;
  __asm__("cpuid" : "+a"(a), "=b"(b), "+c"(c), "=d"(d));
  return (b & (1u << 29)) != 0 && __builtin_cpu_supports("sse4.1") && __builtin_cpu_supports("ssse3");
}
#endif

Sha256 digest(std::span<const std::byte> data, Compress compress) {
  State state = kInitial;
  const size_t whole = data.size() / kBlock;
  compress(state, data.data(), whole);
  std::array<std::byte, 2 * kBlock> end{};
  const auto rest = data.subspan(whole * kBlock);
  if (!rest.empty()) std::memcpy(end.data(), rest.data(), rest.size());
  end[rest.size()] = std::byte{0x80};
  const size_t blocks = rest.size() + 9 > kBlock ? 2 : 1;
  const uint64_t bits = __builtin_bswap64(uint64_t{data.size()} * 8);
  std::memcpy(end.data() + blocks * kBlock - 8, &bits, 8);
  compress(state, end.data(), blocks);
  Sha256 out;
  for (size_t i = 0; i < 8; ++i) {
    const uint32_t word = __builtin_bswap32(state[i]);
    std::memcpy(out.data() + 4 * i, &word, 4);
  }
  return out;
}

}  // namespace

Sha256 sha256(std::span<const std::byte> data) {
#if defined(__x86_64__)
  static const Compress best = hasShaInstructions() ? &compressSha : &compressPortable;
  return digest(data, best);
#else
  return digest(data, &compressPortable);
#endif
}

Sha256 sha256Portable(std::span<const std::byte> data) { return digest(data, &compressPortable); }

std::string hex(const Sha256& hash) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const std::byte each : hash) {
    text.push_back(kDigits[static_cast<unsigned>(each) >> 4]);
    text.push_back(kDigits[static_cast<unsigned>(each) & 15]);
  }
  return text;
}

}  // namespace millpond
