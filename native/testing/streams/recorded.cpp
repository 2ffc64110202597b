// SPDX-License-Identifier: Apache-2.0
// Pinned and registered memory that a graph copies to and from, and that kernels come to use only after the graph has been
// instantiated or launched.
#include <cstdlib>
#include <utility>

#include "testing/streams/program.h"

using namespace millpond::streams;

namespace {

constexpr unsigned kCount = 1024;
constexpr size_t kBytes = kCount * sizeof(int);

/// Adds `value` to a word for each thread.
constexpr char kAdd[] = R"(
.version 7.0
.target sm_75
.address_size 64
.visible .entry add(.param .u64 address, .param .u32 value) {
  .reg .u32 %r<4>;
  .reg .u64 %p<4>;
  ld.param.u64 %p1, [address];
  ld.param.u32 %r1, [value];
  mov.u32 %r2, %tid.x;
  mul.wide.u32 %p2, %r2, 4;
  add.u64 %p3, %p1, %p2;
  ld.u32 %r3, [%p3];
  add.u32 %r3, %r3, %r1;
  st.u32 [%p3], %r3;
  ret;
}
)";

void add(CUdeviceptr address, int value, CUstream s) {
  static CUfunction kernel = [] {
    CUmodule module = nullptr;
    OK(CU(cuModuleLoadData)(&module, kAdd));
    CUfunction found = nullptr;
    OK(CU(cuModuleGetFunction)(&found, module, "add"));
    return found;
  }();
  void* arguments[] = {&address, &value};
  OK(CU(cuLaunchKernel)(kernel, 1, 1, 1, kCount, 1, 1, 0, s, arguments, nullptr));
}

enum class Kind { kPinned, kRegistered };
constexpr Kind kKinds[] = {Kind::kPinned, Kind::kRegistered};

class HostWords {
 public:
  explicit HostWords(Kind kind, int value) : kind_(kind) {
    context();
    void* place = nullptr;
    if (kind == Kind::kPinned)
      OK(CU(cuMemHostAlloc)(&place, kBytes, 0));
    else
      place = std::aligned_alloc(kBytes, kBytes);
    words_ = static_cast<int*>(place);
    if (kind == Kind::kRegistered) enroll();
    for (unsigned i = 0; i < kCount; ++i) words_[i] = value;
  }
  ~HostWords() {
    if (kind_ == Kind::kPinned) {
      OK(CU(cuMemFreeHost)(words_));
    } else {
      leave();
      std::free(words_);
    }
  }
  HostWords(const HostWords&) = delete;
  HostWords& operator=(const HostWords&) = delete;

  void enroll() { OK(CU(cuMemHostRegister_v2)(words_, kBytes, CU_MEMHOSTREGISTER_DEVICEMAP)); }
  void leave() { OK(CU(cuMemHostUnregister)(words_)); }
  int& operator[](size_t i) { return words_[i]; }
  int* data() { return words_; }
  CUdeviceptr at() const { return reinterpret_cast<CUdeviceptr>(words_); }

 private:
  const Kind kind_;
  int* words_ = nullptr;
};

class DeviceWords {
 public:
  explicit DeviceWords(int value = 0) : address_((context(), allocate(kBytes))) { fill(value, nullptr); }
  ~DeviceWords() { OK(CU(cuMemFree_v2)(address_)); }
  DeviceWords(const DeviceWords&) = delete;
  DeviceWords& operator=(const DeviceWords&) = delete;
  void fill(int value, CUstream s) {
    OK(CU(cuMemsetD32Async)(address_, static_cast<unsigned>(value), kCount, s));
    if (!s) OK(CU(cuStreamSynchronize)(s));
  }
  CUdeviceptr at() const { return address_; }
  bool isAll(int value) const {
    for (const int each : read(address_, kCount))
      if (each != value) return false;
    return true;
  }

 private:
  CUdeviceptr address_;
};

class Recording {
 public:
  /// The work that `record(stream)` gives a stream.
  template <typename Record>
  explicit Recording(Record&& record) {
    CUstream s = stream();
    OK(CU(cuStreamBeginCapture_v2)(s, CU_STREAM_CAPTURE_MODE_RELAXED));
    record(s);
    CUgraph graph = nullptr;
    OK(CU(cuStreamEndCapture)(s, &graph));
    OK(CU(cuGraphInstantiateWithFlags)(&exec_, graph, 0));
    OK(CU(cuGraphDestroy)(graph));
    OK(CU(cuStreamDestroy_v2)(s));
  }
  ~Recording() { OK(CU(cuGraphExecDestroy)(exec_)); }
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;
  void launch(CUstream s) { OK(CU(cuGraphLaunch)(exec_, s)); }

 private:
  CUgraphExec exec_ = nullptr;
};

}  // namespace

TEST("kernels use what a graph copied there before they came to the memory, and it copies what they wrote") {
  for (const Kind kind : kKinds) {
    HostWords words(kind, 1);
    DeviceWords from(0), to(0);
    Recording down([&](CUstream s) { OK(CU(cuMemcpyDtoHAsync_v2)(words.data(), from.at(), kBytes, s)); });
    Recording up([&](CUstream s) { OK(CU(cuMemcpyHtoDAsync_v2)(to.at(), words.data(), kBytes, s)); });
    CUstream s = stream();
    for (int round = 10; round < 40; round += 10) {
      from.fill(round, s);
      down.launch(s);
      add(words.at(), 3, s);
      up.launch(s);
      OK(CU(cuStreamSynchronize)(s));
      CHECK_EQ(words[0], round + 3);
      CHECK_EQ(words[kCount - 1], round + 3);
      CHECK(to.isAll(round + 3));
      // Including what the program writes.
      for (unsigned i = 0; i < kCount; ++i) words[i] = round + 5;
      up.launch(s);
      OK(CU(cuStreamSynchronize)(s));
      CHECK(to.isAll(round + 5));
    }
    OK(CU(cuStreamDestroy_v2)(s));
  }
}

TEST("also while launches wait for a function of the program, whichever streams are ordered behind them") {
  for (const Kind kind : kKinds) {
    HostWords words(kind, 1);
    DeviceWords from(20), copy(0);
    Recording down([&](CUstream s) { OK(CU(cuMemcpyDtoHAsync_v2)(words.data(), from.at(), kBytes / 2, s)); });
    CUstream s = stream(), other = stream();
    CUevent behind = event();
    Gate gate;
    gate.close(s);
    down.launch(s);
    OK(CU(cuEventRecord)(behind, s));
    add(words.at(), 1, s);
    OK(CU(cuEventRecord)(behind, s));
    OK(CU(cuStreamWaitEvent)(other, behind, 0));
    add(words.at(), 2, other);
    OK(CU(cuMemcpyAsync)(copy.at(), words.at(), kBytes, other));
    gate.open();
    OK(CU(cuStreamSynchronize)(other));
    const std::vector<int> seen = read(copy.at(), kCount);
    for (unsigned i = 0; i < kCount; ++i) {
      CHECK_EQ(seen[i], i < kCount / 2 ? 23 : 4);
      CHECK_EQ(words[i], seen[i]);
    }
    OK(CU(cuEventDestroy_v2)(behind));
    OK(CU(cuStreamDestroy_v2)(s));
    OK(CU(cuStreamDestroy_v2)(other));
  }
}

TEST("a launch that writes rows of it under way leaves the rest to the program") {
  for (const Kind kind : kKinds) {
    constexpr size_t kPitch = 256, kWidth = 64, kRows = 8;
    HostWords words(kind, 1);
    DeviceWords from(20);
    CUDA_MEMCPY3D box{};
    box.srcMemoryType = CU_MEMORYTYPE_DEVICE;
    box.srcDevice = from.at();
    box.dstMemoryType = CU_MEMORYTYPE_HOST;
    box.dstHost = words.data();
    box.srcPitch = box.WidthInBytes = kWidth;
    box.dstPitch = kPitch;
    box.srcHeight = box.dstHeight = box.Height = kRows;
    box.Depth = 1;
    CUgraph graph = nullptr;
    OK(CU(cuGraphCreate)(&graph, 0));
    CUgraphNode node = nullptr;
    OK(CU(cuGraphAddMemcpyNode)(&node, graph, nullptr, 0, &box, context()));
    CUgraphExec exec = nullptr;
    OK(CU(cuGraphInstantiateWithFlags)(&exec, graph, 0));
    CUstream s = stream();
    Gate gate;
    gate.close(s);
    OK(CU(cuGraphLaunch)(exec, s));
    add(words.at(), 1, s);
    gate.open();
    OK(CU(cuStreamSynchronize)(s));
    for (unsigned i = 0; i < kCount; ++i) {
      const bool isCopied = i * sizeof(int) < kRows * kPitch && i * sizeof(int) % kPitch < kWidth;
      CHECK_EQ(words[i], isCopied ? 21 : 2);
    }
    OK(CU(cuStreamDestroy_v2)(s));
    OK(CU(cuGraphExecDestroy)(exec));
    OK(CU(cuGraphDestroy)(graph));
  }
}

TEST("the graph goes on copying when kernels cannot use the memory any more") {
  HostWords words(Kind::kRegistered, 1);
  DeviceWords from(20), to(0);
  Recording both([&](CUstream s) {
    OK(CU(cuMemcpyHtoDAsync_v2)(to.at(), words.data(), kBytes / 2, s));
    OK(CU(cuMemcpyDtoHAsync_v2)(words.data() + kCount / 2, from.at(), kBytes / 2, s));
  });
  CUstream s = stream();
  both.launch(s);
  add(words.at(), 1, s);
  OK(CU(cuStreamSynchronize)(s));
  CHECK_EQ(words[0], 2);
  CHECK_EQ(words[kCount / 2], 21);
  words.leave();
  words[0] = 7;
  from.fill(30, s);
  both.launch(s);
  OK(CU(cuStreamSynchronize)(s));
  CHECK_EQ(words[kCount / 2], 30);
  CHECK_EQ(read(to.at(), 1)[0], 7);
  words.enroll();
  both.launch(s);
  add(words.at(), 1, s);
  OK(CU(cuStreamSynchronize)(s));
  CHECK_EQ(words[0], 8);
  CHECK_EQ(words[kCount / 2], 31);
  OK(CU(cuStreamDestroy_v2)(s));
}

TEST("a function of the graph sees what was copied before it, and what it writes is copied behind it") {
  for (const Kind kind : kKinds) {
    HostWords words(kind, 1);
    DeviceWords from(20), to(0);
    Recording all([&](CUstream s) {
      OK(CU(cuMemcpyDtoHAsync_v2)(words.data(), from.at(), kBytes, s));
      OK(CU(cuLaunchHostFunc)(
          s,
          [](void* data) {
            auto& each = *static_cast<HostWords*>(data);
            for (unsigned i = 0; i < kCount; ++i) each[i] *= 2;
          },
          &words));
      OK(CU(cuMemcpyHtoDAsync_v2)(to.at(), words.data(), kBytes, s));
    });
    CUstream s = stream();
    for (int round = 1; round < 4; ++round) {
      from.fill(round * 20, s);
      all.launch(s);
      add(words.at(), 1, s);
      OK(CU(cuStreamSynchronize)(s));
      CHECK(to.isAll(round * 40));
      CHECK_EQ(words[5], round * 40 + 1);
    }
    OK(CU(cuStreamDestroy_v2)(s));
  }
}

int main(int argc, char** argv) { return run(argc, argv); }
