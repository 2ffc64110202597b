// SPDX-License-Identifier: Apache-2.0
// Control flow on which lanes disagree, and what lanes of a warp do together.
// nvcc -arch=compute_75 -ptx -o divergence.ptx divergence.cu

extern "C" __global__ void nested(const int* in, int* out) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  int v = in[i], r = 0;
  if (v & 1) {
    if (v & 2) {
      if (v & 4) r = 10; else r = 20;
      r += v;
    } else {
      for (int k = 0; k < (v >> 3 & 7); ++k) {
        if (k == 5) break;
        if (k == 2) continue;
        r += k;
      }
    }
    r *= 3;
  } else if (v & 8) {
    if (v & 16) { out[i] = -1; return; }
    int k = v & 15;
    while (k != 1 && r < 200) { k = k & 1 ? 3 * k + 1 : k / 2; ++r; if (k == 0) break; }
  } else {
    switch (v >> 1 & 7) {
      case 0: r = 100; break;
      case 1: r = 200;
      case 2: r += 7; break;
      case 3: r = v * v; break;
      case 4: r = -v; break;
      case 5: r = v ^ 0x55; break;
      default: r = 1000;
    }
  }
  out[i] = r;
}

extern "C" __global__ void trip_counts(const int* trips, long long* out) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  long long sum = 0;
  for (int a = 0; a < trips[i]; ++a) {
    for (int b = 0; b < a % 5; ++b) {
      if ((a + b + i) % 7 == 0) goto next;
      sum += a * b + 1;
    }
    sum += i;
  next:;
  }
  out[i] = sum;
}

// All lanes reconverge for the vote although they took different paths.
extern "C" __global__ void votes(const int* in, unsigned* out) {
  int i = threadIdx.x;
  int v = in[i];
  if (v & 1) v += 3; else v -= 5;
  out[4 * i + 0] = __ballot_sync(0xffffffff, v > 10);
  out[4 * i + 1] = __any_sync(0xffffffff, v == 12);
  out[4 * i + 2] = __all_sync(0xffffffff, v > -100);
  if (i % 32 < 20) out[4 * i + 3] = __activemask(); else out[4 * i + 3] = __activemask() | 1;
}

extern "C" __global__ void shuffles(const int* in, int* out) {
  int i = threadIdx.x, v = in[i], *o = out + 8 * i;
  o[0] = __shfl_sync(0xffffffff, v, (i * 7) & 31);
  o[1] = __shfl_up_sync(0xffffffff, v, 3);
  o[2] = __shfl_down_sync(0xffffffff, v, 5, 16);
  o[3] = __shfl_xor_sync(0xffffffff, v, 9);
  o[4] = __shfl_sync(0xffffffff, v, 2, 8);
  o[5] = __shfl_up_sync(0xffffffff, v, 1, 4);
  double d = __shfl_xor_sync(0xffffffff, v * 1.5, 1);
  o[6] = (int)(d * 2);
  // Each quarter of the warp with a mask of its own.
  unsigned mine = 0xffu << (i & 24);
  o[7] = __shfl_sync(mine, v, 3, 8);
}

// Both sides of a branch use the same mask: lanes meet in the collective although they are at different places.
extern "C" __global__ void split_shuffle(int* out) {
  int i = threadIdx.x, r;
  if (i & 1) {
    r = __shfl_sync(0xffffffff, i * 10, (i + 1) & 31);
  } else {
    r = __shfl_sync(0xffffffff, i * 100, (i + 1) & 31) + 1;
  }
  __syncwarp();
  out[i] = r;
}

// Lanes that have ended do not hold up the others.
extern "C" __global__ void early_exit(int* out) {
  int i = threadIdx.x;
  if (i % 4 == 3) return;
  unsigned b = __ballot_sync(0xffffffff, 1);
  __syncthreads();
  out[i] = __popc(b);
}

extern "C" __global__ void matches(const int* in, unsigned* out) {
  int i = threadIdx.x, same;
  out[3 * i] = __match_any_sync(0xffffffff, in[i]);
  out[3 * i + 1] = __match_all_sync(0xffffffff, in[i] / 1000, &same);
  out[3 * i + 2] = same;
}

extern "C" __global__ void barriers(int* out) {
  __shared__ int buffer[2][256];
  int i = threadIdx.x;
  buffer[0][i] = i;
  __syncthreads();
  int from = 0;
  for (int k = 1; k < 256; k *= 2) {
    buffer[1 - from][i] = buffer[from][i] + buffer[from][i ^ k];
    from = 1 - from;
    __syncthreads();
  }
  out[i] = buffer[from][i];
  out[256 + i] = __syncthreads_count(i % 3 == 0);
  out[512 + i] = __syncthreads_and(i < 256) * 2 + __syncthreads_or(i == 77);
}

// A producer half and a consumer half of the block with barriers of their own.
extern "C" __global__ void named_barriers(int* out) {
  __shared__ int slot[32];
  int lane = threadIdx.x & 31;
  for (int round = 0; round < 5; ++round) {
    if (threadIdx.x < 32) {
      slot[lane] = round * 100 + lane;
      asm volatile("bar.arrive 1, 64;" ::: "memory");
      asm volatile("bar.sync 2, 64;" ::: "memory");
    } else {
      asm volatile("bar.sync 1, 64;" ::: "memory");
      out[round * 32 + lane] = slot[31 - lane];
      asm volatile("bar.arrive 2, 64;" ::: "memory");
    }
  }
}

// A lane waits for another lane of its warp: both must make progress.
extern "C" __global__ void spin_lock(int* lock, int* counter) {
  for (bool done = false; !done;) {
    if (atomicCAS(lock, 0, 1) == 0) {
      *(volatile int*)counter = *(volatile int*)counter + 1;
      __threadfence();
      atomicExch(lock, 0);
      done = true;
    }
  }
}
extern "C" __global__ void naive_spin_lock(int* lock, int* counter) {
  while (atomicCAS(lock, 0, 1) != 0) {}
  *(volatile int*)counter = *(volatile int*)counter + 1;
  __threadfence();
  atomicExch(lock, 0);
}
extern "C" __global__ void hand_over(volatile int* turn, int* out) {
  int i = threadIdx.x;
  while (*turn != i) {}
  out[i] = i + 1;
  __threadfence();
  *turn = i + 1;
}
// All blocks must be resident at the same time.
extern "C" __global__ void grid_barrier(unsigned* arrived, int* out) {
  __syncthreads();
  if (threadIdx.x == 0) {
    atomicAdd(arrived, 1);
    while (atomicAdd(arrived, 0) < gridDim.x) {}
  }
  __syncthreads();
  if (threadIdx.x == 0) out[blockIdx.x] = *(volatile unsigned*)arrived;
}
extern "C" __global__ void endless(int* out) {
  while (true) atomicAdd(out, 1);
}
extern "C" __global__ void endless_plain(int* out, int step) {
  int v = *out;
  while (v != 7) v += step;
  *out = v;
}
