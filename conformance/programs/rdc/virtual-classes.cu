// SPDX-License-Identifier: Apache-2.0
#include "conformance.h"

#include "rdc/parts.h"

struct Base {
  __device__ virtual ~Base() {}
  __device__ virtual int apply(int x) const = 0;
};
struct Doubler : Base {
  __device__ int apply(int x) const override { return doubled(x); }
};
struct Weigher : Base {
  int weight;
  __device__ explicit Weigher(int weight_) : weight(weight_) {}
  __device__ int apply(int x) const override { return weighted(x, weight); }
};

static __global__ void make(Base** out) {
  out[0] = new Doubler;
  out[1] = new Weigher(3);
}
static __global__ void use(Base** objects, int* out) { out[threadIdx.x] = objects[threadIdx.x % 2]->apply(static_cast<int>(threadIdx.x)); }
static __global__ void drop(Base** objects) {
  delete objects[0];
  delete objects[1];
}

PROGRAM("virtual-classes", "virtual functions that call into another file, objects that outlive a kernel") {
  conformance::Device<Base*> objects(2);
  conformance::Device<int> out(8);
  make<<<1, 1>>>(objects);
  use<<<1, 8>>>(objects, out);
  conformance::list("results", out.take());
  drop<<<1, 1>>>(objects);
  SEE(cudaDeviceSynchronize());
}
