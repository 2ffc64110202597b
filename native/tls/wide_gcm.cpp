// SPDX-License-Identifier: Apache-2.0
#include "tls/wide_gcm.h"

#include <openssl/crypto.h>

#include <cstdint>
#include <cstring>

#ifdef __x86_64__
// GCC 12's own header reads values that it reports as undefined (its bug 105593).
#ifndef __clang__
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <cpuid.h>
#include <immintrin.h>

#define MILLPOND_WIDE __attribute__((target("aes,pclmul,ssse3,avx512f,avx512bw,avx512vl,vaes,vpclmulqdq")))
#define MILLPOND_WIDE_INLINE MILLPOND_WIDE __attribute__((always_inline)) inline

namespace {

constexpr size_t kBlock = 16;
/// Blocks per iteration of the loop: four registers of four blocks.
constexpr size_t kVectors = 4;
constexpr size_t kStride = kVectors * 64;

using RoundKeys = const unsigned char (*)[kBlock];

// The hash: polynomials over GF(2) with reversed bits. A product is shifted by one bit, which the form of the key
// compensates: see `multiplier`.

MILLPOND_WIDE_INLINE __m128i reversed(__m128i block) {
  return _mm_shuffle_epi8(block, _mm_set_epi8(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15));
}

MILLPOND_WIDE_INLINE __m512i reversed(__m512i blocks) {
  const __m128i backwards = _mm_set_epi8(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  return _mm512_shuffle_epi8(blocks, _mm512_broadcast_i32x4(backwards));
}

/// The sum of unreduced products.
struct Products {
  __m512i low, middle, high;
};

MILLPOND_WIDE_INLINE Products none() {
  return {_mm512_setzero_si512(), _mm512_setzero_si512(), _mm512_setzero_si512()};
}

MILLPOND_WIDE_INLINE void addProduct(Products& sum, __m512i a, __m512i b) {
  sum.low = _mm512_xor_si512(sum.low, _mm512_clmulepi64_epi128(a, b, 0x00));
  sum.high = _mm512_xor_si512(sum.high, _mm512_clmulepi64_epi128(a, b, 0x11));
  const __m512i middle = _mm512_clmulepi64_epi128(a, b, 0x01);
  sum.middle = _mm512_ternarylogic_epi64(sum.middle, middle, _mm512_clmulepi64_epi128(a, b, 0x10), 0x96);
}

MILLPOND_WIDE_INLINE __m128i folded(__m512i lanes) {
  const __m256i half = _mm256_xor_si256(_mm512_castsi512_si256(lanes), _mm512_extracti64x4_epi64(lanes, 1));
  return _mm_xor_si128(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
}

/// Modulo x^128 + x^7 + x^2 + x + 1.
MILLPOND_WIDE_INLINE __m128i reduced(__m128i low, __m128i middle, __m128i high) {
  low = _mm_xor_si128(low, _mm_slli_si128(middle, 8));
  high = _mm_xor_si128(high, _mm_srli_si128(middle, 8));
  const __m128i polynomial = _mm_set_epi64x(static_cast<long long>(0xc200000000000000), 1);
  for (int i = 0; i < 2; ++i)
    low = _mm_xor_si128(_mm_shuffle_epi32(low, 0x4e), _mm_clmulepi64_si128(low, polynomial, 0x10));
  return _mm_xor_si128(low, high);
}

MILLPOND_WIDE_INLINE __m128i reduced(const Products& sum) {
  return reduced(folded(sum.low), folded(sum.middle), folded(sum.high));
}

MILLPOND_WIDE_INLINE __m128i product(__m128i a, __m128i b) {
  const __m128i middle = _mm_xor_si128(_mm_clmulepi64_si128(a, b, 0x01), _mm_clmulepi64_si128(a, b, 0x10));
  return reduced(_mm_clmulepi64_si128(a, b, 0x00), middle, _mm_clmulepi64_si128(a, b, 0x11));
}

/// The key times x.
MILLPOND_WIDE_INLINE __m128i multiplier(__m128i key) {
  const __m128i carries = _mm_srli_epi64(key, 63);
  const __m128i shifted = _mm_or_si128(_mm_slli_epi64(key, 1), _mm_slli_si128(carries, 8));
  const __m128i isSet = _mm_sub_epi64(_mm_setzero_si128(), _mm_shuffle_epi32(_mm_srli_si128(carries, 8), 0x44));
  return _mm_xor_si128(shifted, _mm_and_si128(isSet, _mm_set_epi64x(static_cast<long long>(0xc200000000000000), 1)));
}

MILLPOND_WIDE_INLINE __m128i load(const unsigned char* from) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
}
MILLPOND_WIDE_INLINE void store(unsigned char* to, __m128i block) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), block);
}

// The cipher

template <int kConstant>
MILLPOND_WIDE_INLINE __m128i nextKey(__m128i key) {
  const __m128i word = _mm_shuffle_epi32(_mm_aeskeygenassist_si128(key, kConstant), 0xff);
  key = _mm_xor_si128(key, _mm_slli_si128(key, 4));
  key = _mm_xor_si128(key, _mm_slli_si128(key, 8));
  return _mm_xor_si128(key, word);
}

MILLPOND_WIDE_INLINE __m128i encrypted(__m128i block, RoundKeys keys) {
  block = _mm_xor_si128(block, load(keys[0]));
  for (int i = 1; i < 10; ++i) block = _mm_aesenc_si128(block, load(keys[i]));
  return _mm_aesenclast_si128(block, load(keys[10]));
}

/// Counters of blocks, as numbers that support addition; `asBlocks` converts them to their encrypted form.
struct Counter {
  __m512i next;

  MILLPOND_WIDE_INLINE Counter(const unsigned char* nonce, unsigned first) {
    alignas(16) unsigned char block[kBlock] = {};
    std::memcpy(block, nonce, WideGcm::kNonceBytes);
    const __m512i same = _mm512_broadcast_i32x4(load(block));
    next = _mm512_mask_set1_epi32(same, 0x8888, static_cast<int>(first));
    next = _mm512_add_epi32(next, _mm512_set_epi32(3, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0));
  }
  MILLPOND_WIDE_INLINE __m512i take() {
    const __m128i bigEndian = _mm_set_epi8(12, 13, 14, 15, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    const __m512i out = _mm512_shuffle_epi8(next, _mm512_broadcast_i32x4(bigEndian));
    next = _mm512_add_epi32(next, _mm512_set_epi32(4, 0, 0, 0, 4, 0, 0, 0, 4, 0, 0, 0, 4, 0, 0, 0));
    return out;
  }
};

/// A stride of text. Unrolled, because compilers keep arrays of registers in memory.
struct Stride {
  __m512i a, b, c, d;
};

/// The next block of the key stream.
MILLPOND_WIDE_INLINE Stride keyStream(Counter& counter, RoundKeys keys) {
  __m512i key = _mm512_broadcast_i32x4(load(keys[0]));
  Stride out;
  out.a = _mm512_xor_si512(counter.take(), key);
  out.b = _mm512_xor_si512(counter.take(), key);
  out.c = _mm512_xor_si512(counter.take(), key);
  out.d = _mm512_xor_si512(counter.take(), key);
  for (int round = 1; round < 10; ++round) {
    key = _mm512_broadcast_i32x4(load(keys[round]));
    out.a = _mm512_aesenc_epi128(out.a, key);
    out.b = _mm512_aesenc_epi128(out.b, key);
    out.c = _mm512_aesenc_epi128(out.c, key);
    out.d = _mm512_aesenc_epi128(out.d, key);
  }
  key = _mm512_broadcast_i32x4(load(keys[10]));
  out.a = _mm512_aesenclast_epi128(out.a, key);
  out.b = _mm512_aesenclast_epi128(out.b, key);
  out.c = _mm512_aesenclast_epi128(out.c, key);
  out.d = _mm512_aesenclast_epi128(out.d, key);
  return out;
}

enum class Way : bool { kSeal, kOpen };

/// Four blocks: writes the text combined with the key stream; returns the one to hash.
template <Way kWay>
MILLPOND_WIDE_INLINE __m512i through(const unsigned char* in, unsigned char* out, __m512i stream) {
  const __m512i from = _mm512_loadu_si512(in);
  const __m512i to = _mm512_xor_si512(from, stream);
  _mm512_storeu_si512(out, to);
  return reversed(kWay == Way::kSeal ? to : from);
}

/// Encrypts or decrypts `bytes` of text, whole strides, and hashes its encrypted side. `hash`: the hash so far.
template <Way kWay>
MILLPOND_WIDE_INLINE __m128i wholeStrides(Counter& counter, RoundKeys keys, RoundKeys powers, const unsigned char* in,
                                          size_t bytes, unsigned char* out, __m128i hash) {
  const __m512i first = _mm512_loadu_si512(powers[0]), second = _mm512_loadu_si512(powers[4]);
  const __m512i third = _mm512_loadu_si512(powers[8]), fourth = _mm512_loadu_si512(powers[12]);
  for (const unsigned char* const end = in + bytes; in != end; in += kStride, out += kStride) {
    const Stride stream = keyStream(counter, keys);
    Products sum = none();
    addProduct(sum, through<kWay>(in + 64, out + 64, stream.b), second);
    addProduct(sum, through<kWay>(in + 128, out + 128, stream.c), third);
    addProduct(sum, through<kWay>(in + 192, out + 192, stream.d), fourth);
    addProduct(sum, _mm512_xor_si512(through<kWay>(in, out, stream.a), _mm512_zextsi128_si512(hash)), first);
    hash = reduced(sum);
  }
  return hash;
}

/// The same for the rest of a text.
template <Way kWay>
MILLPOND_WIDE_INLINE __m128i lastStride(Counter& counter, RoundKeys keys, RoundKeys powers, unsigned char* text,
                                        size_t bytes, __m128i hash) {
  if (bytes == 0) return hash;
  const size_t blocks = (bytes + kBlock - 1) / kBlock;
  const Stride all = keyStream(counter, keys);
  const __m512i stream[kVectors] = {all.a, all.b, all.c, all.d};
  Products sum = none();
  for (size_t i = 0; i < kVectors && 64 * i < bytes; ++i) {
    const size_t left = bytes - 64 * i, blocksLeft = blocks - 4 * i;
    const __mmask64 ofText = left >= 64 ? ~__mmask64{0} : (__mmask64{1} << left) - 1;
    const auto ofPowers = static_cast<__mmask8>(blocksLeft >= 4 ? 0xff : (1u << (2 * blocksLeft)) - 1);
    const __m512i from = _mm512_maskz_loadu_epi8(ofText, text + 64 * i);
    const __m512i to = _mm512_maskz_mov_epi8(ofText, _mm512_xor_si512(from, stream[i]));
    _mm512_mask_storeu_epi8(text + 64 * i, ofText, to);
    __m512i hashed = reversed(kWay == Way::kSeal ? to : from);
    if (i == 0) hashed = _mm512_xor_si512(hashed, _mm512_zextsi128_si512(hash));
    addProduct(sum, hashed, _mm512_maskz_loadu_epi64(ofPowers, powers[16 - blocks + 4 * i]));
  }
  return reduced(sum);
}

MILLPOND_WIDE_INLINE __m128i hashOfHeader(const unsigned char* header, RoundKeys powers) {
  alignas(16) unsigned char block[kBlock] = {};
  std::memcpy(block, header, WideGcm::kHeaderBytes);
  return product(reversed(load(block)), load(powers[15]));
}

MILLPOND_WIDE_INLINE __m128i tagOf(__m128i hash, size_t bytes, const unsigned char* nonce, RoundKeys keys,
                                   RoundKeys powers) {
  const __m128i lengths =
      _mm_set_epi64x(static_cast<long long>(WideGcm::kHeaderBytes * 8), static_cast<long long>(bytes * 8));
  hash = product(_mm_xor_si128(hash, lengths), load(powers[15]));
  alignas(16) unsigned char first[kBlock] = {};
  std::memcpy(first, nonce, WideGcm::kNonceBytes);
  first[kBlock - 1] = 1;
  return _mm_xor_si128(reversed(hash), encrypted(load(first), keys));
}

MILLPOND_WIDE void expand(const unsigned char* key, unsigned char (*keys)[kBlock], unsigned char (*powers)[kBlock]) {
  __m128i round = load(key);
  store(keys[0], round);
  store(keys[1], round = nextKey<0x01>(round));
  store(keys[2], round = nextKey<0x02>(round));
  store(keys[3], round = nextKey<0x04>(round));
  store(keys[4], round = nextKey<0x08>(round));
  store(keys[5], round = nextKey<0x10>(round));
  store(keys[6], round = nextKey<0x20>(round));
  store(keys[7], round = nextKey<0x40>(round));
  store(keys[8], round = nextKey<0x80>(round));
  store(keys[9], round = nextKey<0x1b>(round));
  store(keys[10], nextKey<0x36>(round));
  const __m128i one = multiplier(reversed(encrypted(_mm_setzero_si128(), keys)));
  __m128i power = one;
  for (size_t i = 16; i-- > 0; power = product(power, one)) store(powers[i], power);
}

MILLPOND_WIDE void sealText(RoundKeys keys, RoundKeys powers, const unsigned char* nonce, const unsigned char* header,
                            const unsigned char* in, size_t bytes, unsigned char last, unsigned char* out) {
  Counter counter(nonce, 2);
  const size_t whole = bytes / kStride * kStride;
  __m128i hash = wholeStrides<Way::kSeal>(counter, keys, powers, in, whole, out, hashOfHeader(header, powers));
  alignas(64) unsigned char rest[kStride];
  const size_t restBytes = bytes - whole;
  if (restBytes) std::memcpy(rest, in + whole, restBytes);
  rest[restBytes] = last;
  hash = lastStride<Way::kSeal>(counter, keys, powers, rest, restBytes + 1, hash);
  std::memcpy(out + whole, rest, restBytes + 1);
  store(out + bytes + 1, tagOf(hash, bytes + 1, nonce, keys, powers));
}

MILLPOND_WIDE void openText(RoundKeys keys, RoundKeys powers, const unsigned char* nonce, const unsigned char* header,
                            unsigned char* text, size_t bytes, unsigned char* tag) {
  Counter counter(nonce, 2);
  const size_t whole = bytes / kStride * kStride;
  __m128i hash = wholeStrides<Way::kOpen>(counter, keys, powers, text, whole, text, hashOfHeader(header, powers));
  hash = lastStride<Way::kOpen>(counter, keys, powers, text + whole, bytes - whole, hash);
  store(tag, tagOf(hash, bytes, nonce, keys, powers));
}

}  // namespace

bool WideGcm::isSupported() {
  // Only recent compilers know these two by name.
  constexpr unsigned kFeatures = 7, kVaes = 1u << 9, kVpclmulqdq = 1u << 10;
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid_count(kFeatures, 0, &a, &b, &c, &d) == 0 || (c & kVaes) == 0 || (c & kVpclmulqdq) == 0) return false;
  // This also checks that the operating system saves the registers.
  return __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
}

void WideGcm::setKey(const unsigned char* key) { expand(key, roundKeys_, powers_); }

void WideGcm::seal(const unsigned char* nonce, const unsigned char* header, const unsigned char* in, size_t bytes,
                   unsigned char last, unsigned char* out) const {
  sealText(roundKeys_, powers_, nonce, header, in, bytes, last, out);
}

bool WideGcm::open(const unsigned char* nonce, const unsigned char* header, unsigned char* text, size_t bytes) const {
  unsigned char tag[kTagBytes];
  openText(roundKeys_, powers_, nonce, header, text, bytes, tag);
  return CRYPTO_memcmp(tag, text + bytes, sizeof(tag)) == 0;
}

#ifndef __clang__
#pragma GCC diagnostic pop
#endif

#else

bool WideGcm::isSupported() { return false; }
void WideGcm::setKey(const unsigned char*) {}
void WideGcm::seal(const unsigned char*, const unsigned char*, const unsigned char*, size_t, unsigned char,
                   unsigned char*) const {}
bool WideGcm::open(const unsigned char*, const unsigned char*, unsigned char*, size_t) const { return false; }

#endif

WideGcm::~WideGcm() {
  OPENSSL_cleanse(roundKeys_, sizeof(roundKeys_));
  OPENSSL_cleanse(powers_, sizeof(powers_));
}
