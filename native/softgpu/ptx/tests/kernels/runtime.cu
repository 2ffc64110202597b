// SPDX-License-Identifier: Apache-2.0
// Functions of the device's runtime.
// nvcc -arch=compute_75 -ptx -o runtime.ptx runtime.cu
#include <cassert>
#include <cstdio>

extern "C" __global__ void print(const char* name, int* counts) {
  int i = threadIdx.x;
  if (i % 3 == 0) {
    counts[i] = printf("%s %d of %u: %5.2f|%-6lld|%#x|%c|%%|%*d|%.3s|%e\n", name, i, blockDim.x, i * 0.5, (long long)i << 33, i, 'a' + i, 4, i, "abcdef", 1.0 / 3);
  } else if (i == 1) {
    counts[i] = printf("plain\n");
  }
}

extern "C" __global__ void check(int limit) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  assert(i < limit && "too many");
}

struct Shape {
  int n;
  __device__ Shape(int n) : n(n) {}
  __device__ virtual int area() const = 0;
  __device__ virtual ~Shape() {}
};
struct Square : Shape {
  __device__ Square(int n) : Shape(n) {}
  __device__ int area() const override { return n * n; }
};
struct Row : Shape {
  int m;
  __device__ Row(int n, int m) : Shape(n), m(m) {}
  __device__ int area() const override { return n * m; }
};
extern "C" __global__ void objects(int* out) {
  int i = threadIdx.x;
  Shape* shape;
  if (i & 1) shape = new Square(i);
  else shape = new Row(i, 100);
  out[i] = shape ? shape->area() : -1;
  delete shape;
}
extern "C" __global__ void bad_free(char* p) { free(p + 1); }
