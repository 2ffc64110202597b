// SPDX-License-Identifier: Apache-2.0
// A client that changes its commands in shared memory while its worker reads them: the worker executes exactly the
// bytes that it checked.
#include <atomic>
#include <cstdio>
#include <thread>

#include "worker/testing/canary.h"
#include "worker/testing/own_session.h"

namespace millpond::worker {
namespace {

TEST("addresses that a thread changes between the looks at a command") {
  OwnSession session(Carrier::kSharedMemory);
  const Canary canary;
  constexpr uint64_t kMemory = 4096;
  const uint64_t memory = session.allocate(kMemory);
  std::atomic<bool> isOver{false};
  std::atomic<uint64_t> changed{0};
  std::thread liar([&] {
    const std::span<std::byte> ring(session.submitBytes(), wire::kSubmitBytes);
    while (!isOver.load())
      for (size_t at = 0; at + 8 <= ring.size() && !isOver.load(); at += 8) {
        std::atomic_ref<uint64_t> word(*reinterpret_cast<uint64_t*>(ring.data() + at));
        uint64_t there = word.load(std::memory_order_relaxed);
        if (there == memory && word.compare_exchange_strong(there, canary.address()))
          changed.fetch_add(1);
        else if (there == canary.address())
          word.compare_exchange_strong(there, memory);
      }
  });
  uint64_t sent = 0;
  for (int round = 0; round < 400 && !session.isLost(); ++round) {
    for (int i = 0; i < 50; ++i) {
      cmd::MemsetD8Async fill{};
      fill.dstDevice = memory;
      fill.N = 64;
      session.run(fill);
      cmd::MemcpyDtoDAsyncV2 copy{};
      copy.dstDevice = memory;
      copy.srcDevice = memory;
      copy.ByteCount = 64;
      session.run(copy);
      CUstreamBatchMemOpParams word{};
      word.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
      word.writeValue.address = memory;
      cmd::StreamBatchMemOpV2 batch{};
      batch.count = 1;
      session.run(batch, std::as_bytes(std::span(&word, 1)));
      sent += 3;
    }
    session.settle();
  }
  isOver.store(true);
  liar.join();
  std::printf("  %llu commands, %llu words changed\n", static_cast<unsigned long long>(sent),
              static_cast<unsigned long long>(changed.load()));
  for (const std::string& each : DriverGuard::takeViolations()) testing::fail(__FILE__, __LINE__, each);
  CHECK(canary.isUnchanged());
  CHECK(session.isLost() || !Canary::isIn(session.download(memory, kMemory)));
}

}  // namespace
}  // namespace millpond::worker
