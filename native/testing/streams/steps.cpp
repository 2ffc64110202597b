// SPDX-License-Identifier: Apache-2.0
// Streams that are in step with the default stream, and copies whose two ends are memory of the host.
#include <array>
#include <atomic>
#include <cstring>
#include <functional>
#include <thread>

#include "testing/streams/program.h"

using namespace millpond::streams;

namespace {

constexpr size_t kCount = 1024;
constexpr size_t kBytes = kCount * sizeof(int);

/// Words that streams wait for.
class Word {
 public:
  Word() {
    OK(CU(cuMemHostAlloc)(reinterpret_cast<void**>(&word_), sizeof *word_, CU_MEMHOSTALLOC_DEVICEMAP));
    *word_ = 0;
    OK(CU(cuMemHostGetDevicePointer_v2)(&address_, word_, 0));
  }
  ~Word() { OK(CU(cuMemFreeHost)(word_)); }
  void hold(CUstream stream) { OK(CU(cuStreamWaitValue32_v2)(stream, address_, 1, CU_STREAM_WAIT_VALUE_GEQ)); }
  void set() { std::atomic_ref(*word_).store(1, std::memory_order_release); }

 private:
  cuuint32_t* word_ = nullptr;
  CUdeviceptr address_ = 0;
};

/// Memory of the host that the program pinned or registered, or plain memory.
class Host {
 public:
  enum class Kind { pinned, registered, plain };
  /// `isKnown`: kernels may access it.
  Host(Kind kind, bool isKnown) : kind_(kind) {
    void* memory = own_.data();
    if (kind == Kind::pinned) OK(CU(cuMemHostAlloc)(&memory, kBytes, CU_MEMHOSTALLOC_DEVICEMAP));
    if (kind == Kind::registered) OK(CU(cuMemHostRegister_v2)(memory, kBytes, CU_MEMHOSTREGISTER_DEVICEMAP));
    words = static_cast<int*>(memory);
    CUdeviceptr address = 0;
    if (isKnown && kind != Kind::plain) OK(CU(cuMemHostGetDevicePointer_v2)(&address, words, 0));
  }
  ~Host() {
    if (kind_ == Kind::pinned) OK(CU(cuMemFreeHost)(words));
    if (kind_ == Kind::registered) OK(CU(cuMemHostUnregister)(words));
  }
  Host(const Host&) = delete;
  Host& operator=(const Host&) = delete;

  void fill(int value) {
    for (size_t i = 0; i < kCount; ++i) words[i] = value;
  }
  bool has(int value) const {
    for (size_t i = 0; i < kCount; ++i)
      if (words[i] != value) return false;
    return true;
  }

  int* words = nullptr;

 private:
  Kind kind_;
  std::vector<int> own_ = std::vector<int>(kCount);
};

constexpr std::array kKinds = {Host::Kind::pinned, Host::Kind::registered, Host::Kind::plain};

/// Every pair of kinds of host memory, with and without kernels that may access them.
void betweenHosts(const std::function<void(Host& to, Host& from)>& body) {
  for (const Host::Kind toKind : kKinds)
    for (const Host::Kind fromKind : kKinds)
      for (const bool isKnown : {false, true}) {
        Host to(toKind, isKnown);
        Host from(fromKind, isKnown);
        body(to, from);
      }
}

CUresult copyHost(Host& to, const Host& from, CUstream stream) {
  return CU(cuMemcpyAsync)(reinterpret_cast<CUdeviceptr>(to.words), reinterpret_cast<CUdeviceptr>(from.words), kBytes,
                           stream);
}

}  // namespace

TEST("a wait for a stream is none for what the default stream was given behind it") {
  context();
  const CUdeviceptr memory = allocate(kBytes);
  for (int round = 0; round < 20; ++round) {
    CUstream s = stream(CU_STREAM_DEFAULT);
    Word word;
    OK(CU(cuMemsetD32Async)(memory, 7, kCount, s));
    word.hold(CU_STREAM_LEGACY);
    OK(CU(cuMemsetD32Async)(memory, 8, kCount, CU_STREAM_LEGACY));
    // The second one after a query that gives the stream no work.
    for (int i = 0; i < 2; ++i) {
      OK(CU(cuStreamSynchronize)(s));
      CU(cuStreamQuery)(s);
      OK(CU(cuMemsetD32Async)(memory, 9, kCount, CU_STREAM_LEGACY));
    }
    word.set();
    OK(CU(cuStreamSynchronize)(CU_STREAM_LEGACY));
    CHECK(read(memory, kCount) == std::vector<int>(kCount, 9));
    OK(CU(cuStreamDestroy_v2)(s));
  }
  OK(CU(cuMemFree_v2)(memory));
}

TEST("copies between memories of the host wait for functions of the program, and nothing else waits for them") {
  context();
  const CUdeviceptr memory = allocate(kBytes);
  CUstream held = stream();
  CUstream other = stream();
  int n = 0;
  betweenHosts([&](Host& to, Host& from) {
    Gate gate;
    from.fill(++n);
    to.fill(0);
    gate.close(held);
    gate.awaitArrival();
    // On a card this call waits for the function.
    std::thread copier([&] {
      OK(CU(cuCtxSetCurrent)(context()));
      OK(copyHost(to, from, held));
      OK(CU(cuStreamSynchronize)(held));
    });
    OK(CU(cuMemsetD32Async)(memory, static_cast<unsigned>(n), kCount, other));
    OK(CU(cuStreamSynchronize)(other));
    CHECK(read(memory, kCount) == std::vector<int>(kCount, n));
    gate.open();
    copier.join();
    CHECK(to.has(n));
  });
  OK(CU(cuStreamDestroy_v2)(held));
  OK(CU(cuStreamDestroy_v2)(other));
  OK(CU(cuMemFree_v2)(memory));
}

TEST("copies between memories of the host are in the order of their stream") {
  context();
  const CUdeviceptr memory = allocate(kBytes);
  for (const unsigned flags : {CU_STREAM_NON_BLOCKING, CU_STREAM_DEFAULT}) {
    CUstream s = stream(flags);
    int n = 0;
    betweenHosts([&](Host& to, Host& from) {
      for (int round = 0; round < 10; ++round) {
        OK(CU(cuMemsetD32Async)(memory, static_cast<unsigned>(++n), kCount, s));
        OK(CU(cuMemcpyDtoHAsync_v2)(from.words, memory, kBytes, s));
        OK(copyHost(to, from, s));
        OK(CU(cuMemcpyHtoDAsync_v2)(memory, to.words, kBytes, s));
        OK(CU(cuStreamSynchronize)(s));
        CHECK(to.has(n));
        CHECK(read(memory, kCount) == std::vector<int>(kCount, n));
      }
    });
    OK(CU(cuStreamDestroy_v2)(s));
  }
  OK(CU(cuMemFree_v2)(memory));
}

TEST("a copy that waits takes of pinned memory what the streams have written that are in step with it") {
  context();
  const CUdeviceptr memory = allocate(kBytes);
  const CUdeviceptr copied = allocate(kBytes);
  CUstream s = stream(CU_STREAM_DEFAULT);
  int n = 0;
  for (const Host::Kind kind : {Host::Kind::pinned, Host::Kind::registered})
    for (int round = 0; round < 10; ++round) {
      Host host(kind, true);
      host.fill(0);
      Gate gate;
      gate.close(s);
      gate.awaitArrival();
      OK(CU(cuMemsetD32Async)(memory, static_cast<unsigned>(++n), kCount, s));
      OK(CU(cuMemcpyDtoHAsync_v2)(host.words, memory, kBytes, s));
      std::thread copier([&] {
        OK(CU(cuCtxSetCurrent)(context()));
        OK(CU(cuMemcpyHtoD_v2)(copied, host.words, kBytes));
      });
      gate.open();
      copier.join();
      CHECK(host.has(n));
      CHECK(read(copied, kCount) == std::vector<int>(kCount, n));
    }
  OK(CU(cuMemFree_v2)(copied));
  OK(CU(cuStreamDestroy_v2)(s));
  OK(CU(cuMemFree_v2)(memory));
}

int main(int argc, char** argv) { return run(argc, argv); }
