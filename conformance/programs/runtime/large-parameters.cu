// SPDX-License-Identifier: Apache-2.0
#include "conformance.h"

template <int kWords>
struct Block {
  unsigned words[kWords];
};

template <int kWords>
static __global__ void sum(const __grid_constant__ Block<kWords> block, unsigned* out) {
  unsigned total = 0;
  for (int i = static_cast<int>(threadIdx.x); i < kWords; i += static_cast<int>(blockDim.x)) total += block.words[i] * static_cast<unsigned>(i + 1);
  atomicAdd(out, total);
}

template <int kWords>
static void see() {
  static Block<kWords> block;
  unsigned expected = 0;
  for (int i = 0; i < kWords; ++i) {
    block.words[i] = static_cast<unsigned>(i) * 2654435761u;
    expected += block.words[i] * static_cast<unsigned>(i + 1);
  }
  conformance::Device<unsigned> out(1);
  out.clear();
  sum<kWords><<<2, 64>>>(block, out);
  say("%d bytes: %s, %s", kWords * 4, cudaGetErrorName(cudaGetLastError()), out.take()[0] == 2 * expected ? "right" : "wrong");
}

PROGRAM("large-parameters", "kernels with parameters of up to 32764 bytes") {
  see<10>();
  see<1000>();
  see<1022>();
  see<2000>();
  see<8189>();
}
