// SPDX-License-Identifier: Apache-2.0
// printf and assert in kernels.
#include <cstdio>
#include <mutex>
#include <set>

#include "softgpu/ptx/tests/fixture.h"

using namespace millpond::softgpu::ptx;
using namespace millpond::softgpu::ptx::testing;

TEST("printf") {
  Device device(readKernelFile("runtime.ptx"));
  Array<char> name(device.memory, std::vector<char>{'l', 'a', 'n', 'e', '\0'});
  Array<int> counts(device.memory, 32, -7);
  Parameters parameters(name, counts);
  std::vector<std::string> printed;
  Launch launch;
  launch.block = {10, 1, 1};
  launch.parameters = parameters.bytes();
  launch.memory = &device.memory;
  launch.print = [&](std::string_view text) { printed.emplace_back(text); };
  LaunchResult result = executor().run(*device.module().kernel("print"), launch);
  if (!result) ::millpond::testing::fail(__FILE__, __LINE__, result.message);
  CHECK_EQ(printed.size(), size_t{5});
  for (int i = 0; i < 10; i += 3) {
    char expected[200];
    std::snprintf(expected, sizeof(expected), "%s %d of %u: %5.2f|%-6lld|%#x|%c|%%|%*d|%.3s|%e\n", "lane", i, 10u,
                  i * 0.5, static_cast<long long>(i) << 33, static_cast<unsigned>(i), 'a' + i, 4, i, "abcdef", 1.0 / 3);
    bool isFound = false;
    for (const std::string& text : printed) isFound |= text == expected;
    if (!isFound) ::millpond::testing::fail(__FILE__, __LINE__, std::string("not printed: ") + expected);
    CHECK_EQ(counts[static_cast<size_t>(i)], 11);
  }
  CHECK_EQ(counts[1], 0);
  CHECK_EQ(counts[2], -7);
}

TEST("a bad string ends in a fault") {
  Device device(readKernelFile("runtime.ptx"));
  Array<char> name(device.memory, std::vector<char>{'n', 'o', ' ', 'e', 'n', 'd'});
  Array<int> counts(device.memory, 32);
  LaunchResult result = device.tryRun("print", {1, 1, 1}, {3, 1, 1}, Parameters(name, counts));
  CHECK(result.status == LaunchResult::Status::kFault);
  CHECK_EQ(faultName(result.fault.kind), faultName(Fault::Kind::kIllegalAddress));
  CHECK_EQ(result.fault.address, name.address() + 6);
}

TEST("assert") {
  Device device(readKernelFile("runtime.ptx"));
  device.run("check", {2, 1, 1}, {32, 1, 1}, Parameters(64));
  LaunchResult result = device.tryRun("check", {2, 1, 1}, {32, 1, 1}, Parameters(40));
  CHECK(result.status == LaunchResult::Status::kFault);
  CHECK_EQ(faultName(result.fault.kind), faultName(Fault::Kind::kAssert));
  CHECK_EQ(result.fault.block.x, 1u);
  CHECK_EQ(result.fault.thread.x, 8u);
  CHECK(result.fault.detail.find("runtime.cu:18: void check(int): block: [1,0,0], thread: [8,0,0] Assertion "
                                 "`i < limit && \"too many\"` failed.") != std::string::npos);
}

namespace {

class TestHeap : public DeviceHeap {
 public:
  explicit TestHeap(TestMemory& memory) : memory_(memory) {}
  uint64_t allocate(uint64_t bytes) override {
    std::lock_guard lock(mutex_);
    uint64_t address = memory_.allocate(bytes, 16, true);
    ++count;
    live_.insert(address);
    return address;
  }
  bool release(uint64_t address) override {
    std::lock_guard lock(mutex_);
    if (live_.erase(address) == 0) return false;
    freed_.push_back(address);  // stays mapped while the grid runs
    return true;
  }
  ~TestHeap() override {
    for (uint64_t address : freed_) memory_.release(address);
    for (uint64_t address : live_) memory_.release(address);
  }
  size_t live() const { return live_.size(); }
  size_t count = 0;

 private:
  TestMemory& memory_;
  std::mutex mutex_;
  std::set<uint64_t> live_;
  std::vector<uint64_t> freed_;
};

}  // namespace

TEST("objects with virtual functions on the heap") {
  Device device(readKernelFile("runtime.ptx"));
  Array<int> out(device.memory, 64);
  Parameters parameters(out);
  for (bool hasHeap : {true, false}) {
    TestHeap heap(device.memory);
    Launch launch;
    launch.block = {64, 1, 1};
    launch.parameters = parameters.bytes();
    launch.memory = &device.memory;
    if (hasHeap) launch.heap = &heap;
    LaunchResult result = executor().run(*device.module().kernel("objects"), launch);
    if (!hasHeap) {
      // The constructor runs on the null pointer, as it would on a device whose heap is exhausted.
      CHECK_EQ(faultName(result.fault.kind), faultName(Fault::Kind::kIllegalAddress));
      continue;
    }
    if (!result) ::millpond::testing::fail(__FILE__, __LINE__, result.message);
    for (int i = 0; i < 64; ++i) CHECK_EQ(out[static_cast<size_t>(i)], i & 1 ? i * i : i * 100);
    CHECK_EQ(heap.count, size_t{64});
    CHECK_EQ(heap.live(), size_t{0});
  }
}

TEST("freeing what was not allocated") {
  Device device(readKernelFile("runtime.ptx"));
  TestHeap heap(device.memory);
  Array<int> out(device.memory, 1);
  Parameters parameters(out);
  Launch launch;
  launch.parameters = parameters.bytes();
  launch.memory = &device.memory;
  launch.heap = &heap;
  LaunchResult result = executor().run(*device.module().kernel("bad_free"), launch);
  // Memory that the kernel may access, but that is not part of the heap.
  CHECK_EQ(faultName(result.fault.kind), faultName(Fault::Kind::kTrap));
  CHECK_EQ(result.fault.address, out.address() + 1);
}

TEST("each thread that sets a condition tells it; without anybody to tell nothing happens") {
  constexpr char text[] = R"(
.version 8.0
.target sm_75
.address_size 64
.extern .func cudaGraphSetConditional (.param .b64 handle, .param .b32 value);
.visible .entry set (.param .u64 handle)
{
  .reg .pred %even;
  .reg .b64 %h;
  .reg .b32 %t, %v;
  .param .b64 p0;
  .param .b32 p1;
  mov.u32 %t, %tid.x;
  and.b32 %v, %t, 1;
  setp.eq.u32 %even, %v, 0;
  @%even bra END;
  ld.param.u64 %h, [handle];
  st.param.b64 [p0], %h;
  st.param.b32 [p1], %t;
  call.uni cudaGraphSetConditional, (p0, p1);
END:
  ret;
}
)";
  class Told : public Conditions {
   public:
    void set(uint64_t handle, uint32_t value) override {
      std::lock_guard lock(mutex_);
      all.emplace(handle, value);
    }
    std::set<std::pair<uint64_t, uint32_t>> all;

   private:
    std::mutex mutex_;
  };
  Device device(text);
  Told told;
  Parameters parameters(uint64_t{0x1'0000'0007});
  Launch launch;
  launch.block = {6, 1, 1};
  launch.parameters = parameters.bytes();
  launch.memory = &device.memory;
  for (Conditions* conditions : {static_cast<Conditions*>(nullptr), static_cast<Conditions*>(&told)}) {
    launch.conditions = conditions;
    const LaunchResult result = executor().run(*device.module().kernel("set"), launch);
    if (!result) ::millpond::testing::fail(__FILE__, __LINE__, result.message);
  }
  const std::set<std::pair<uint64_t, uint32_t>> wanted = {{0x1'0000'0007, 1}, {0x1'0000'0007, 3}, {0x1'0000'0007, 5}};
  CHECK(told.all == wanted);
}

/// A function that allocates as much memory from the stack as its caller requests.
static constexpr char kStackFunctions[] = R"(
// The sum of 0 to n, of a separate array.
.func (.param .b64 total) sum (.param .b64 n)
{
  .reg .b64 %size, %at, %end, %i, %n, %total, %value;
  .reg .pred %more;
  ld.param.b64 %n, [n];
  add.u64 %i, %n, 1;
  shl.b64 %size, %i, 3;
  alloca.u64 %at, %size, 16;
  and.b64 %total, %at, 15;  // 0 if it is aligned
  add.u64 %end, %at, %size;
  mov.u64 %i, 0;
  mov.u64 %size, %at;
fill:
  st.local.u64 [%at], %i;
  add.u64 %i, %i, 1;
  add.u64 %at, %at, 8;
  setp.lt.u64 %more, %at, %end;
  @%more bra fill;
add:
  ld.local.u64 %value, [%size];
  add.u64 %total, %total, %value;
  add.u64 %size, %size, 8;
  setp.lt.u64 %more, %size, %end;
  @%more bra add;
  st.param.b64 [total], %total;
  ret;
}
)";

TEST("memory of the stack is each thread's own, and goes with the function that took it") {
  // Many times more than exists at a time.
  Device device(kernelAround(R"(
    cvt.u64.u32 %rd1, %tid0;
    alloca.u64 %rd10, 24;
    cvta.local.u64 %rd11, %rd10;
    st.u64 [%rd11+16], %rd1;
    mov.u64 %rd2, 0;
    mov.u32 %r1, 0;
    again:
    {
      .param .b64 n;
      .param .b64 total;
      st.param.b64 [n], %rd1;
      call (total), sum, (n);
      ld.param.b64 %rd3, [total];
    }
    add.u64 %rd2, %rd2, %rd3;
    add.u32 %r1, %r1, 1;
    setp.lt.u32 %p1, %r1, 200;
    @%p1 bra again;
    stacksave.u64 %rd4;
    alloca.u64 %rd5, 256, 32;
    st.local.u64 [%rd5+248], %rd2;
    ld.local.u64 %rd6, [%rd5+248];
    stackrestore.u64 %rd4;
    stacksave.u64 %rd5;
    setp.ne.u64 %p2, %rd4, %rd5;
    @%p2 trap;
    ld.local.u64 %rd7, [%rd10+16];
    add.u64 %rd6, %rd6, %rd7;
    mad.lo.u64 %slot, %rd1, 8, %out;
    st.global.u64 [%slot], %rd6;
  )",
                             kStackFunctions));
  Array<uint64_t> out(device.memory, 64);
  device.run("k", {1, 1, 1}, {64, 1, 1}, Parameters(out, uint64_t{0}, uint64_t{0}));
  for (uint64_t i = 0; i < 64; ++i) CHECK_EQ(out[i], 200 * (i * (i + 1) / 2) + i);
}

TEST("a stack that is spent ends in a fault, whoever asks for more") {
  Device device(kernelAround("alloca.u64 %rd1, %in;\nst.local.u8 [%rd1], 1;"));
  const auto faultOf = [&](uint64_t bytes) {
    const LaunchResult result = device.tryRun("k", {1, 1, 1}, {1, 1, 1}, Parameters(uint64_t{0}, bytes, uint64_t{0}));
    return result ? std::string("none") : std::string(faultName(result.fault.kind));
  };
  CHECK_EQ(faultOf(1024), std::string("none"));
  const std::string spent(faultName(Fault::Kind::kStackOverflow));
  CHECK_EQ(faultOf(uint64_t{1} << 20), spent);
  CHECK_EQ(faultOf(~uint64_t{0} - 3), spent);
  // A saved stack position cannot be forged by arithmetic.
  Device forged(kernelAround("stackrestore.u64 %in;"));
  CHECK(!forged.tryRun("k", {1, 1, 1}, {1, 1, 1}, Parameters(uint64_t{0}, uint64_t{1} << 40, uint64_t{0})));
  // Frames of calls do not overlap allocated stack memory.
  Device calls(kernelAround(R"(
    alloca.u64 %rd1, %in;
    st.local.u8 [%rd1], 7;
    {
      .param .b64 n;
      .param .b64 total;
      st.param.b64 [n], 200;
      call (total), sum, (n);
      ld.param.b64 %rd3, [total];
    }
    ld.local.u8 %rd2, [%rd1];
    add.u64 %rd3, %rd3, %rd2;
    st.global.u64 [%out], %rd3;
  )",
                            kStackFunctions));
  Array<uint64_t> out(calls.memory, 1);
  CHECK(calls.tryRun("k", {1, 1, 1}, {1, 1, 1}, Parameters(out, uint64_t{1500}, uint64_t{0})));
  CHECK_EQ(out[0], uint64_t{200 * 201 / 2 + 7});
  CHECK(!calls.tryRun("k", {1, 1, 1}, {1, 1, 1}, Parameters(out, uint64_t{3500}, uint64_t{0})));
}
