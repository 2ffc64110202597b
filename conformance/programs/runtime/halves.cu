// SPDX-License-Identifier: Apache-2.0
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "conformance.h"

static __global__ void halfs(const float* a, const float* b, unsigned* out) {
  const int i = static_cast<int>(threadIdx.x);
  const __half x = __float2half(a[i]), y = __float2half(b[i]);
  unsigned* to = out + i * 16;
  int n = 0;
  const auto put = [&](__half value) { to[n++] = __hisnan(value) ? 0x7fffu : static_cast<unsigned>(__half_as_ushort(value)); };
  put(x), put(__hadd(x, y)), put(__hsub(x, y)), put(__hmul(x, y)), put(__hdiv(x, y)), put(__hfma(x, y, x));
  put(__hneg(x)), put(__habs(x)), put(hsqrt(__habs(x))), put(hrint(x));
  put(__float2half_rz(a[i] * 1.0001f)), put(__int2half_rn(static_cast<int>(a[i] > 1e6f ? 7.0f : a[i])));
  to[n++] = static_cast<unsigned>(__hlt(x, y)) * 8 + static_cast<unsigned>(__heq(x, y)) * 4 + static_cast<unsigned>(__hge(x, y));
  const __half2 pair = __hfma2(__halves2half2(x, y), __halves2half2(y, x), __float2half2_rn(0.5f));
  put(__low2half(pair)), put(__high2half(pair));
  to[n++] = static_cast<unsigned>(__half2short_rn(y));
}

static __global__ void brain(const float* a, const float* b, unsigned* out) {
  const int i = static_cast<int>(threadIdx.x);
  const __nv_bfloat16 x = __float2bfloat16(a[i]), y = __float2bfloat16(b[i]);
  unsigned* to = out + i * 8;
  int n = 0;
  const auto put = [&](__nv_bfloat16 value) { to[n++] = __hisnan(value) ? 0x7fffu : static_cast<unsigned>(__bfloat16_as_ushort(value)); };
  put(x), put(__hadd(x, y)), put(__hsub(x, y)), put(__hmul(x, y)), put(__hadd(__hmul(x, y), x)), put(__hneg(x));
  put(__float2bfloat16_rz(a[i]));
  to[n++] = __float_as_uint(__bfloat162float(y));
}

static __global__ void sums(__half2* pair, __half* one, float2* reals) {
  atomicAdd(pair, __floats2half2_rn(1.0f, 0.5f));
  atomicAdd(one, __float2half(0.25f));
  __shared__ __half2 box;
  if (threadIdx.x == 0) box = __float2half2_rn(0.0f);
  __syncthreads();
  atomicAdd(&box, __floats2half2_rn(2.0f, 1.0f));
  __syncthreads();
  if (threadIdx.x == 0) *reals = __half22float2(box);
}

PROGRAM("halves", "16-bit floats of both kinds: arithmetic, conversion, comparison, pairs, atomics") {
  const std::vector<float> a = {1.0f, -2.5f, 0.1f, 65504.0f, 6e-8f, 1e-5f, 1e30f, -0.0f, 3.14159f, 1000.5f};
  const std::vector<float> b = {3.0f, 7.1f, -0.3f, 2.0f, 0.5f, 2.0f, 1.0f, 1.0f, 2.71828f, -1000.5f};
  const auto n = static_cast<unsigned>(a.size());
  conformance::Device<float> deviceA(a), deviceB(b);
  conformance::Device<unsigned> halves(a.size() * 16), brains(a.size() * 8);
  halfs<<<1, n>>>(deviceA, deviceB, halves);
  brain<<<1, n>>>(deviceA, deviceB, brains);
  const std::vector<unsigned> h = halves.take(), f = brains.take();
  for (size_t i = 0; i < a.size(); ++i) {
    conformance::list("half", std::vector<unsigned>(h.begin() + static_cast<long>(i * 16), h.begin() + static_cast<long>(i * 16 + 16)));
    conformance::list("bfloat16", std::vector<unsigned>(f.begin() + static_cast<long>(i * 8), f.begin() + static_cast<long>(i * 8 + 8)));
  }
  conformance::Device<unsigned> pair(1), one(1);
  conformance::Device<float2> reals(1);
  pair.clear(), one.clear();
  sums<<<1, 64>>>(reinterpret_cast<__half2*>(pair.get()), reinterpret_cast<__half*>(one.get()), reals);
  const float2 seen = reals.take()[0];
  say("atomics: %x %x, %g %g", pair.take()[0], one.take()[0] & 0xffff, static_cast<double>(seen.x), static_cast<double>(seen.y));
}
