// SPDX-License-Identifier: Apache-2.0
// One driver call in progress: the common part of generated and manually written calls.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <type_traits>
#include <vector>

#include "client/call/flavour.h"
#include "client/call/mirror_turn.h"
#include "client/memory/command_sink.h"
#include "client/process/host_functions.h"
#include "client/session/remote.h"
#include "client/state/answer_cache.h"
#include "client/state/capture_state.h"
#include "client/state/handle_table.h"
#include "cuda/gen/cuda_api.h"
#include "protocol/client/session_client.h"
#include "protocol/completion.h"
#include "protocol/gen/command_layouts.h"
#include "protocol/gen/commands.h"

namespace millpond::client {

/// The context of a call.
enum class Needs : uint8_t {
  kNothing,    ///< the current one, if there is one
  kCurrent,    ///< the current one; without one the result is CUDA_ERROR_INVALID_CONTEXT
  kAny,        ///< the current one, or that of the call's first handle or address with a context, as in the driver
  kNoContext,  ///< the current one, whose failures do not concern the call. Libraries and their kernels outlive contexts,
               ///< and the CUDA runtime asks for a kernel only once, whatever the result
};

/// Whether the stream is one of the default streams, whose meaning depends on the context and possibly the thread.
inline bool isDefaultStream(CUstream stream) noexcept {
  return reinterpret_cast<uintptr_t>(stream) <= reinterpret_cast<uintptr_t>(CU_STREAM_PER_THREAD);
}

class Call {
 public:
  /// Checks common to all calls: initialised, not a forked child, the session alive, no unreported failure of an
  /// earlier asynchronous call, and the context.
  Call(const char* name, Needs needs) noexcept;
  /// For destroying objects in a context, whatever its state: failures do not prevent it and are not reported.
  struct Teardown {
    uint16_t context;
  };
  Call(const char* name, Teardown teardown) noexcept;
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  /// Anything but success is the call's result.
  CUresult entry() const noexcept { return origin_ == Origin::kSought ? CUDA_SUCCESS : entry_; }
  /// Number of the context that owns objects created by the call: the current one, or for a green context its primary.
  /// 0: none.
  uint16_t context() const noexcept { return home_; }
  /// Number of the current context.
  uint16_t currentContext() const noexcept { return caller_.context; }
  /// Lets a call that needs any context use the one with this number, if the thread has none. Any result but success is
  /// the call's result.
  CUresult adopt(uint16_t context) noexcept;
  /// Makes the call act in a context other than the current one.
  void useContext(uint16_t context) noexcept { caller_.context = home_ = context; }
  /// Whether the stream that was resolved last is the legacy one.
  bool namesLegacy() const noexcept { return namesLegacy_; }

  /// Number of the calling thread.
  uint32_t thread() const noexcept { return caller_.thread; }

  Remote& remote() const noexcept { return *remote_; }
  Session& session() const noexcept { return *session_; }

  /// Resolves 0 and the special handles 1 and 2 by variant and thread.
  CUresult stream(CUstream in, Flavour flavour, uint64_t& wire) noexcept;
  /// The context of a stream, by the number that `stream` returned.
  uint16_t streamContext(uint64_t stream) const noexcept;
  CUresult handle(HandleKind kind, const void* in, uint64_t& wire) noexcept;
  CUresult functionOrKernel(const void* in, uint64_t& wire) noexcept;
  CUresult device(CUdevice in, int32_t& wire) noexcept;
  /// Allocates a handle and stores it through `out`.
  uint64_t create(HandleKind kind, void** out, HandleTraits traits = {}) noexcept;
  /// Retires a handle; its slot is free again when the command has been posted.
  CUresult destroy(HandleKind kind, const void* in, uint64_t& wire) noexcept;
  /// Drops cached data of a function or kernel.
  void forget(uint64_t wire) noexcept {
    remote_->answers.forget(wire);
    if (const HandleTable::Slot* slot = remote_->handles.find(wire); slot && slot->function)
      slot->function->forgetAllowed();
  }

  /// Makes the following commands wait for their result, for calls that must return the driver's refusal.
  void waitForResult() noexcept { waits_ = true; }
  /// Makes the following commands wait until the device has executed them.
  void waitForWork() noexcept { blocks_ = true; }

  /// Sends a command without waiting for a reply.
  template <typename C, typename... Tails>
  CUresult post(const C& fixed, const Tails&... tails) noexcept {
    static_assert(!C::kHasReply, "a command with a reply has to be sent by wait()");
    if (entry_ != CUDA_SUCCESS) return entry_;
    if (const CUresult r = reach(fixed, tails...); r != CUDA_SUCCESS) return r;
    const size_t bytes = cmd::encodedSize<C>(tails...);
    std::vector<std::byte> encoded;
    if ((mayFault<C>(tails) || ...)) [[unlikely]]
      encoded = encodedAhead(fixed, tails...);
    const auto fill = [&](std::byte* place) {
      if constexpr (leavesWork<C>()) remote_->work.give();
      if (encoded.empty()) [[likely]]
        cmd::encode(place, fixed, tails...);
      else
        std::memcpy(place, encoded.data(), encoded.size());
    };
    if constexpr (cmd::isWaitForWord(C::kOp)) remote_->queues.expectWord();
    if constexpr (isQueued(C::kOp))
      if (const CUresult r = enqueue(streamOf(fixed), bytes); r != CUDA_SUCCESS) return r;
    if constexpr (isRecord(C::kOp))
      if (const CUresult r = enqueueRecord(fixed.hEvent, streamOf(fixed)); r != CUDA_SUCCESS) return r;
    const MirrorTurn turn = this->turn(fixed);
    const bool blocks = cmd::isWork(C::kOp) && (remote_->blocking || blocks_);
    // A captured stream must not wait for work outside of its capture.
    const bool asks = C::kOp == cmd::Op::kStreamWaitEvent && CaptureState::anyOpen();
    if (blocks || remote_->synchronous || waits_ || asks) [[unlikely]] {
      if (endsWhileParked()) return sent(true);
      Session::Answer answer;
      const CUresult result = settle(session_->wait(static_cast<uint16_t>(C::kOp), caller_, bytes, fill, answer));
      return result == CUDA_SUCCESS && blocks ? awaitWork(streamOf(fixed)) : result;
    }
    return sent(session_->post(static_cast<uint16_t>(C::kOp), caller_, bytes, fill));
  }
  /// Whether the stream's work becomes part of a graph. The worker is queried once for each stream of a capture.
  CUresult isCaptured(uint64_t stream, bool& captured) noexcept;
  /// Whether work for the stream is executed, not recorded.
  bool isDoneNow(uint64_t stream) noexcept;
  /// If calls are blocking: waits until the stream's work is done, so that a failure is returned by this call.
  CUresult awaitWork(uint64_t stream) noexcept;
  /// As `post` for a command with one tail, which is large. Never waits for the result.
  /// @param isAwaited for a copy in a default stream that follows nothing under way: set to whether that is so, and the copy
  ///   is done before commands that are appended after it
  template <typename C>
  CUresult postData(C fixed, std::span<const std::byte> data, Session::Data whose = Session::Data::kCallers,
                    bool* isAwaited = nullptr) noexcept {
    if (entry_ != CUDA_SUCCESS) return entry_;
    if (const CUresult r = reach(fixed, data); r != CUDA_SUCCESS) return r;
    fixed.setTailBytes({static_cast<uint32_t>(data.size())});
    if constexpr (isQueued(C::kOp))
      if (const CUresult r = enqueue(streamOf(fixed), data.size()); r != CUDA_SUCCESS) return r;
    const Handover::Use use(remote_->mapped.handover(), remote_->memory, data.data(), data.size());
    const MirrorTurn turn = this->turn(fixed);
    std::vector<std::byte> copied;
    if (!use.isOfOwn() && Mirror::exists() &&
        remote_->mirror.overlaps(reinterpret_cast<uint64_t>(data.data()), data.size())) [[unlikely]] {
      // A page fault must not occur while the session's locks are held.
      copied.assign(data.begin(), data.end());
      data = copied;
      whose = Session::Data::kCallers;
    }
    return sent(session_->postWithData(
        static_cast<uint16_t>(C::kOp), caller_, C::kFixedBytes,
        [&](std::byte* place) {
          const bool awaits = isAwaited && remote_->work.isDone();
          if (isAwaited) *isAwaited = awaits;
          if constexpr (requires { fixed.completion; })
            if (awaits) fixed.completion = cmd::kBeforeLaterCommands;
          if (leavesWork<C>() && !awaits) remote_->work.give();
          std::memcpy(place, &fixed, C::kFixedBytes);
        },
        data, whose));
  }
  /// Sends a command and waits for its result.
  template <typename C, typename R, typename... Tails>
  CUresult wait(const C& fixed, R& reply, const Tails&... tails) noexcept {
    Session::Answer answer;
    if constexpr (R::kFixedBytes > 0) answer.body = std::as_writable_bytes(std::span(&reply, 1));
    const CUresult result = waitFor(fixed, answer, tails...);
    if (result == CUDA_SUCCESS && answer.bodyBytes < R::kFixedBytes) return CUDA_ERROR_UNKNOWN;
    return result;
  }
  /// Like `wait`, with a reply buffer from the caller.
  template <typename C, typename... Tails>
  CUresult waitFor(const C& fixed, Session::Answer& answer, const Tails&... tails) noexcept {
    if (entry_ != CUDA_SUCCESS) return entry_;
    if (const CUresult r = reach(fixed, tails...); r != CUDA_SUCCESS) return r;
    if constexpr (isTurn(C::kOp) || endsTurn(C::kOp)) {
      if (Mirror::exists()) [[unlikely]] {
        // A wait only reads, so the device's turn can end before it.
        (void)turn(fixed);
        if constexpr (endsTurn(C::kOp)) remote_->mirror.beginWait(isAnsweredAtOnce(C::kOp));
        const auto whole = C::kOp == cmd::Op::kContextSync ? momentOfAll() : std::nullopt;
        const CUresult result = settle(ask(fixed, answer, tails...));
        if (result == CUDA_SUCCESS && endsTurn(C::kOp)) remote_->mirror.afterWait(whole);
        return result;
      }
    }
    const CUresult result = settle(ask(fixed, answer, tails...));
    if constexpr (endsTurn(C::kOp))
      if (const auto over = remote_->landings.takeReport()) [[unlikely]]
        reportLandings(*over);
    return result;
  }
  /// As `wait`, but cached for these arguments. `scope`: the function or kernel whose Set calls change the result.
  template <typename C, typename R>
  CUresult waitCached(uint64_t scope, const C& fixed, R& reply) noexcept {
    return waitCached(remote_->answers, scope, fixed, reply);
  }
  /// Like the above, with a cache from the caller.
  template <size_t maxCommand, size_t maxReply, typename C, typename R>
  CUresult waitCached(BasicAnswerCache<maxCommand, maxReply>& cache, uint64_t scope, const C& fixed,
                      R& reply) noexcept {
    static_assert(sizeof(C) <= maxCommand && sizeof(R) <= maxReply);
    if (entry_ != CUDA_SUCCESS) return entry_;
    // The cached answer may concern memory that was there before.
    if (const CUresult r = reach(fixed); r != CUDA_SUCCESS) return r;
    const auto key = cache.key(static_cast<uint16_t>(C::kOp), caller_.context, std::as_bytes(std::span(&fixed, 1)));
    const auto answer = std::as_writable_bytes(std::span(&reply, 1));
    if (cache.find(key, answer)) return CUDA_SUCCESS;
    const uint64_t asked = cache.generation();
    const CUresult result = wait(fixed, reply);
    if (result == CUDA_SUCCESS) cache.remember(key, scope, answer, asked);
    return result;
  }
  /// Discards the results of earlier commands in the call's context.
  void dropFailure() noexcept;
  /// For a call that sets an attribute of a function or kernel, `scope`: it is not sent again with the same arguments
  /// unless something else was set meanwhile.
  template <typename C>
  CUresult waitOnce(uint64_t scope, const C& fixed) noexcept {
    if (entry_ != CUDA_SUCCESS) return entry_;
    if (const CUresult r = reach(fixed); r != CUDA_SUCCESS) return r;
    AnswerCache& answers = remote_->answers;
    const auto key =
        AnswerCache::key(static_cast<uint16_t>(C::kOp), caller_.context, std::as_bytes(std::span(&fixed, 1)));
    std::array<std::byte, 1> done{};
    if (answers.find(key, done)) return CUDA_SUCCESS;
    typename C::Reply reply{};
    const CUresult result = wait(fixed, reply);
    forget(scope);
    if (result == CUDA_SUCCESS) answers.remember(key, scope, done, answers.generation());
    return result;
  }
  /// Waits until the worker has issued everything before, and returns the first failure.
  CUresult check() noexcept;
  /// Waits until the worker has received everything before, and leaves failures to the calls that report them. False:
  /// the session is lost.
  bool awaitTaken() noexcept;

 private:
  /// Gives the worker access to memory of this process that the command refers to, directly or for a kernel. Done for
  /// every command, so that no call can forget it.
  template <typename C, typename... Tails>
  CUresult reach(const C& fixed, const Tails&... tails) noexcept {
    constexpr const cmd::CommandLayout& layout = cmd::layoutOf(C::kOp);
    if constexpr (layout.namesMemory()) {
      if (!remote_->memory.hasLocal()) [[likely]]
        return CUDA_SUCCESS;
      const std::array<std::span<const std::byte>, sizeof...(Tails)> all{std::as_bytes(std::span(tails))...};
      return reachCommand(layout, std::as_bytes(std::span(&fixed, 1)), all);
    }
    return CUDA_SUCCESS;
  }
  /// Whether reading the program's memory for a command may fault, now or because another thread gives its address to a
  /// kernel. That must not happen while the session's locks are held, or during the device's turn.
  template <typename C, typename Tail>
  bool mayFault(const Tail& tail) const noexcept {
    // The parameters of a launch have already been copied.
    if constexpr (C::kOp == cmd::Op::kLaunch) return false;
    if (!Mirror::exists() && !remote_->memory.hasLocal()) [[likely]]
      return false;
    const auto bytes = std::as_bytes(std::span(tail));
    const auto address = reinterpret_cast<uint64_t>(bytes.data());
    if (Mirror::exists() && remote_->mirror.overlaps(address, bytes.size())) return true;
    const auto run = remote_->memory.find(address);
    return run && run->kind == MemoryKind::kPinnedLocal;
  }
  template <typename C, typename... Tails>
  static std::vector<std::byte> encodedAhead(const C& fixed, const Tails&... tails) noexcept {
    std::vector<std::byte> out(cmd::encodedSize<C>(tails...));
    cmd::encode(out.data(), fixed, tails...);
    return out;
  }
  CUresult reachCommand(const cmd::CommandLayout& layout, std::span<const std::byte> fixed,
                        std::span<const std::span<const std::byte>> tails) noexcept;
  /// Waits for room in the stream's queue.
  CUresult admit(uint64_t stream, size_t bytes) noexcept;
  void reportLandings(uint64_t over) noexcept;
  /// Called before work that could fill the stream's queue.
  CUresult enqueue(uint64_t stream, size_t bytes) noexcept {
    if (!HostFunctions::anyPending() && !remote_->queues.hasWords()) [[likely]]
      return CUDA_SUCCESS;
    return admit(stream, bytes);
  }
  /// The same for the recording of an event.
  CUresult enqueueRecord(uint64_t event, uint64_t stream) noexcept {
    if (!HostFunctions::anyPending() && !remote_->queues.hasWords()) [[likely]]
      return CUDA_SUCCESS;
    const auto* slot = remote_->handles.find(event);
    const bool isTimed = slot && !(slot->traits.flags & CU_EVENT_DISABLE_TIMING);
    return isTimed ? admit(stream, 0) : CUDA_SUCCESS;
  }
  /// The device's turn to use mirrored memory, held while the command is appended.
  template <typename C>
  MirrorTurn turn(const C& fixed) noexcept {
    if constexpr (isTurn(C::kOp))
      if (Mirror::exists() && touchesMirror(remote_->mirror, fixed) && isDoneNow(streamOf(fixed))) [[unlikely]]
        return MirrorTurn(remote_->mirror, caller_.context, streamOf(fixed));
    return {};
  }
  /// Sends a command for which `waitFor` waits.
  template <typename C, typename... Tails>
  int32_t ask(const C& fixed, Session::Answer& answer, const Tails&... tails) noexcept {
    if ((mayFault<C>(tails) || ...)) [[unlikely]] {
      const std::vector<std::byte> encoded = encodedAhead(fixed, tails...);
      return session_->wait(
          static_cast<uint16_t>(C::kOp), caller_, encoded.size(),
          [&](std::byte* place) {
            if constexpr (leavesWork<C>()) remote_->work.give();
            std::memcpy(place, encoded.data(), encoded.size());
          },
          answer);
    }
    uint64_t given = 0;
    const int32_t result = session_->wait(
        static_cast<uint16_t>(C::kOp), caller_, cmd::encodedSize<C>(tails...),
        [&](std::byte* place) {
          if constexpr (leavesWork<C>()) remote_->work.give();
          given = remote_->work.given();
          cmd::encode(place, fixed, tails...);
        },
        answer);
    if (result == CUDA_SUCCESS && endsWork(fixed) && isOnlyContext()) remote_->work.end(given);
    return result;
  }
  /// The position up to which all work is done when a wait for the whole context has succeeded.
  std::optional<uint64_t> momentOfAll() noexcept;
  static bool isOnlyContext() noexcept;
  template <typename C>
  static std::optional<uint64_t> streamIn(const C& fixed) noexcept {
    if constexpr (requires { fixed.stream; })
      return fixed.stream;
    else if constexpr (requires { fixed.hStream; })
      return fixed.hStream;
    else
      return std::nullopt;
  }
  template <typename C>
  static uint64_t streamOf(const C& fixed) noexcept {
    return streamIn(fixed).value_or(0);
  }
  CUresult sent(bool alive) noexcept;
  /// Whether the object that the call destroys belonged to a parked session, and ends with it.
  bool endsWhileParked() noexcept;
  CUresult settle(int32_t result) noexcept;
  /// Checks that depend on the context in which the call acts.
  void enter() noexcept;
  /// Assigns a failure reported by the worker to its context.
  void collectFailure() noexcept;
  /// The failure of an earlier command in the call's context for which no thread waited.
  CUresult pendingFailure() noexcept;

  /// The source of the call's context.
  enum class Origin : uint8_t {
    kThread,    ///< the thread: its current one, or none
    kSought,    ///< the thread has none, but one of the arguments may
    kArgument,  ///< one of them had
    kApart,     ///< the thread, but the context's failures are not the call's
  };

  const char* name_;
  CUresult entry_ = CUDA_SUCCESS;
  Origin origin_ = Origin::kThread;
  uint16_t home_ = 0;
  bool namesLegacy_ = false;
  bool waits_ = false;   ///< posted commands wait for their results
  bool blocks_ = false;  ///< posted work is awaited
  Session::Caller caller_{};
  Session* session_ = nullptr;
  Remote* remote_ = nullptr;
  std::vector<uint64_t> claimed_;
};

/// A call as seen by the lower layers, whose commands it sends.
class CallSink final : public CommandSink {
 public:
  explicit CallSink(Call& call) noexcept : call_(call) {}
  uint16_t context() const noexcept override { return call_.context(); }
  void useContext(uint16_t context) const noexcept override { call_.useContext(context); }
  uint16_t streamContext(uint64_t stream) const noexcept override { return call_.streamContext(stream); }
  bool isDoneNow(uint64_t stream) const noexcept override { return call_.isDoneNow(stream); }
  CUresult post(const cmd::MemFree& command) const noexcept override;
  CUresult wait(const cmd::MemAlloc& command, cmd::MemAllocReply& reply) const noexcept override;
  CUresult wait(const cmd::HostAlloc& command, cmd::HostAllocReply& reply) const noexcept override;
  CUresult wait(const cmd::HostFree& command, cmd::HostFreeReply& reply) const noexcept override;
  CUresult wait(const cmd::HostMirror& command, cmd::HostMirrorReply& reply) const noexcept override;
  CUresult wait(const cmd::LandingAwait& command, cmd::LandingAwaitReply& reply) const noexcept override;
  CUresult wait(const cmd::StreamQuery& command, cmd::StreamQueryReply& reply) const noexcept override;
  CUresult wait(const cmd::StreamSync& command, cmd::StreamSyncReply& reply) const noexcept override;

 private:
  Call& call_;
};

}  // namespace millpond::client
