// SPDX-License-Identifier: Apache-2.0
#include "conformance.h"

template <class T>
static __device__ uint64_t mix(T a, T b) {
  const T divisor = b == 0 ? T{3} : b;
  // The negation of the lowest value does not fit into the type, so ptxas may choose any result.
  const T opposite = static_cast<T>(a << 1) == 0 ? b : a;
  uint64_t hash = 1469598103934665603u;
  const T results[] = {static_cast<T>(a + b), static_cast<T>(a - b), static_cast<T>(a * b), static_cast<T>(a / divisor),
                       static_cast<T>(a % divisor), static_cast<T>(a & b), static_cast<T>(a | b),
                       static_cast<T>(a ^ b), static_cast<T>(~a), static_cast<T>(a << 3), static_cast<T>(a >> 2),
                       static_cast<T>(a < b), static_cast<T>(a <= b), static_cast<T>(a == b), static_cast<T>(-opposite),
                       a < b ? a : b, a < b ? b : a};
  for (T result : results) hash = (hash ^ static_cast<uint64_t>(result)) * 1099511628211u;
  return hash;
}

static __host__ __device__ uint64_t sample(uint32_t i) {
  uint64_t x = i * 0x9e3779b97f4a7c15u + 0x7f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  return x ^ (x >> 27);
}

template <class T>
static __global__ void width(uint64_t* out) {
  const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  // The first few values are the limits of the range.
  const T low = static_cast<T>(static_cast<T>(-1) < T{0} ? uint64_t{1} << (sizeof(T) * 8 - 1) : 0);
  const T a = i == 0 ? low : i == 1 ? static_cast<T>(low - 1) : static_cast<T>(sample(i));
  // The lowest value divided by -1 overflows.
  T b = static_cast<T>(sample(i + 100000) >> (i % 48));
  if (i < 2) b = 7;
  out[i] = mix<T>(a, b);
}

static __global__ void special(unsigned long long* out) {
  const uint32_t a = 0x89abcdef, b = 0x01234567;
  const uint64_t c = 0xfedcba9876543210u, d = 0x0f1e2d3c4b5a6978u;
  int n = 0;
  out[n++] = __umulhi(a, b);
  out[n++] = static_cast<uint32_t>(__mulhi(static_cast<int>(a), static_cast<int>(b)));
  out[n++] = __umul64hi(c, d);
  out[n++] = static_cast<unsigned long long>(__mul64hi(static_cast<long long>(c), static_cast<long long>(d)));
  out[n++] = __umul24(a, b);
  out[n++] = static_cast<uint32_t>(__mul24(static_cast<int>(a), static_cast<int>(b)));
  out[n++] = static_cast<unsigned>(__popc(a)) * 100u + static_cast<unsigned>(__popcll(c));
  out[n++] = static_cast<unsigned>(__clz(static_cast<int>(b))) * 100u + static_cast<unsigned>(__clzll(static_cast<long long>(d)));
  out[n++] = static_cast<unsigned>(__ffs(static_cast<int>(a << 5))) * 100u + static_cast<unsigned>(__ffsll(static_cast<long long>(c)));
  out[n++] = __brev(a);
  out[n++] = __brevll(c);
  out[n++] = __byte_perm(a, b, 0x3516);
  out[n++] = __funnelshift_l(a, b, 13) ^ __funnelshift_r(a, b, 29);
  out[n++] = __sad(static_cast<int>(a), static_cast<int>(b), 5u);
  out[n++] = __usad(a, b, 5u);
  out[n++] = static_cast<uint32_t>(__hadd(static_cast<int>(a), static_cast<int>(b)));
  out[n++] = __urhadd(a, b);
  out[n++] = static_cast<uint32_t>(__dp4a(static_cast<int>(a), static_cast<int>(b), 77));
  out[n++] = __dp4a(a, b, 77u);
  out[n++] = static_cast<uint32_t>(__dp2a_lo(static_cast<int>(a), static_cast<int>(b), 77));
  out[n++] = __vadd4(a, b) ^ __vsub2(a, b);
  out[n++] = __vmaxu4(a, b) ^ __vmins2(a, b);
  out[n++] = __vabsdiffu4(a, b);
  out[n++] = __vcmpgtu4(a, b);
  const unsigned __int128 wide = static_cast<unsigned __int128>(c) * d + a;
  out[n++] = static_cast<unsigned long long>(wide >> 64);
  out[n++] = static_cast<unsigned long long>(wide % 1000000007u);
}

template <class T>
static void see(const char* name) {
  constexpr uint32_t count = 4096;
  conformance::Device<uint64_t> out(count);
  width<T><<<count / 128, 128>>>(out);
  const std::vector<uint64_t> values = out.take();
  say("%s: first %016llx, digest %016llx", name, static_cast<unsigned long long>(values[0]),
      static_cast<unsigned long long>(conformance::digest(values.data(), count * sizeof(uint64_t))));
}

PROGRAM("integers", "integer arithmetic of every width, and the integer intrinsics") {
  see<int8_t>("int8");
  see<uint8_t>("uint8");
  see<int16_t>("int16");
  see<uint16_t>("uint16");
  see<int32_t>("int32");
  see<uint32_t>("uint32");
  see<int64_t>("int64");
  see<uint64_t>("uint64");
  conformance::Device<unsigned long long> out(26);
  out.clear();
  special<<<1, 1>>>(out);
  int i = 0;
  for (unsigned long long value : out.take()) say("intrinsic %d: %llx", i++, value);
}
