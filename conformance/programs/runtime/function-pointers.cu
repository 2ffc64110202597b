// SPDX-License-Identifier: Apache-2.0
#include "conformance.h"

using Operation = int (*)(int, int);

static __device__ int plus(int a, int b) { return a + b; }
static __device__ int times(int a, int b) { return a * b; }
static __device__ int minus(int a, int b) { return a - b; }
static __device__ Operation table[] = {plus, times, minus};

struct Shape {
  __device__ virtual ~Shape() {}
  __device__ virtual int area() const = 0;
};
struct Square : Shape {
  int side;
  __device__ explicit Square(int side_) : side(side_) {}
  __device__ int area() const override { return side * side; }
};
struct Rectangle : Square {
  int other;
  __device__ Rectangle(int a, int b) : Square(a), other(b) {}
  __device__ int area() const override { return side * other; }
};

static __global__ void indirect(int* out) {
  const int i = static_cast<int>(threadIdx.x);
  out[i] = table[i % 3](i, 10);
}

static __global__ void given(Operation operation, int* out) { *out = operation(6, 7); }

static __global__ void take(Operation* out) { *out = times; }

static __global__ void dynamic(int* out) {
  const int i = static_cast<int>(threadIdx.x);
  Shape* shape = i % 2 == 0 ? new Square(i) : static_cast<Shape*>(new Rectangle(i, 3));
  out[i] = shape->area();
  delete shape;
}

template <class F>
static __global__ void apply(F function, int* out) {
  out[threadIdx.x] = function(static_cast<int>(threadIdx.x));
}

struct Scale {
  int factor;
  __device__ int operator()(int x) const { return x * factor; }
};

PROGRAM("function-pointers", "calls by pointer, virtual functions, function objects, new and delete") {
  conformance::Device<int> out(32);
  indirect<<<1, 32>>>(out);
  conformance::list("table", out.take());
  conformance::Device<Operation> taken(1);
  take<<<1, 1>>>(taken);
  given<<<1, 1>>>(taken.take()[0], out);
  say("a pointer that went to the host and back: %d", out.take()[0]);
  dynamic<<<1, 32>>>(out);
  conformance::list("virtual", out.take());
  apply<<<1, 8>>>(Scale{-3}, out);
  const std::vector<int> scaled = out.take();
  conformance::list("function object", std::vector<int>(scaled.begin(), scaled.begin() + 8));
}
