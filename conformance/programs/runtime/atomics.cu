// SPDX-License-Identifier: Apache-2.0
#include "conformance.h"

template <class T>
static __global__ void common(T* out) {
  const T i = static_cast<T>(blockIdx.x * blockDim.x + threadIdx.x);
  atomicAdd(&out[0], i);
  atomicExch(&out[1], T{42});
  // A loop of compare-and-swap must lose nothing.
  T seen = out[2];
  for (;;) {
    const T old = atomicCAS(&out[2], seen, static_cast<T>(seen + 3));
    if (old == seen) break;
    seen = old;
  }
  atomicMin(&out[3], i);
  atomicMax(&out[4], i);
  atomicAnd(&out[5], static_cast<T>(~(T{1} << (i % 31))));
  atomicOr(&out[6], static_cast<T>(T{1} << (i % 29)));
  atomicXor(&out[7], static_cast<T>(i * 7));
}

static __global__ void wrapping(unsigned* out) {
  atomicInc(&out[0], 99);
  atomicDec(&out[1], 99);
  atomicSub(&out[2], 5);
}

static __global__ void floating(float* f, double* d, unsigned short* s) {
  atomicAdd(f, 0.5f);
  atomicAdd(d, 0.25);
  unsigned short seen = *s;
  for (;;) {
    const unsigned short old = atomicCAS(s, seen, static_cast<unsigned short>(seen + 1));
    if (old == seen) break;
    seen = old;
  }
}

static __global__ void scoped(unsigned* block, unsigned* system, unsigned* total) {
  __shared__ unsigned count;
  if (threadIdx.x == 0) count = 0;
  __syncthreads();
  atomicAdd_block(&count, 1u);
  atomicAdd_system(system, 2u);
  atomicMax_block(&block[blockIdx.x], threadIdx.x);
  __syncthreads();
  if (threadIdx.x == 0) atomicAdd(total, count);
}

template <class T>
static void see(const char* name) {
  conformance::Device<T> out(std::vector<T>{0, 0, 0, static_cast<T>(1 << 30), 0, static_cast<T>(-1), 0, 0});
  common<T><<<20, 100>>>(out);
  conformance::list(name, out.take());
}

PROGRAM("atomics", "every atomic operation on global and shared memory, of every type and scope") {
  see<int>("int");
  see<unsigned>("unsigned");
  see<unsigned long long>("unsigned long long");
  conformance::Device<unsigned> wrap(std::vector<unsigned>{0, 0, 100000});
  wrapping<<<13, 77>>>(wrap);
  conformance::list("inc, dec, sub", wrap.take());
  conformance::Device<float> f(1);
  conformance::Device<double> d(1);
  conformance::Device<unsigned short> s(1);
  f.clear(), d.clear(), s.clear();
  floating<<<10, 64>>>(f, d, s);
  say("float %g, double %g, 16-bit CAS %u", static_cast<double>(f.take()[0]), d.take()[0], s.take()[0]);
  conformance::Device<unsigned> block(8), system(1), total(1);
  block.clear(), system.clear(), total.clear();
  scoped<<<8, 96>>>(block, system, total);
  conformance::list("block maxima", block.take());
  say("system %u, total %u", system.take()[0], total.take()[0]);
}
