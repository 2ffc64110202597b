// SPDX-License-Identifier: Apache-2.0
#include "conformance.h"

static __global__ void formats() {
  printf("integers %d %i %u %x %X %o %lld %llu %lu %hd %c %%\n", -42, 43, 4000000000u, 0xbeef, 0xbeef, 8, -5000000000LL,
         18000000000000000000ULL, 77ul, static_cast<short>(-3), 'z');
  printf("floats %f %.3f %e %g %10.2f|%-10.2f|%+g\n", 3.25, 2.0 / 3, 12345.678, 1e-5, 2.5, 2.5, 1.5);
  printf("strings [%s] [%8s] [%-8s] [%.2s]\n", "text", "right", "left", "cut");
  printf("widths [%5d] [%-5d] [%05d] [%+d] [%#x]\n", 42, 42, 42, 42, 255);
  printf("returns %d\n", printf("two %d %d\n", 1, 2));
  printf("no arguments\n");
}

static __global__ void many() {
  for (int i = 0; i < 3; ++i) {
    if (threadIdx.x == 0) printf("line %d of block %d\n", i, blockIdx.x);
    __syncthreads();
  }
}

PROGRAM("printf", "printf in kernels: formats, order with the host's own output, flushing") {
  say("before");
  formats<<<1, 1>>>();
  CHECK(cudaDeviceSynchronize());
  say("between");
  for (int i = 0; i < 3; ++i) {
    many<<<1, 32>>>();
    CHECK(cudaDeviceSynchronize());
  }
  cudaStream_t stream;
  CHECK(cudaStreamCreate(&stream));
  many<<<1, 32, 0, stream>>>();
  CHECK(cudaStreamSynchronize(stream));
  say("after the stream");
  CHECK(cudaStreamDestroy(stream));
  size_t bytes = 0;
  CHECK(cudaDeviceGetLimit(&bytes, cudaLimitPrintfFifoSize));
  say("buffer: %zu", bytes);
}
