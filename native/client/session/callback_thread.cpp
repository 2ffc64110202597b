// SPDX-License-Identifier: Apache-2.0
#include "client/session/callback_thread.h"

#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <mutex>
#include <vector>

#include "base/log.h"
#include "client/process/client.h"
#include "client/process/host_functions.h"
#include "client/process/threads.h"
#include "client/session/remote.h"
#include "cuda/graph_node.h"
#include "protocol/client/session_client.h"
#include "protocol/futex.h"
#include "protocol/gen/commands.h"

namespace millpond::client {
namespace {

constexpr uint16_t kMaxDevices = 64;

/// Number of the primary context of the context's device, to which the thread belongs. 0: there is none.
uint16_t primaryOf(uint16_t context) noexcept {
  const Context* known = contextOf(context);
  return known && known->sessionDevice() < kMaxDevices ? static_cast<uint16_t>(known->sessionDevice() + 1)
                                                       : uint16_t{0};
}

/// Values of CallbackNextReply::kind.
enum Kind : uint32_t { kHostFunction, kStreamCallback, kDestructor, kNothing };

}  // namespace

struct CallbackLoop {
  Session* session = nullptr;
  uint16_t context = 0;
  std::atomic<uint32_t> expected{0};
  bool started = false;  // guarded by startMutex

  static CallbackLoop& of(uint16_t context) noexcept {
    static auto& all = *new std::array<CallbackLoop, kMaxDevices + 1>();
    return all[context];
  }
  static std::mutex& startMutex() noexcept {
    static auto& mutex = *new std::mutex();
    return mutex;
  }

  /// The thread waits for the worker only while something is expected: a waiting thread reads answers for all.
  void run() noexcept {
    const Session::Caller caller{context, threadNumber()};
    for (;;) {
      while (expected.load(std::memory_order_acquire) == 0) futexWait(expected, 0);
      std::vector<std::byte> body;
      Session::Answer answer;
      answer.whole = &body;
      const cmd::CallbackNext ask{};
      const int32_t result = session->wait(
          static_cast<uint16_t>(cmd::CallbackNext::kOp), caller, cmd::encodedSize<cmd::CallbackNext>(),
          [&](std::byte* place) { cmd::encode(place, ask); }, answer);
      if (session->lost()) return;
      cmd::Decoded<cmd::CallbackNextReply> reply;
      const cmd::CallbackNextReply& next = reply.fixed;
      if (result != 0 || !cmd::decode(std::span<const std::byte>(body), reply)) {
        log(LogLevel::Error, "callbacks of this process no longer run: the worker answered %d", result);
        return;
      }
      if (next.kind != kNothing && Mirror::exists()) Remote::instance().mirror.beginHostFunction();
      call(next);
      if (next.kind != kNothing && Mirror::exists()) Remote::instance().mirror.endHostFunction();
      if (next.kind <= kStreamCallback) {
        sendSources(next, reply.tail[0]);
        sendLate();
        cmd::CallbackDone done{};
        done.number = next.number;
        session->post(static_cast<uint16_t>(cmd::CallbackDone::kOp), caller, cmd::encodedSize<cmd::CallbackDone>(),
                      [&](std::byte* place) { cmd::encode(place, done); });
        session->flush();
      }
      expected.fetch_sub(1, std::memory_order_acq_rel);
      if (HostFunctions::pending_.fetch_sub(1, std::memory_order_acq_rel) == 1) Remote::instance().graphs.endLate();
    }
  }

  /// Sends memory that the function may have changed and that later launches read. Data in transit here is already at
  /// the worker.
  void sendLate() const noexcept {
    Remote& remote = Remote::instance();
    for (const graph::Source& source : remote.graphs.late()) {
      const auto run = remote.memory.find(source.address, source.bytes);
      if (run && run->kind == MemoryKind::kMirrored) continue;
      const Landings::Parts parts(remote.landings, source.address, source.bytes);
      for (const Landings::Part& part : parts)
        if (part.landing == 0) send({source.number, part.address, part.bytes, 0, 0});
    }
  }
  /// Sends memory that the function may have changed and that its graph reads later.
  void sendSources(const cmd::CallbackNextReply& function, std::span<const std::byte> page) const noexcept {
    uint32_t sent = 0;
    std::vector<std::byte> body;
    for (;;) {
      for (; page.size() >= sizeof(graph::Source); page = page.subspan(sizeof(graph::Source)), ++sent) {
        graph::Source source{};
        std::memcpy(&source, page.data(), sizeof(source));
        if (Remote::instance().graphs.mayUse(source))
          send(source);
        else
          log(LogLevel::Error, "the worker asks for memory of this process that no copy of its graphs names");
      }
      if (sent >= function.sourceCount) return;
      const cmd::CallbackSources ask{.number = function.number, .first = sent};
      Session::Answer answer;
      answer.whole = &body;
      cmd::Decoded<cmd::CallbackSourcesReply> reply;
      const int32_t result = session->wait(
          static_cast<uint16_t>(cmd::CallbackSources::kOp), {context, threadNumber()},
          cmd::encodedSize<cmd::CallbackSources>(), [&](std::byte* place) { cmd::encode(place, ask); }, answer);
      if (result != 0 || !cmd::decode(std::span<const std::byte>(body), reply) || reply.tail[0].empty()) return;
      page = reply.tail[0];
    }
  }
  void send(const graph::Source& source) const noexcept {
    for (uint64_t at = source.address; at < source.address + source.bytes; at += wire::kChunkBytes) {
      const auto bytes = std::min<uint64_t>(wire::kChunkBytes, source.address + source.bytes - at);
      // A copy, because reading the original may fault, which must not happen while the session's locks are held.
      const auto* first = reinterpret_cast<const std::byte*>(at);
      const std::vector<std::byte> data(first, first + bytes);
      cmd::GraphSource wire{.source = source.number, .address = at};
      wire.setTailBytes({static_cast<uint32_t>(data.size())});
      session->postWithData(
          static_cast<uint16_t>(cmd::GraphSource::kOp), {context, threadNumber()}, cmd::GraphSource::kFixedBytes,
          [&](std::byte* place) { std::memcpy(place, &wire, cmd::GraphSource::kFixedBytes); }, data);
    }
  }

  static void call(const cmd::CallbackNextReply& next) noexcept {
    auto* data = reinterpret_cast<void*>(next.data);
    const auto shape = next.kind == kStreamCallback ? GivenFunctions::Shape::kOfStream : GivenFunctions::Shape::kOfData;
    if (next.kind < kNothing && !Remote::instance().functions.use(shape, next.function, next.data)) {
      log(LogLevel::Error,
          "the worker requests a function that this program has not given to a stream or graph: it is not called");
      return;
    }
    HostFunctions::running_ = true;
    switch (next.kind) {
      case kHostFunction:
      case kDestructor: reinterpret_cast<CUhostFn>(next.function)(data); break;
      case kStreamCallback:
        reinterpret_cast<CUstreamCallback>(next.function)(reinterpret_cast<CUstream>(next.handle),
                                                          static_cast<CUresult>(next.status), data);
        break;
      default: break;
    }
    HostFunctions::running_ = false;
  }

  static void* main(void* self) {
    ::prctl(PR_SET_NAME, "millpond-calls");
    static_cast<CallbackLoop*>(self)->run();
    return nullptr;
  }

  bool start(Session& of, uint16_t primary) noexcept {
    const std::lock_guard lock(startMutex());
    if (started) return true;
    session = &of;
    context = primary;
    // The program's signals must be delivered to the program's threads.
    sigset_t all, before;
    ::sigfillset(&all);
    // Faults, however, belong to the thread that causes them: a function of the program may access mirrored memory.
    ::sigdelset(&all, SIGSEGV);
    ::pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_t thread{};
    started = ::pthread_create(&thread, nullptr, &CallbackLoop::main, this) == 0;
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    if (started) ::pthread_detach(thread);
    return started;
  }
};

CUresult CallbackThread::expect(Session& session, uint16_t context, uint32_t count) noexcept {
  const uint16_t primary = primaryOf(context);
  if (primary == 0) return CUDA_ERROR_INVALID_CONTEXT;
  if (count == 0) return CUDA_SUCCESS;
  CallbackLoop& loop = CallbackLoop::of(primary);
  if (!loop.start(session, primary)) {
    log(LogLevel::Error, "cannot start the thread that runs callbacks");
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  HostFunctions::given_.fetch_add(count, std::memory_order_acq_rel);
  if (HostFunctions::pending_.fetch_add(count, std::memory_order_acq_rel) == 0)
    HostFunctions::epoch_.fetch_add(1, std::memory_order_acq_rel);
  if (loop.expected.fetch_add(count, std::memory_order_acq_rel) == 0) futexWake(loop.expected);
  return CUDA_SUCCESS;
}

bool CallbackThread::busy(uint16_t context) noexcept {
  const uint16_t primary = primaryOf(context);
  return primary != 0 && CallbackLoop::of(primary).expected.load(std::memory_order_acquire) != 0;
}

}  // namespace millpond::client
