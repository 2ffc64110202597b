// SPDX-License-Identifier: Apache-2.0
// Large copies of every direction, by several threads, from and to pageable and pinned memory, waited for or not, also behind
// functions of the program. Over TCP with lanes (MILLPOND_LANES) their data comes over several connections.
#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <random>
#include <thread>

#include "testing/streams/program.h"

using namespace millpond::streams;

namespace {

constexpr size_t kMost = size_t{6} << 20;
constexpr int kRounds = 12;
constexpr int kThreads = 3;

/// Words that depend on a number and their place.
void fill(std::byte* to, size_t bytes, uint32_t number) {
  for (size_t at = 0; at < bytes; at += 4) {
    const auto word = static_cast<uint32_t>((at + number) * 2654435761u);
    std::memcpy(to + at, &word, std::min<size_t>(4, bytes - at));
  }
}

bool holds(const std::byte* memory, size_t bytes, uint32_t number) {
  for (size_t at = 0; at < bytes; at += 4) {
    const auto word = static_cast<uint32_t>((at + number) * 2654435761u);
    if (std::memcmp(memory + at, &word, std::min<size_t>(4, bytes - at)) != 0) return false;
  }
  return true;
}

/// Memory of the program, pinned or not.
class Memory {
 public:
  explicit Memory(bool isPinned) : isPinned_(isPinned), pageable_(isPinned ? 0 : kMost) {
    OK(CU(cuCtxSetCurrent)(context()));
    void* made = pageable_.data();
    if (isPinned) OK(CU(cuMemHostAlloc)(&made, kMost, 0));
    data = static_cast<std::byte*>(made);
  }
  ~Memory() {
    if (isPinned_) OK(CU(cuMemFreeHost)(data));
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  std::byte* data = nullptr;

 private:
  const bool isPinned_;
  std::vector<std::byte> pageable_;
};

/// Copies to the device and back in a stream of its own.
class Copier {
 public:
  explicit Copier(uint32_t seed) : random_(seed), from_(random_() % 2), to_(random_() % 2) {
    stream_ = millpond::streams::stream();
    for (CUdeviceptr& each : device_) each = allocate(kMost);
  }
  ~Copier() {
    OK(CU(cuStreamSynchronize)(stream_));
    for (const CUdeviceptr each : device_) OK(CU(cuMemFree_v2)(each));
    OK(CU(cuStreamDestroy_v2)(stream_));
  }
  Copier(const Copier&) = delete;
  Copier& operator=(const Copier&) = delete;

  void round(uint32_t number) {
    const size_t bytes = random_() % 3 == 0 ? kMost : size_t{1} + random_() % kMost;
    fill(from_.data, bytes, number);
    std::memset(to_.data, 0x5a, kMost);
    Gate gate;
    if (random_() % 3 == 0) {
      gate.close(stream_);
      std::thread([&] { gate.open(); }).detach();
      gate.awaitArrival();
    }
    if (random_() % 3 == 0)
      toDevice(device_[0], from_.data, bytes);
    else
      OK(CU(cuMemcpyHtoDAsync_v2)(device_[0], from_.data, bytes, stream_));
    OK(CU(cuMemcpyDtoDAsync_v2)(device_[1], device_[0], bytes, stream_));
    OK(CU(cuMemcpyDtoHAsync_v2)(to_.data, device_[1], bytes, stream_));
    OK(CU(cuStreamSynchronize)(stream_));
    CHECK(holds(to_.data, bytes, number));
    CHECK(std::all_of(to_.data + bytes, to_.data + kMost, [](std::byte each) { return each == std::byte{0x5a}; }));
  }

 private:
  /// In pieces of any length, one after the other.
  void toDevice(CUdeviceptr to, const std::byte* from, size_t bytes) {
    for (size_t at = 0; at < bytes;) {
      const size_t piece = std::min<size_t>(bytes - at, 1 + random_() % (kMost / 2));
      OK(CU(cuMemcpyHtoDAsync_v2)(to + at, from + at, piece, stream_));
      at += piece;
    }
  }

  std::minstd_rand random_;
  Memory from_, to_;
  CUstream stream_ = nullptr;
  std::array<CUdeviceptr, 2> device_{};
};

}  // namespace

TEST("large copies of several threads bring every byte") {
  context();
  std::vector<std::thread> threads;
  for (uint32_t t = 0; t < kThreads; ++t)
    threads.emplace_back([t] {
      for (uint32_t pair = 0; pair < 4; ++pair) {
        Copier copier(7 * t + pair + 1);
        for (uint32_t n = 0; n < kRounds; ++n) copier.round(1000 * t + 100 * pair + n);
      }
    });
  for (std::thread& each : threads) each.join();
}

TEST("large copies go on while another one is behind a function of the program") {
  const CUstream held = stream();
  const CUdeviceptr device = allocate(kMost), other = allocate(kMost);
  Memory pageable(false), pinned(true), back(false);
  fill(pageable.data, kMost, 5);
  fill(pinned.data, kMost, 6);
  Gate gate;
  gate.close(held);
  gate.awaitArrival();
  // From pageable memory this call would wait for the function, as on a card.
  OK(CU(cuMemcpyHtoDAsync_v2)(device, pinned.data, kMost, held));
  // A card may make these wait for the copy above, if they share its channel: so the function must end by itself.
  std::atomic<bool> hasBegun{false};
  std::thread copier([&] {
    OK(CU(cuCtxSetCurrent)(context()));
    hasBegun.store(true);
    OK(CU(cuMemcpyHtoD_v2)(other, pageable.data, kMost));
    OK(CU(cuMemcpyDtoH_v2)(back.data, other, kMost));
  });
  while (!hasBegun.load()) std::this_thread::yield();
  gate.open();
  copier.join();
  CHECK(holds(back.data, kMost, 5));
  OK(CU(cuStreamSynchronize)(held));
  OK(CU(cuMemcpyDtoH_v2)(back.data, device, kMost));
  CHECK(holds(back.data, kMost, 6));
  for (const CUdeviceptr each : {device, other}) OK(CU(cuMemFree_v2)(each));
  OK(CU(cuStreamDestroy_v2)(held));
}

int main(int argc, char** argv) { return run(argc, argv); }
