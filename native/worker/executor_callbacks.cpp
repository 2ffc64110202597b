// SPDX-License-Identifier: Apache-2.0
// Functions of the client in the order of streams. The driver comes to one on a thread of its own, which waits until the
// client has run it; the issuing thread carries the word to and fro.
#include <algorithm>

#include "worker/executor.h"

namespace millpond::worker {

CUresult Executor::onHostFunction(const cmd::Decoded<cmd::HostFunction>& command) {
  const auto& in = command.fixed;
  Stream s;
  if (!stream(in.stream, s)) return violation("unknown stream");
  if (in.kind > static_cast<uint32_t>(CallbackKind::kStreamCallback)) return violation("a callback of no kind");
  const Callback callback{static_cast<CallbackKind>(in.kind), primaryOf(s.context), in.function, in.data, in.handle};
  const bool captured = captureStatus(s) != CU_STREAM_CAPTURE_STATUS_NONE;
  const CUresult rc = captured && callback.kind == CallbackKind::kHostFunction ? captureHostFunction(s, callback)
                                                                             : issueHostFunction(s, callback);
  // The client counts on hearing of it.
  if (rc || captured) callbacks_->announce({CallbackKind::kNothing, primaryOf(s.context), 0, 0, 0});
  return rc;
}

CUresult Executor::issueHostFunction(const Stream& s, const Callback& callback) {
  auto call = std::make_unique<HostCall>(HostCall{callbacks_, callback});
  CUresult rc = CUDA_ERROR_NOT_SUPPORTED;
  if (callback.kind == CallbackKind::kHostFunction && driver_.cuLaunchHostFunc)
    rc = driver_.cuLaunchHostFunc(s.handle, &HostCall::runOnce, call.get());
  else if (callback.kind == CallbackKind::kStreamCallback && driver_.cuStreamAddCallback)
    rc = driver_.cuStreamAddCallback(s.handle, &HostCall::runOnceWithStatus, call.get(), 0);
  if (rc) return rc;
  call.release();  // the driver has it now
  ++callbacksExpected_;
  return CUDA_SUCCESS;
}

CUresult Executor::onCallbackNext(const cmd::Decoded<cmd::CallbackNext>&) {
  if (current_.request == 0) return violation("nobody waits for the callback");
  if (!current_.context || primaryOf(current_.context) != current_.context)
    return violation("callbacks are for the threads of devices");
  callbackWaiters_.push_back(current_);
  progressCallbacks();
  return kDeferred;
}

CUresult Executor::onCallbackDone(const cmd::Decoded<cmd::CallbackDone>& command) {
  if (!callbacks_->done(command.fixed.number)) return violation("no such function is running");
  if (callbacksExpected_ > 0) --callbacksExpected_;
  return CUDA_SUCCESS;
}

CUresult Executor::withoutCallbacks(std::function<CUresult()> command) {
  if (callbacksExpected_ == 0) return command();
  afterCallbacks_.emplace_back(current_, std::move(command));
  return kDeferred;
}

bool Executor::progressCallbacks() {
  bool some = false;
  // A context that has failed comes to no function any more, but waits for those that it has come to.
  if (callbacksExpected_ > 0 && !afterCallbacks_.empty() && useContext(afterCallbacks_.front().first.context)) {
    const CUresult state = driver_.cuStreamQuery(nullptr);
    if (state == CUDA_ERROR_UNKNOWN || (state >= CUDA_ERROR_ILLEGAL_ADDRESS && state <= CUDA_ERROR_LAUNCH_FAILED))
      callbacksExpected_ = std::min<uint64_t>(callbacksExpected_, callbacks_->running());
  }
  while (callbacksExpected_ == 0 && !afterCallbacks_.empty() && !ended_) {
    const auto [request, command] = std::move(afterCallbacks_.front());
    afterCallbacks_.pop_front();
    some = true;
    replyBody_.clear();
    if (request.context) useContext(request.context);
    current_ = request;
    if (const CUresult result = command(); result != kDeferred) answer(request, result);
  }
  for (auto w = callbackWaiters_.begin(); w != callbackWaiters_.end() && !ended_;) {
    const auto due = callbacks_->take(w->context);
    if (!due) {
      ++w;
      continue;
    }
    const Request waiter = *w;
    w = callbackWaiters_.erase(w);
    some = true;
    // What the graph has copied to the client before it.
    if (due->node)
      for (const GraphRun& run : graphRuns_)
        for (const auto& [node, call] : run.contents->calls)
          if (call == due->node)
            for (const uint64_t copy : run.contents->before.at(node))
              if (const auto stage = run.contents->stages.find(copy); stage != run.contents->stages.end())
                land(*stage->second);
    replyBody_.clear();
    const Callback& callback = due->callback;
    reply(cmd::CallbackNextReply{due->number, callback.function, callback.data, callback.handle,
                                 static_cast<uint32_t>(callback.kind), static_cast<int32_t>(due->status)});
    // What the stream has copied to the client before this lands before it: answers come behind landings.
    answer(waiter, CUDA_SUCCESS);
  }
  return some;
}

}  // namespace millpond::worker
