// SPDX-License-Identifier: Apache-2.0
// Functions of the mathematical library, as the compiler inlines or calls them.
// nvcc -arch=compute_75 -ptx -o math.ptx math.cu
#include <cuda_bf16.h>
#include <cuda_fp16.h>

extern "C" __global__ void math_float(int which, const float* a, const float* b, float* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  float x = a[i], y = b[i], r;
  switch (which) {
    case 0: r = expf(x); break;
    case 1: r = logf(x); break;
    case 2: r = sinf(x); break;
    case 3: r = cosf(x); break;
    case 4: r = tanf(x); break;
    case 5: r = powf(x, y); break;
    case 6: r = sqrtf(x); break;
    case 7: r = rsqrtf(x); break;
    case 8: r = erff(x); break;
    case 9: r = tanhf(x); break;
    case 10: r = atan2f(x, y); break;
    case 11: r = fmodf(x, y); break;
    case 12: r = log2f(x); break;
    case 13: r = x / y; break;
    case 14: r = __expf(x); break;
    default: r = __fdividef(x, y);
  }
  out[i] = r;
}

extern "C" __global__ void math_double(int which, const double* a, const double* b, double* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  double x = a[i], y = b[i], r;
  switch (which) {
    case 0: r = exp(x); break;
    case 1: r = log(x); break;
    case 2: r = sin(x); break;
    case 3: r = pow(x, y); break;
    case 4: r = sqrt(x); break;
    case 5: r = x / y; break;
    case 6: r = fmod(x, y); break;
    default: r = rsqrt(x);
  }
  out[i] = r;
}

extern "C" __global__ void half_math(const float* a, const float* b, float* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  __half2 x = __floats2half2_rn(a[i], b[i]);
  __half2 y = __hfma2(x, __float2half2_rn(2.0f), __float2half2_rn(1.0f));
  out[3 * i] = __low2float(y);
  out[3 * i + 1] = __half2float(__hadd(__low2half(y), __high2half(x)));
  out[3 * i + 2] = __bfloat162float(__float2bfloat16(a[i]));
}

extern "C" __global__ void integer_mix(const long long* a, const long long* b, long long* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  long long x = a[i], y = b[i], *o = out + 12 * i;
  unsigned long long ux = x, uy = y;
  o[0] = x / y;
  o[1] = x % y;
  o[2] = ux / uy;
  o[3] = ux % uy;
  o[4] = __mul64hi(x, y);
  o[5] = __umul64hi(ux, uy);
  o[6] = (int)x / (int)(y | 1) + (short)x * (signed char)y;
  o[7] = (unsigned)x % (unsigned)(y | 1) + ((unsigned short)x >> 3) + ((unsigned char)y << 5);
  o[8] = __popcll(x) + __clzll(x) + __ffsll(y) + __brev((unsigned)x);
  o[9] = __funnelshift_l((unsigned)x, (unsigned)y, 9) + __byte_perm((unsigned)x, (unsigned)y, 0x5140);
  o[10] = x >> (y & 63) ^ x << (y & 63);
  o[11] = (long long)((__int128)x * y >> 32);
}
