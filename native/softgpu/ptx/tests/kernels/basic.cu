// SPDX-License-Identifier: Apache-2.0
// Ordinary kernels as the examples have them.
// nvcc -arch=compute_75 -ptx -o basic.ptx basic.cu

extern "C" __global__ void vector_add(const float* a, const float* b, float* c, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) c[i] = a[i] + b[i];
}

template <int kTile>
__device__ void tiledProduct(const float* a, const float* b, float* c, int n) {
  __shared__ float tileA[kTile][kTile];
  __shared__ float tileB[kTile][kTile];
  int row = blockIdx.y * kTile + threadIdx.y;
  int column = blockIdx.x * kTile + threadIdx.x;
  float sum = 0;
  for (int t = 0; t < n; t += kTile) {
    tileA[threadIdx.y][threadIdx.x] = row < n && t + threadIdx.x < n ? a[row * n + t + threadIdx.x] : 0;
    tileB[threadIdx.y][threadIdx.x] = column < n && t + threadIdx.y < n ? b[(t + threadIdx.y) * n + column] : 0;
    __syncthreads();
    for (int k = 0; k < kTile; ++k) sum += tileA[threadIdx.y][k] * tileB[k][threadIdx.x];
    __syncthreads();
  }
  if (row < n && column < n) c[row * n + column] = sum;
}
extern "C" __global__ void matrix_product(const float* a, const float* b, float* c, int n) { tiledProduct<16>(a, b, c, n); }
extern "C" __global__ void matrix_product32(const float* a, const float* b, float* c, int n) { tiledProduct<32>(a, b, c, n); }

extern "C" __global__ void reduce_sum(const int* in, int* out, int n) {
  __shared__ int total;
  if (threadIdx.x == 0) total = 0;
  __syncthreads();
  int sum = 0;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) sum += in[i];
  for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_down_sync(0xffffffff, sum, offset);
  if (threadIdx.x % 32 == 0) atomicAdd(&total, sum);
  __syncthreads();
  if (threadIdx.x == 0) atomicAdd(out, total);
}

extern "C" __global__ void block_scan(const int* in, int* out, int n) {
  extern __shared__ int buffer[];
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  buffer[threadIdx.x] = i < n ? in[i] : 0;
  __syncthreads();
  for (unsigned offset = 1; offset < blockDim.x; offset *= 2) {
    int value = threadIdx.x >= offset ? buffer[threadIdx.x - offset] : 0;
    __syncthreads();
    buffer[threadIdx.x] += value;
    __syncthreads();
  }
  if (i < n) out[i] = buffer[threadIdx.x];
}

extern "C" __global__ void histogram(const unsigned char* data, unsigned n, unsigned* bins) {
  __shared__ unsigned local[256];
  for (unsigned b = threadIdx.x; b < 256; b += blockDim.x) local[b] = 0;
  __syncthreads();
  for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) atomicAdd(&local[data[i]], 1u);
  __syncthreads();
  for (unsigned b = threadIdx.x; b < 256; b += blockDim.x) {
    if (local[b]) atomicAdd(&bins[b], local[b]);
  }
}

template <typename T>
__device__ void mandelbrotOf(int* out, int width, int height, T x0, T y0, T step, int limit) {
  int px = blockIdx.x * blockDim.x + threadIdx.x;
  int py = blockIdx.y * blockDim.y + threadIdx.y;
  if (px >= width || py >= height) return;
  T cx = x0 + px * step, cy = y0 + py * step, x = 0, y = 0;
  int n = 0;
  while (n < limit && x * x + y * y <= T(4)) {
    T next = x * x - y * y + cx;
    y = 2 * x * y + cy;
    x = next;
    ++n;
  }
  out[py * width + px] = n;
}
extern "C" __global__ void mandelbrot_float(int* out, int width, int height, float x0, float y0, float step, int limit) {
  mandelbrotOf<float>(out, width, height, x0, y0, step, limit);
}
extern "C" __global__ void mandelbrot_double(int* out, int width, int height, double x0, double y0, double step, int limit) {
  mandelbrotOf<double>(out, width, height, x0, y0, step, limit);
}

extern "C" __global__ void transpose(const float4* in, float* out, int rows, int columns4) {
  int c = blockIdx.x * blockDim.x + threadIdx.x;
  int r = blockIdx.y * blockDim.y + threadIdx.y;
  if (r >= rows || c >= columns4) return;
  float4 v = in[r * columns4 + c];
  out[(4 * c + 0) * rows + r] = v.x;
  out[(4 * c + 1) * rows + r] = v.y;
  out[(4 * c + 2) * rows + r] = v.z;
  out[(4 * c + 3) * rows + r] = v.w;
}

__constant__ int kTable[8] = {3, 1, 4, 1, 5, 9, 2, 6};
__device__ int deviceCounter = 40;
__device__ int* deviceCounterPointer = &deviceCounter;
extern "C" __global__ void variables(int* out) {
  int i = threadIdx.x;
  out[i] = kTable[(i * 5) & 7] * 100 + *deviceCounterPointer;
  if (i == 0) atomicAdd(deviceCounterPointer, 2);
}

// Addresses of every space through generic pointers.
__device__ __noinline__ int sumThrough(const int* p, int n) {
  int sum = 0;
  for (int i = 0; i < n; ++i) sum += p[i];
  return sum;
}
extern "C" __global__ void generic_pointers(const int* global, int* out) {
  __shared__ int shared[32];
  int local[8];
  int i = threadIdx.x;
  shared[i] = i * i;
  for (int k = 0; k < 8; ++k) local[(k + i) & 7] = i + k;
  __syncthreads();
  const int* p = i % 3 == 0 ? global : i % 3 == 1 ? shared : local;
  out[i] = sumThrough(p, 8);
}

struct Pair {
  double a;
  short b[3];
};
__device__ __noinline__ Pair swapPair(Pair p, int k) {
  Pair r;
  r.a = p.b[k] + 0.5;
  r.b[0] = p.b[2];
  r.b[1] = (short)p.a;
  r.b[2] = p.b[0];
  return r;
}
__device__ __noinline__ int fibonacci(int n) { return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2); }
__device__ int twice(int x) { return 2 * x; }
__device__ int square(int x) { return x * x; }
__device__ int (*operations[2])(int) = {twice, square};
extern "C" __global__ void calls(Pair p, int* out) {
  int i = threadIdx.x;
  p.a += i;
  Pair r = swapPair(p, i % 3);
  out[4 * i + 0] = (int)(r.a * 2) + r.b[0] + r.b[1] + r.b[2];
  out[4 * i + 1] = i & 1 ? fibonacci(i % 11) : -1;
  out[4 * i + 2] = operations[(i >> 1) & 1](i);
  out[4 * i + 3] = i;
}
