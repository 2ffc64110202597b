// SPDX-License-Identifier: Apache-2.0
#include "worker/commands/streams/host_functions.h"

#include <algorithm>

namespace millpond::worker {

CUresult HostFunctions::onHostFunction(const cmd::Decoded<cmd::HostFunction>& command) {
  const auto& in = command.fixed;
  Stream s;
  if (!stream(in.stream, s)) return violation("unknown stream");
  if (in.kind > static_cast<uint32_t>(CallbackKind::kStreamCallback)) return violation("a callback of unknown kind");
  const Callback callback{static_cast<CallbackKind>(in.kind), contexts_.primaryOf(s.context), in.function, in.data,
                          in.handle};
  const bool captured = captures_.status(s) != CU_STREAM_CAPTURE_STATUS_NONE;
  const CUresult rc = captured && callback.kind == CallbackKind::kHostFunction
                          ? captureCommands_.addHostFunction(s, callback)
                          : issue(s, callback);
  // The client relies on this message.
  if (rc || captured) callbacks_->announce({CallbackKind::kNothing, contexts_.primaryOf(s.context), 0, 0, 0});
  return rc;
}

CUresult HostFunctions::issue(const Stream& s, const Callback& callback) {
  functions_.load();
  auto call = std::make_unique<HostCall>(HostCall{callbacks_, callback});
  CUresult rc = CUDA_ERROR_NOT_SUPPORTED;
  if (callback.kind == CallbackKind::kHostFunction && driver_.cuLaunchHostFunc)
    rc = driver_.cuLaunchHostFunc(s.handle, &HostCall::runOnce, call.get());
  else if (callback.kind == CallbackKind::kStreamCallback && driver_.cuStreamAddCallback)
    rc = driver_.cuStreamAddCallback(s.handle, &HostCall::runOnceWithStatus, call.get(), 0);
  if (rc) return rc;
  call.release();  // the driver has it now
  order_.expect(1);
  return CUDA_SUCCESS;
}

CUresult HostFunctions::onCallbackNext(const cmd::Decoded<cmd::CallbackNext>&) {
  if (session_.current().request == 0) return violation("no callback of that number is pending");
  if (!session_.current().context || contexts_.primaryOf(session_.current().context) != session_.current().context)
    return violation("callbacks are for the threads of devices");
  // A client has one for each device.
  if (threads_.size() < devices_.all().size()) threads_.insert(session_.current().thread);
  waiters_.push_back(session_.current());
  progress();
  return kDeferred;
}

CUresult HostFunctions::onCallbackSources(const cmd::Decoded<cmd::CallbackSources>& command) {
  const auto found = sources_.find(command.fixed.number);
  if (found == sources_.end()) return CUDA_ERROR_INVALID_VALUE;
  const std::span<const graph::Source> all(found->second);
  const auto rest = all.subspan(std::min<size_t>(command.fixed.first, all.size()));
  reply(cmd::CallbackSourcesReply{}, std::as_bytes(rest.first(std::min<size_t>(rest.size(), graph::kSourcePage))));
  return CUDA_SUCCESS;
}

CUresult HostFunctions::onCallbackDone(const cmd::Decoded<cmd::CallbackDone>& command) {
  sources_.erase(command.fixed.number);
  if (!callbacks_->done(command.fixed.number)) return violation("no such function is running");
  order_.done();
  return CUDA_SUCCESS;
}

bool HostFunctions::progress() {
  bool some = false;
  // A failed context reaches no further function, but waits for those that it has reached.
  if (order_.expected() > 0 && order_.waiting() != 0 && contexts_.use(order_.nextContext())) {
    const CUresult state = driver_.cuStreamQuery(nullptr);
    if (state == CUDA_ERROR_UNKNOWN || (state >= CUDA_ERROR_ILLEGAL_ADDRESS && state <= CUDA_ERROR_LAUNCH_FAILED))
      order_.expectAtMost(callbacks_->running());
  }
  some = order_.progress() || some;
  for (auto w = waiters_.begin(); w != waiters_.end() && !session_.hasEnded();) {
    const auto due = callbacks_->take(w->context);
    if (!due) {
      ++w;
      continue;
    }
    const Request waiter = *w;
    w = waiters_.erase(w);
    some = true;
    auto sources =
        due->node ? landings_.landBefore(static_cast<const HostCall*>(due->node)) : std::vector<graph::Source>();
    const auto count = static_cast<uint32_t>(sources.size());
    const std::vector<graph::Source> page(sources.begin(), sources.begin() + std::min(count, graph::kSourcePage));
    if (count > graph::kSourcePage) sources_[due->number] = std::move(sources);
    session_.clearReply();
    const Callback& callback = due->callback;
    reply(cmd::CallbackNextReply{.number = due->number,
                                 .function = callback.function,
                                 .data = callback.data,
                                 .handle = callback.handle,
                                 .kind = static_cast<uint32_t>(callback.kind),
                                 .status = static_cast<int32_t>(due->status),
                                 .sourceCount = count},
          std::as_bytes(std::span<const graph::Source>(page)));
    // Bytes that the stream has copied to the client earlier land before it: replies follow landings.
    session_.answer(waiter, CUDA_SUCCESS);
  }
  return some;
}

}  // namespace millpond::worker
