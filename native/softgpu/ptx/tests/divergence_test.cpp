// SPDX-License-Identifier: Apache-2.0
// Divergent lanes, and operations that they execute together.
#include <bit>
#include <chrono>
#include <random>
#include <set>
#include <thread>

#include "softgpu/ptx/tests/fixture.h"

using namespace millpond::softgpu::ptx;
using namespace millpond::softgpu::ptx::testing;

namespace {

Device& divergenceDevice() {
  static Device made(readKernelFile("divergence.ptx"));
  return made;
}

std::vector<int> randomInts(size_t count, uint32_t seed, int limit) {
  std::mt19937 random(seed);
  std::vector<int> out(count);
  for (int& x : out) x = static_cast<int>(random() % static_cast<uint32_t>(limit));
  return out;
}

int nestedOnCpu(int v) {
  int r = 0;
  if (v & 1) {
    if (v & 2) {
      r = v & 4 ? 10 : 20;
      r += v;
    } else {
      for (int k = 0; k < (v >> 3 & 7); ++k) {
        if (k == 5) break;
        if (k == 2) continue;
        r += k;
      }
    }
    return r * 3;
  }
  if (v & 8) {
    if (v & 16) return -1;
    int k = v & 15;
    while (k != 1 && r < 200) {
      k = k & 1 ? 3 * k + 1 : k / 2;
      ++r;
      if (k == 0) break;
    }
    return r;
  }
  switch (v >> 1 & 7) {
    case 0: return 100;
    case 1: return 207;
    case 2: return 7;
    case 3: return v * v;
    default: return 1000;
  }
}

/// Cancels a grid from outside, once it has been seen to run.
LaunchResult runCancelled(const char* kernel, const Parameters& parameters, const int* mustMove) {
  std::atomic<bool> cancel{false};
  Launch launch;
  launch.grid = {3, 1, 1};
  launch.block = {64, 1, 1};
  launch.parameters = parameters.bytes();
  launch.memory = &divergenceDevice().memory;
  launch.cancel = &cancel;
  std::thread killer([&] {
    while (mustMove && __atomic_load_n(mustMove, __ATOMIC_ACQUIRE) == 0) std::this_thread::yield();
    cancel = true;
  });
  LaunchResult result = executor().run(*divergenceDevice().module().kernel(kernel), launch);
  killer.join();
  return result;
}

}  // namespace

TEST("nested branches, loops, breaks, early returns, switches") {
  std::vector<int> values = randomInts(777, 1, 4096);
  Array<int> in(divergenceDevice().memory, values);
  Array<int> out(divergenceDevice().memory, values.size(), -7);
  divergenceDevice().run("nested", {777 / 37, 1, 1}, {37, 1, 1}, Parameters(in, out));
  for (size_t i = 0; i < values.size(); ++i) CHECK_EQ(out[i], nestedOnCpu(values[i]));
}

TEST("loops with a different number of rounds in every lane") {
  std::vector<int> trips = randomInts(256, 2, 60);
  Array<int> in(divergenceDevice().memory, trips);
  Array<long long> out(divergenceDevice().memory, trips.size());
  divergenceDevice().run("trip_counts", {2, 1, 1}, {128, 1, 1}, Parameters(in, out));
  for (size_t t = 0; t < trips.size(); ++t) {
    int i = static_cast<int>(t);
    long long sum = 0;
    for (int a = 0; a < trips[t]; ++a) {
      bool isOut = false;
      for (int b = 0; b < a % 5 && !isOut; ++b) {
        isOut = (a + b + i) % 7 == 0;
        if (!isOut) sum += a * b + 1;
      }
      if (!isOut) sum += i;
    }
    CHECK_EQ(out[t], sum);
  }
}

TEST("votes and active masks after divergence") {
  std::vector<int> values = randomInts(64, 3, 30);
  Array<int> in(divergenceDevice().memory, values);
  Array<unsigned> out(divergenceDevice().memory, 4 * 64);
  divergenceDevice().run("votes", {1, 1, 1}, {64, 1, 1}, Parameters(in, out));
  for (size_t warp = 0; warp < 2; ++warp) {
    unsigned ballot = 0;
    bool any = false;
    for (size_t l = 0; l < 32; ++l) {
      int v = values[warp * 32 + l];
      v += v & 1 ? 3 : -5;
      if (v > 10) ballot |= 1u << l;
      any |= v == 12;
    }
    for (size_t l = 0; l < 32; ++l) {
      const unsigned* got = &out[4 * (warp * 32 + l)];
      CHECK_EQ(got[0], ballot);
      CHECK_EQ(got[1], any ? 1u : 0u);
      CHECK_EQ(got[2], 1u);
      CHECK_EQ(got[3], l < 20 ? 0xfffffu : 0xfff00001u);
    }
  }
}

TEST("shuffles of every kind") {
  std::vector<int> values = randomInts(64, 4, 10000);
  Array<int> in(divergenceDevice().memory, values);
  Array<int> out(divergenceDevice().memory, 8 * 64);
  divergenceDevice().run("shuffles", {1, 1, 1}, {64, 1, 1}, Parameters(in, out));
  for (size_t warp = 0; warp < 2; ++warp) {
    auto at = [&](int lane) { return values[warp * 32 + static_cast<size_t>(lane)]; };
    for (int l = 0; l < 32; ++l) {
      const int* got = &out[8 * (warp * 32 + static_cast<size_t>(l))];
      CHECK_EQ(got[0], at((static_cast<int>(warp) * 32 + l) * 7 & 31));
      CHECK_EQ(got[1], at(l < 3 ? l : l - 3));
      CHECK_EQ(got[2], at((l & 15) + 5 > 15 ? l : l + 5));
      CHECK_EQ(got[3], at(l ^ 9));
      CHECK_EQ(got[4], at((l & 24) + 2));
      CHECK_EQ(got[5], at(l % 4 == 0 ? l : l - 1));
      CHECK_EQ(got[6], at(l ^ 1) * 3);
      CHECK_EQ(got[7], at((l & 24) + 3));
    }
  }
}

TEST("lanes on both sides of a branch meet in a shuffle") {
  Array<int> out(divergenceDevice().memory, 32);
  divergenceDevice().run("split_shuffle", {1, 1, 1}, {32, 1, 1}, Parameters(out));
  for (int i = 0; i < 32; ++i) {
    int from = (i + 1) & 31;
    CHECK_EQ(out[static_cast<size_t>(i)], from & 1 ? from * 10 + 1 : from * 100);
  }
}

TEST("lanes that have ended hold nobody up") {
  Array<int> out(divergenceDevice().memory, 48, -1);
  divergenceDevice().run("early_exit", {1, 1, 1}, {48, 1, 1}, Parameters(out));
  for (int i = 0; i < 48; ++i) CHECK_EQ(out[static_cast<size_t>(i)], i % 4 == 3 ? -1 : i < 32 ? 24 : 12);
}

TEST("match") {
  std::vector<int> values = randomInts(32, 5, 5);
  for (int round = 0; round < 2; ++round) {
    if (round == 1) values[17] = 1500;
    Array<int> in(divergenceDevice().memory, values);
    Array<unsigned> out(divergenceDevice().memory, 96);
    divergenceDevice().run("matches", {1, 1, 1}, {32, 1, 1}, Parameters(in, out));
    for (size_t i = 0; i < 32; ++i) {
      unsigned same = 0;
      for (size_t j = 0; j < 32; ++j) same |= (values[j] == values[i] ? 1u : 0u) << j;
      CHECK_EQ(out[3 * i], same);
      CHECK_EQ(out[3 * i + 1], round == 0 ? 0xffffffffu : 0u);
      CHECK_EQ(out[3 * i + 2], round == 0 ? 1u : 0u);
    }
  }
}

TEST("barriers and their reductions") {
  Array<int> out(divergenceDevice().memory, 3 * 256);
  divergenceDevice().run("barriers", {1, 1, 1}, {256, 1, 1}, Parameters(out));
  for (size_t i = 0; i < 256; ++i) {
    CHECK_EQ(out[i], 255 * 128);
    CHECK_EQ(out[256 + i], 86);
    CHECK_EQ(out[512 + i], 3);
  }
}

TEST("named barriers with arrival and counts") {
  Array<int> out(divergenceDevice().memory, 5 * 32);
  divergenceDevice().run("named_barriers", {1, 1, 1}, {64, 1, 1}, Parameters(out));
  for (int round = 0; round < 5; ++round) {
    for (int l = 0; l < 32; ++l) CHECK_EQ(out[static_cast<size_t>(round * 32 + l)], round * 100 + 31 - l);
  }
}

TEST("lanes and blocks that wait for one another make progress") {
  for (const char* kernel : {"spin_lock", "naive_spin_lock"}) {
    Array<int> lock(divergenceDevice().memory, 1);
    Array<int> counter(divergenceDevice().memory, 1);
    divergenceDevice().run(kernel, {4, 1, 1}, {64, 1, 1}, Parameters(lock, counter));
    CHECK_EQ(counter[0], 256);
  }
  Array<int> turn(divergenceDevice().memory, 1);
  Array<int> out(divergenceDevice().memory, 128);
  divergenceDevice().run("hand_over", {1, 1, 1}, {128, 1, 1}, Parameters(turn, out));
  for (size_t i = 0; i < 128; ++i) CHECK_EQ(out[i], static_cast<int>(i) + 1);
}

TEST("a barrier of all blocks of a grid") {
  constexpr unsigned kBlocks = 40;
  Array<unsigned> arrived(divergenceDevice().memory, 1);
  Array<int> out(divergenceDevice().memory, kBlocks);
  divergenceDevice().run("grid_barrier", {kBlocks, 1, 1}, {64, 1, 1}, Parameters(arrived, out));
  for (size_t i = 0; i < kBlocks; ++i) CHECK_EQ(out[i], static_cast<int>(kBlocks));
}

TEST("an endless kernel is cancelled") {
  Array<int> out(divergenceDevice().memory, 1);
  LaunchResult result = runCancelled("endless", Parameters(out), &out[0]);
  CHECK(result.status == LaunchResult::Status::kCancelled);
  out[0] = 0;
  result = runCancelled("endless_plain", Parameters(out, 0), nullptr);
  CHECK(result.status == LaunchResult::Status::kCancelled);
}

TEST("several grids at once share the pool") {
  std::vector<std::thread> threads;
  std::vector<int> trips = randomInts(256, 6, 100);
  Array<int> in(divergenceDevice().memory, trips);
  Array<long long> expected(divergenceDevice().memory, 256);
  divergenceDevice().run("trip_counts", {2, 1, 1}, {128, 1, 1}, Parameters(in, expected));
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int round = 0; round < 5; ++round) {
        Array<long long> out(divergenceDevice().memory, 256);
        divergenceDevice().run("trip_counts", {8, 1, 1}, {32, 1, 1}, Parameters(in, out));
        for (size_t i = 0; i < 256; ++i) CHECK_EQ(out[i], expected[i]);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}
