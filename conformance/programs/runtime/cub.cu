// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cub/cub.cuh>
#include <numeric>

#include "conformance.h"

/// Calls a primitive twice: to get the size of its temporary storage, and with that storage.
template <typename Call>
static void withMemory(Call call) {
  size_t bytes = 0;
  CHECK(call(nullptr, bytes));
  const conformance::Device<char> memory(bytes + 1);
  CHECK(call(static_cast<char*>(memory), bytes));
}

static std::vector<int> numbers(int count, unsigned below) {
  std::vector<int> made(static_cast<size_t>(count));
  uint32_t state = 12345;
  for (int& each : made) {
    state = state * 1664525 + 1013904223;
    each = static_cast<int>((state >> 8) % below);
  }
  return made;
}

static void scan(const std::vector<int>& values) {
  const int count = static_cast<int>(values.size());
  conformance::Device<int> in(values), out(values.size());
  withMemory([&](void* memory, size_t& bytes) {
    return cub::DeviceScan::InclusiveSum(memory, bytes, static_cast<int*>(in), static_cast<int*>(out), count);
  });
  std::vector<int> wanted(values.size());
  std::partial_sum(values.begin(), values.end(), wanted.begin());
  conformance::say("sums of %d: %s", count, out.take() == wanted ? "right" : "wrong");
}

/// Blocks pass their counts to each other together with a flag, in a single access of 16 bytes.
static void runs(const std::vector<int>& values) {
  const int count = static_cast<int>(values.size());
  conformance::Device<int> in(values), first(values.size()), lengths(values.size()), found(1);
  std::vector<int> wanted;
  for (size_t i = 0; i < values.size(); ++i) {
    if (i > 0 && values[i] == values[i - 1])
      ++wanted.back();
    else
      wanted.push_back(1);
  }
  int right = 0;
  const int times = 20;
  for (int again = 0; again < times; ++again) {
    lengths.clear();
    withMemory([&](void* memory, size_t& bytes) {
      return cub::DeviceRunLengthEncode::Encode(memory, bytes, static_cast<int*>(in), static_cast<int*>(first),
                                                static_cast<int*>(lengths), static_cast<int*>(found), count);
    });
    std::vector<int> got = lengths.take();
    got.resize(wanted.size());
    right += found.take()[0] == static_cast<int>(wanted.size()) && got == wanted;
  }
  conformance::say("runs of %d: %d of %d times right", count, right, times);
}

static void sort(const std::vector<int>& values) {
  const int count = static_cast<int>(values.size());
  std::vector<int> places(values.size());
  std::iota(places.begin(), places.end(), 0);
  conformance::Device<int> keys(values), sorted(values.size()), from(places), to(values.size());
  withMemory([&](void* memory, size_t& bytes) {
    return cub::DeviceRadixSort::SortPairs(memory, bytes, static_cast<int*>(keys), static_cast<int*>(sorted),
                                           static_cast<int*>(from), static_cast<int*>(to), count);
  });
  std::stable_sort(places.begin(), places.end(), [&](int a, int b) {
    return values[static_cast<size_t>(a)] < values[static_cast<size_t>(b)];
  });
  conformance::say("pairs of %d: %s", count, to.take() == places ? "right" : "wrong");
}

PROGRAM("cub", "scans, runs and sorts of CUB, whose blocks hand results on while they run") {
  for (const int count : {1, 1000, 60001}) {
    scan(numbers(count, 1000));
    runs(numbers(count, 3));
    sort(numbers(count, 100000));
  }
}
