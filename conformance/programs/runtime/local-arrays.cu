// SPDX-License-Identifier: Apache-2.0
#include "conformance.h"

struct Record {
  char letter;
  double value;
  short numbers[3];
};

static __device__ __noinline__ void fill(Record* records, int n, int seed) {
  for (int i = 0; i < n; ++i) {
    records[i].letter = static_cast<char>('a' + (i + seed) % 26);
    records[i].value = i * 0.5 + seed;
    for (int j = 0; j < 3; ++j) records[i].numbers[j] = static_cast<short>(i * 10 + j - seed);
  }
}

static __device__ __noinline__ Record pick(Record from, int add) {
  from.value += add;
  return from;
}

static __global__ void run(double* out, const int* index) {
  const int i = static_cast<int>(threadIdx.x);
  Record records[20];
  fill(records, 20, i);
  int histogram[64] = {};
  for (int j = 0; j < 200; ++j) histogram[(j * index[i] + i) & 63] += j;
  const Record record = pick(records[index[i] % 20], 1000);
  out[i * 3] = record.value + record.letter + record.numbers[2];
  out[i * 3 + 1] = histogram[index[i] & 63];
  unsigned char bytes[16];
  for (int j = 0; j < 16; ++j) bytes[j] = static_cast<unsigned char>(j * index[i]);
  unsigned long long word;
  memcpy(&word, bytes + 4, sizeof word);
  out[i * 3 + 2] = static_cast<double>(word >> 12);
}

static __global__ void big(int* out, int step) {
  int box[2000];
  for (int j = 0; j < 2000; ++j) box[j] = j;
  int at = static_cast<int>(threadIdx.x);
  for (int j = 0; j < 100; ++j) {
    box[at] += j;
    at = (at + step) % 2000;
  }
  out[threadIdx.x] = box[at] + box[(at * 7) % 2000];
}

PROGRAM("local-arrays", "arrays and structures in local memory, by pointer and by value") {
  std::vector<int> index(64);
  for (size_t i = 0; i < index.size(); ++i) index[i] = static_cast<int>(i * 13 + 5);
  conformance::Device<int> deviceIndex(index), out(64);
  conformance::Device<double> results(192);
  run<<<1, 64>>>(results, deviceIndex);
  conformance::list("results", results.take());
  big<<<1, 64>>>(out, 37);
  conformance::list("8000 bytes", out.take());
}
