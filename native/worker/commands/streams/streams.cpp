// SPDX-License-Identifier: Apache-2.0
#include "worker/commands/streams/streams.h"

#include <cstring>

#include "cuda/launch_attribute.h"

namespace millpond::worker {
namespace {

bool isOfStreams(CUstreamAttrID id) {
  return kindOf(id) == LaunchAttributeKind::kPlain || kindOf(id) == LaunchAttributeKind::kWindow;
}

/// Notes, once a synchronization of the stream has succeeded, that the work it has now is done. Passes the result on.
auto settling(SynchronousCopies& copies, const Stream& stream) {
  return [&copies, stream, works = copies.worksOf(stream)](CUresult result) {
    if (result == CUDA_SUCCESS) copies.settle(stream, works);
    return result;
  };
}

}  // namespace

CUresult Streams::onMarker(const cmd::Decoded<cmd::Marker>&) { return CUDA_SUCCESS; }

CUresult Streams::onStreamSync(const cmd::Decoded<cmd::StreamSync>& command) {
  frees_.synchronisePools();
  Stream s;
  if (!stream(command.fixed.stream, s)) return violation("unknown stream");
  const auto settle = settling(session_.synchronousCopies(), s);
  if (CUresult now = driver_.cuStreamQuery(s.handle); now != CUDA_ERROR_NOT_READY) return settle(now);
  if (auto end = marks_.endOf(command.fixed.stream)) return waits_.until(std::move(end));
  std::vector<Mark> marks;
  if (CUresult rc = marks_.ends(s, marks)) return rc;
  return waits_.until(std::move(marks), settle);
}

CUresult Streams::onEventSync(const cmd::Decoded<cmd::EventSync>& command) {
  frees_.synchronisePools();
  CUevent event = nullptr;
  if (!handle(HandleKind::kEvent, command.fixed.event, event)) return violation("unknown event");
  if (!event) return CUDA_ERROR_INVALID_HANDLE;
  if (CUresult now = driver_.cuEventQuery(event); now != CUDA_ERROR_NOT_READY) return now;
  return waits_.until(event);
}

CUresult Streams::onContextSync(const cmd::Decoded<cmd::ContextSync>&) {
  for (const auto& [origin, capture] : captures_.all()) {
    Stream s;
    if (stream(origin, s) && s.context == session_.current().context) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  frees_.synchronisePools();
  std::vector<Mark> marks;
  if (CUresult rc = marks_.fence(session_.current().context, marks)) return rc;
  const auto settle = settling(session_.synchronousCopies(), {nullptr, session_.current().context, 0});
  if (marks.empty()) return settle(CUDA_SUCCESS);
  return waits_.until(std::move(marks), settle);
}

CUresult Streams::onStreamSetAttribute(const cmd::Decoded<cmd::StreamSetAttribute>& command) {
  CUstream s = nullptr;
  if (!stream(command.fixed.stream, s)) return violation("unknown stream");
  const auto id = static_cast<CUstreamAttrID>(command.fixed.attribute);
  if (!isOfStreams(id)) return violation("unknown stream attribute");
  CUstreamAttrValue value;
  static_assert(sizeof value == sizeof command.fixed.value);
  if (CUresult rc = operations_.attribute(id, Crossing<CUstreamAttrValue>::in(command.fixed.value), value)) return rc;
  return driver_.cuStreamSetAttribute(s, id, &value);
}

CUresult Streams::onStreamGetAttribute(const cmd::Decoded<cmd::StreamGetAttribute>& command) {
  CUstream s = nullptr;
  if (!stream(command.fixed.stream, s)) return violation("unknown stream");
  const auto id = static_cast<CUstreamAttrID>(command.fixed.attribute);
  if (!isOfStreams(id)) return violation("unknown stream attribute");
  CUstreamAttrValue value{};
  if (CUresult rc = driver_.cuStreamGetAttribute(s, id, &value)) return rc;
  cmd::StreamGetAttributeReply out{};
  std::memcpy(out.value, &value, sizeof value);
  reply(out);
  return CUDA_SUCCESS;
}

}  // namespace millpond::worker
