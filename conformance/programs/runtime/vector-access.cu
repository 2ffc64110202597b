// SPDX-License-Identifier: Apache-2.0
#include "conformance.h"

static __global__ void vectors(const int4* in, int4* out, double2* doubles, short4* shorts, char3* chars, longlong2* longs) {
  const unsigned i = threadIdx.x;
  const int4 v = in[i];
  out[i] = make_int4(v.w, v.z + 1, v.y * 2, v.x - 3);
  doubles[i] = make_double2(v.x * 0.5, v.y * 0.25);
  shorts[i] = make_short4(static_cast<short>(v.x), static_cast<short>(v.y), static_cast<short>(v.z), static_cast<short>(v.w));
  chars[i] = make_char3(static_cast<char>(v.x), static_cast<char>(v.y), static_cast<char>(v.z));
  longs[i] = make_longlong2(1LL * v.x * v.y * 1000000, -v.z);
}

static __global__ void cached(const float* in, float* out) {
  const unsigned i = threadIdx.x;
  out[i] = __ldg(in + i) + __ldcg(in + i) * 2 + __ldcs(in + i) * 4 + __ldcv(in + i) * 8;
  __stcg(out + 64 + i, in[i]);
  __stwt(out + 128 + i, -in[i]);
}

static __global__ void generic(int* global, int* out, int which) {
  __shared__ int shared[4];
  int local[4] = {100, 200, 300, 400};
  if (threadIdx.x < 4) shared[threadIdx.x] = static_cast<int>(threadIdx.x) + 10;
  __syncthreads();
  if (threadIdx.x != 0) return;
  int* pointer = which == 0 ? global : which == 1 ? shared : local;
  pointer[1] += 5;
  out[which * 4] = pointer[1];
  out[which * 4 + 1] = static_cast<int>(__isGlobal(pointer)) * 100 + static_cast<int>(__isShared(pointer)) * 10 + static_cast<int>(__isLocal(pointer));
  out[which * 4 + 2] = pointer[3];
  out[which * 4 + 3] = static_cast<int>(__isConstant(pointer));
}

PROGRAM("vector-access", "loads and stores of every width, cache operators, generic pointers") {
  std::vector<int4> in(32);
  for (int i = 0; i < 32; ++i) in[static_cast<size_t>(i)] = make_int4(i, i * i, -i, 7 * i);
  conformance::Device<int4> deviceIn(in), out(32);
  conformance::Device<double2> doubles(32);
  conformance::Device<short4> shorts(32);
  conformance::Device<char3> chars(32);
  conformance::Device<longlong2> longs(32);
  vectors<<<1, 32>>>(deviceIn, out, doubles, shorts, chars, longs);
  const auto digestOf = [](const auto& values) {
    return static_cast<unsigned long long>(conformance::digest(values.data(), values.size() * sizeof values[0]));
  };
  say("vectors: %016llx %016llx %016llx %016llx %016llx", digestOf(out.take()), digestOf(doubles.take()),
      digestOf(shorts.take()), digestOf(chars.take()), digestOf(longs.take()));
  std::vector<float> values(64);
  for (size_t i = 0; i < 64; ++i) values[i] = static_cast<float>(i) * 0.5f;
  conformance::Device<float> reals(values), results(192);
  cached<<<1, 64>>>(reals, results);
  say("cached: %016llx", digestOf(results.take()));
  conformance::Device<int> global(std::vector<int>{1, 2, 3, 4}), seen(12);
  for (int which = 0; which < 3; ++which) generic<<<1, 32>>>(global, seen, which);
  conformance::list("generic", seen.take());
}
