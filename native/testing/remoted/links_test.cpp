// SPDX-License-Identifier: Apache-2.0
// Whole programs over TCP links that break: the context survives, every command runs once, and a client that is gone for
// good is given up.
#include <sys/mman.h>
#include <sys/prctl.h>

#include <csignal>
#include <new>
#include <random>
#include <thread>

#include "base/errors/coded_error.h"
#include "protocol/gen/api_hash.h"
#include "protocol/gen/commands.h"
#include "protocol/handshake/handshake.h"
#include "protocol/wire.h"
#include "testing/remoted.h"
#include "testing/remoted/broken_link.h"
#include "testing/servers/cutting_proxy.h"

using namespace millpond;
using namespace millpond::testing;

namespace {

// A kernel's result depends on every launch before it, and on their order.
constexpr char kCountingKernels[] = R"(
.version 7.0
.target sm_75
.address_size 64
.visible .entry mix(.param .u64 state, .param .u64 number) {
  .reg .u64 %p<4>;
  ld.param.u64 %p1, [state];
  ld.param.u64 %p2, [number];
  ld.global.u64 %p3, [%p1];
  mul.lo.u64 %p3, %p3, 6364136223846793005;
  add.u64 %p3, %p3, %p2;
  st.global.u64 [%p1], %p3;
  ret;
}
.visible .entry count(.param .u64 to) {
  .reg .u32 %r<2>;
  .reg .u64 %p<2>;
  ld.param.u64 %p1, [to];
  atom.global.add.u32 %r1, [%p1], 1;
  ret;
}
)";

constexpr size_t kLargest = size_t{3} << 20;

struct Program {
  CUcontext context = nullptr;
  CUfunction mix = nullptr;
  CUfunction count = nullptr;
  CUdeviceptr counter = 0;

  Program() {
    OK(CU(cuInit)(0));
    OK(CU(cuDevicePrimaryCtxRetain)(&context, 0));
    OK(CU(cuCtxSetCurrent)(context));
    CUmodule module = nullptr;
    OK(CU(cuModuleLoadData)(&module, kCountingKernels));
    OK(CU(cuModuleGetFunction)(&mix, module, "mix"));
    OK(CU(cuModuleGetFunction)(&count, module, "count"));
    OK(CU(cuMemAlloc_v2)(&counter, 4));
    OK(CU(cuMemsetD8_v2)(counter, 0, 4));
    OK(CU(cuCtxSynchronize)());
  }
};

/// One thread of a program: its work on its stream, and the expected result.
class Worker {
 public:
  Worker(const Program& program, uint32_t seed) : program_(program), random_(seed) {
    OK(CU(cuCtxSetCurrent)(program_.context));
    OK(CU(cuStreamCreate)(&stream_, CU_STREAM_NON_BLOCKING));
    OK(CU(cuMemAlloc_v2)(&state_, 8));
    OK(CU(cuMemsetD8Async)(state_, 0, 8, stream_));
    OK(CU(cuMemAlloc_v2)(&buffer_, kLargest));
    OK(CU(cuMemHostAlloc)(&pinned_, size_t{64} << 10, 0));
  }

  void act() {
    switch (random_() % 6) {
      case 0: return check();
      case 1: return copyAround(1 + random_() % 2000);
      case 2: return copyAround(1 + random_() % kLargest);
      case 3: return land();
      default:
        for (auto n = random_() % 60; n; --n) launch();
    }
  }
  void check() {
    uint64_t state = 0;
    OK(CU(cuMemcpyDtoHAsync_v2)(&state, state_, 8, stream_));
    OK(CU(cuStreamSynchronize)(stream_));
    CHECK_EQ(state, expected_);
  }
  uint32_t counted() const { return counted_; }

 private:
  void launch() {
    uint64_t number = random_();
    void* parameters[] = {&state_, &number};
    OK(CU(cuLaunchKernel)(program_.mix, 1, 1, 1, 1, 1, 1, 0, stream_, parameters, nullptr));
    expected_ = expected_ * 6364136223846793005ULL + number;
    void* counter[] = {const_cast<CUdeviceptr*>(&program_.counter)};
    OK(CU(cuLaunchKernel)(program_.count, 1, 1, 1, 32, 1, 1, 0, stream_, counter, nullptr));
    counted_ += 32;
  }
  void copyAround(size_t bytes) {
    std::vector<unsigned char> out(bytes), back(bytes);
    uint64_t word = random_();
    for (unsigned char& each : out) each = static_cast<unsigned char>((word = word * 6364136223846793005ULL + 1) >> 56);
    const std::vector<unsigned char> kept = out;
    OK(CU(cuMemcpyHtoDAsync_v2)(buffer_, out.data(), bytes, stream_));
    // The bytes belong to the program again.
    std::fill(out.begin(), out.end(), static_cast<unsigned char>(0xee));
    launch();
    OK(CU(cuMemcpyDtoHAsync_v2)(back.data(), buffer_, bytes, stream_));
    OK(CU(cuStreamSynchronize)(stream_));
    CHECK(back == kept);
  }
  /// Bytes that arrive in pinned memory before anything waits for them.
  void land() {
    const auto value = static_cast<unsigned char>(random_());
    const size_t bytes = 1 + random_() % (size_t{64} << 10);
    OK(CU(cuMemsetD8Async)(buffer_, value, bytes, stream_));
    OK(CU(cuMemcpyDtoHAsync_v2)(pinned_, buffer_, bytes, stream_));
    OK(CU(cuStreamSynchronize)(stream_));
    const auto* landed = static_cast<unsigned char*>(pinned_);
    CHECK(std::all_of(landed, landed + bytes, [&](unsigned char each) { return each == value; }));
  }

  const Program& program_;
  std::minstd_rand random_;
  CUstream stream_ = nullptr;
  CUdeviceptr state_ = 0;
  CUdeviceptr buffer_ = 0;
  void* pinned_ = nullptr;
  uint64_t expected_ = 0;
  uint32_t counted_ = 0;
};

/// Three threads of a program work until the link has broken `cuts` times, and a little longer; their results must
/// equal those over an intact link. Returns the worker's log. `lanes`: for the data of copies of 1 MiB and more; they are cut, too.
std::string workThrough(Broken& broken, uint32_t seed, uint32_t cuts, uint32_t lanes = 0) {
  Shared& shared = broken.shared;
  ::setenv("MILLPOND_LANES", std::to_string(lanes).c_str(), 1);
  broken.start(cuts, "3600", [&] {
    const Program program;
    std::atomic<uint32_t> counted{0};
    std::vector<std::thread> threads;
    for (uint32_t t = 0; t < 3; ++t)
      threads.emplace_back([&, t] {
        Worker worker(program, seed + t);
        while (shared.cuts.load() < cuts) worker.act();
        for (int n = 0; n < 5; ++n) worker.act();
        worker.check();
        counted += worker.counted();
      });
    for (auto& thread : threads) thread.join();
    uint32_t count = 0;
    OK(CU(cuMemcpyDtoH_v2)(&count, program.counter, 4));
    CHECK_EQ(count, counted.load());
  });
  std::string said, workerSaid;
  const int status = broken.wait(said);
  const int ended = broken.worker->wait(workerSaid);
  if (status != 0 || ended != 0)
    fail(__FILE__, __LINE__,
         "seed " + std::to_string(seed) + ": program " + std::to_string(status) + ", worker " + std::to_string(ended) +
             "\n" + said + workerSaid);
  // A connection and its lanes can be cut at the same moment.
  CHECK(broken.shared.cuts.load() >= cuts && broken.shared.cuts.load() <= cuts + lanes);
  CHECK_EQ(timesIn(workerSaid, "protocol violation"), 0u);
  return workerSaid;
}

uint32_t givenSeed() {
  const char* given = std::getenv("MILLPOND_TEST_SEED");
  return given ? static_cast<uint32_t>(std::atoi(given)) : 20'261'122u;
}

const std::string kLinkSecret = "5ec2e7000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c";

}  // namespace

TEST("a program whose link is cut 100 times under load computes what it would have without") {
  constexpr uint32_t kCuts = 100;
  Broken broken(givenSeed());
  const std::string said = workThrough(broken, givenSeed(), kCuts);
  // Some cuts hit a greeting, so that one return covers several cuts.
  CHECK(timesIn(said, "the client is back") > kCuts / 4);
}

TEST("so does one whose link is encrypted, where it is cut and where bytes are changed on the way") {
  constexpr uint32_t kCuts = 30;
  for (const bool changing : {false, true}) {
    Broken broken(givenSeed(), {}, kLinkSecret);
    if (changing) broken.proxy->setChanging();
    const std::string said = workThrough(broken, givenSeed(), kCuts);
    CHECK(timesIn(said, "the client is back") > kCuts / 4);
  }
}

TEST("so does one with lanes, any of which is cut or carries changed bytes") {
  constexpr uint32_t kLanes = 4;
  {
    Broken broken(givenSeed());
    workThrough(broken, givenSeed(), 100, kLanes);
  }
  for (const bool changing : {false, true}) {
    Broken broken(givenSeed(), {}, kLinkSecret);
    if (changing) broken.proxy->setChanging();
    workThrough(broken, givenSeed(), 60, kLanes);
  }
}

TEST("what a program sends and receives is on the wire for all to see, unless the link is encrypted") {
  std::vector<std::byte> marker(32);
  for (size_t i = 0; i < marker.size(); ++i) marker[i] = static_cast<std::byte>(17 * i + 1);
  for (const std::string& secret : {std::string(), kLinkSecret}) {
    Broken broken(1, {}, secret);
    broken.proxy->watchFor(marker);
    broken.start(0, "60", [&] {
      const Program program;
      CUdeviceptr memory = 0;
      std::vector<std::byte> back(marker.size());
      OK(CU(cuMemAlloc_v2)(&memory, marker.size()));
      OK(CU(cuMemcpyHtoD_v2)(memory, marker.data(), marker.size()));
      OK(CU(cuMemcpyDtoH_v2)(back.data(), memory, back.size()));
      CHECK(back == marker);
    });
    std::string said;
    CHECK_EQ(broken.wait(said), 0);
    CHECK_EQ(broken.worker->wait(said), 0);
    CHECK_EQ(broken.proxy->seen(), secret.empty() ? 2u : 0u);
  }
}

TEST(
    "a client without the link's secret, or with another, gets no GPU, and the session is still there for the right one") {
  Broken broken(1, {}, kLinkSecret);
  Shared& shared = broken.shared;
  broken.start(0, "60", [&] {
    const std::string own = kLinkSecret;
    for (const std::string& wrong : {std::string(), "00" + own.substr(2)}) {
      ::setenv("MILLPOND_LINK_SECRET", wrong.c_str(), 1);
      CHECK_EQ(CU(cuInit)(0), CUDA_ERROR_DEVICE_UNAVAILABLE);
    }
    ::setenv("MILLPOND_LINK_SECRET", own.c_str(), 1);
    const Program program;
    shared.step.store(1);
  });
  std::string said, workerSaid;
  CHECK_EQ(broken.wait(said), 0);
  CHECK_EQ(broken.worker->wait(workerSaid), 0);
  CHECK_EQ(shared.step.load(), 1u);
  CHECK_EQ(timesIn(workerSaid, "a connection was rejected: it is not encrypted as this session's are"), 2u);
  CHECK_EQ(timesIn(said, "does not accept the encrypted connection of this session"), 1u);
}

TEST("a waiting call waits through a link that is away, and the context is as it was") {
  Broken broken;
  Shared& shared = broken.shared;
  broken.start(0, "3600", [&] {
    const Program program;
    CUdeviceptr memory = 0;
    OK(CU(cuMemAlloc_v2)(&memory, 4096));
    OK(CU(cuMemsetD32_v2)(memory, 77, 1024));
    OK(CU(cuCtxSynchronize)());
    shared.step.store(1);
    while (shared.step.load() != 2) ::usleep(1000);
    std::vector<uint32_t> back(1024);
    OK(CU(cuMemcpyDtoH_v2)(back.data(), memory, 4096));
    CHECK(back == std::vector<uint32_t>(1024, 77));
    shared.step.store(3);
  });
  broken.waitForStep(1);
  broken.proxy->setOff(true);
  shared.step.store(2);
  // The program is in its call, or about to be, and gets no answer.
  ::usleep(200'000);
  CHECK_EQ(shared.step.load(), 2u);
  broken.proxy->setOff(false);
  std::string said;
  CHECK_EQ(broken.wait(said), 0);
  CHECK_EQ(broken.worker->wait(said), 0);
}

TEST("a link that stays away ends the program's GPU with a reason, and the worker") {
  Broken broken;
  Shared& shared = broken.shared;
  broken.start(0, "1", [&] {
    const Program program;
    shared.step.store(1);
    while (shared.step.load() != 2) ::usleep(1000);
    CHECK_EQ(CU(cuCtxSynchronize)(), CUDA_ERROR_DEVICE_UNAVAILABLE);
    CHECK_EQ(CU(cuCtxSynchronize)(), CUDA_ERROR_DEVICE_UNAVAILABLE);
    // The worker ends although this process lives.
    while (shared.step.load() != 3) ::usleep(1000);
  });
  broken.waitForStep(1);
  broken.proxy->setOff(true);
  shared.step.store(2);
  std::string said, workerSaid;
  CHECK_EQ(broken.worker->wait(workerSaid), 0);
  shared.step.store(3);
  CHECK_EQ(broken.wait(said), 0);
  CHECK_EQ(timesIn(workerSaid, "the client did not come back within 1 s"), 1u);
  CHECK_EQ(timesIn(said, "the GPU of this process is gone: the connection to the worker at 127.0.0.1:"), 1u);
  CHECK_EQ(timesIn(said, "could not be restored within 1 s"), 1u);
}

TEST("the node's limit is the most that a client is waited for") {
  Broken broken(1, {"--reconnect-grace", "0"});
  Shared& shared = broken.shared;
  broken.start(0, "3600", [&] {
    const Program program;
    shared.step.store(1);
    while (shared.step.load() != 2) ::usleep(1000);
    CHECK_EQ(CU(cuCtxSynchronize)(), CUDA_ERROR_DEVICE_UNAVAILABLE);
  });
  broken.waitForStep(1);
  broken.proxy->setOff(true);
  std::string said;
  CHECK_EQ(broken.worker->wait(said), 0);
  shared.step.store(2);
  CHECK_EQ(broken.wait(said), 0);
}

TEST("a program that is killed, and a worker that is killed, are not waited for") {
  for (const bool worker : {false, true}) {
    Broken broken;
    Shared& shared = broken.shared;
    broken.start(0, "86400", [&] {
      const Program program;
      shared.step.store(1);
      while (CU(cuCtxSynchronize)() == CUDA_SUCCESS) {
      }
    });
    broken.waitForStep(1);
    ::kill(worker ? broken.worker->pid() : broken.child(), SIGKILL);
    std::string said, workerSaid;
    CHECK_EQ(broken.wait(said), worker ? 0 : 128 + SIGKILL);
    CHECK_EQ(broken.worker->wait(workerSaid), worker ? 128 + SIGKILL : 0);
    CHECK_EQ(timesIn(said, "the GPU of this process is gone: the worker is gone"), worker ? 1u : 0u);
  }
}
