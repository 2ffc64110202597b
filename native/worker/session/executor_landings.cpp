// SPDX-License-Identifier: Apache-2.0
// Bytes for client memory for which no thread waits: from asynchronous copies to memory that is not shared, and from
// launches of graphs. They are collected in memory of this worker, and sent when the device has written them, in work
// order.
#include <algorithm>

#include "worker/session/executor.h"

namespace millpond::worker {
namespace {

constexpr size_t kMaxLandings = size_t{1} << 16;
constexpr size_t kMaxNamedLandings = 2 * kMaxLandings;

std::vector<uint64_t> nodesAt(const std::map<uint64_t, std::vector<uint64_t>>& nodes, uint64_t node) {
  const auto found = nodes.find(node);
  return found == nodes.end() ? std::vector<uint64_t>{} : found->second;
}

}  // namespace

CUresult Executor::onLandFromDevice(const cmd::Decoded<cmd::LandFromDevice>& command) {
  const auto& copy = command.fixed;
  Stream s;
  if (!stream(copy.stream, s)) return violation("unknown stream");
  forgetLandings(copy.landed);
  const CUresult rc = startLanding(s, copy);
  if (rc && !session_.hasEnded()) endLanding(copy.landing);
  return rc;
}

CUresult Executor::startLanding(const Stream& s, const cmd::LandFromDevice& copy) {
  if (copy.hostAddress > UINT64_MAX - copy.bytes) return violation("a copy reaches over the end of all addresses");
  if (CUresult rc = refuseRecording(s)) return rc;
  SessionRange from;
  if (CUresult rc = addresses_.reach(copy.address, copy.bytes, from)) return rc;
  if (landings_.size() >= kMaxLandings || namedLandings_.size() >= kMaxNamedLandings) return CUDA_ERROR_OUT_OF_MEMORY;
  if (copy.landing && namedLandings_.contains(copy.landing)) return violation("two landings of one number");
  Landing landing;
  landing.number = copy.landing;
  landing.stream = s.handle;
  landing.hostAddress = copy.hostAddress;
  landing.bytes = copy.bytes;
  landing.staging = buffers_.take(copy.bytes);
  if (!landing.staging) return CUDA_ERROR_OUT_OF_MEMORY;
  CUresult rc = from.isHost()
                    ? hostCopies_.copy(s, landing.staging->memory, from.host(), copy.bytes)
                    : driver_.cuMemcpyDtoHAsync_v2(landing.staging->memory, from.device(), copy.bytes, s.handle);
  if (!rc) rc = marks_.mark(s, landing.mark);
  if (rc) return rc;
  if (landing.number)
    namedLandings_[landing.number] = {{{copy.hostAddress, copy.bytes, landing.staging->memory}}, landing.staging};
  addLanding(std::move(landing));
  return CUDA_SUCCESS;
}

template <typename Each>
void Executor::eachTarget(const Landing& landing, Each&& each) {
  if (landing.bytes) each(landing.hostAddress, landing.bytes);
  if (!landing.contents) return;
  for (const auto& [node, stage] : landing.contents->stages)
    if (!stage->toDevice) each(stage->address, stage->bytes);
}

bool Executor::isUnderWay(uint64_t order) const {
  const auto found = std::lower_bound(landings_.begin(), landings_.end(), order,
                                      [](const Landing& each, uint64_t wanted) { return each.order < wanted; });
  return found != landings_.end() && found->order == order;
}

void Executor::addLanding(Landing landing) {
  landing.order = ++lastLanding_;
  eachTarget(landing, [&](uint64_t address, uint64_t bytes) {
    landingRanges_.visit(address, bytes, [&](uint64_t, uint64_t, uint64_t order) {
      if (order && order != landing.order) landing.behind.push_back(order);
    });
    landingRanges_.set(address, bytes, landing.order);
  });
  landings_.push_back(std::move(landing));
}

void Executor::endLanding(uint64_t number) {
  if (number) sendLanding(0, {}, number, false);
}

void Executor::forgetLandings(uint64_t below) {
  namedLandings_.erase(namedLandings_.begin(), namedLandings_.lower_bound(below));
}

bool Executor::sendLanding(uint64_t hostAddress, std::span<const std::byte> bytes, uint64_t number, bool lends) {
  constexpr size_t kPiece = wire::kChunkBytes;
  for (size_t at = 0; !session_.hasEnded(); at += kPiece) {
    const auto piece = bytes.subspan(at, std::min(kPiece, bytes.size() - at));
    const bool isLast = at + piece.size() == bytes.size();
    const wire::Landing header{hostAddress + at, piece.size(), isLast ? number : 0, 0};
    const auto body = std::as_bytes(std::span(&header, 1));
    const bool sent = lends ? link_.replyLending(wire::ReplyKind::kLanding, 0, 0, body, piece)
                            : link_.reply(wire::ReplyKind::kLanding, 0, 0, 0, body, piece);
    if (!sent) {
      session_.end({"the client takes no data", true});
    }
    if (isLast) break;
  }
  return !session_.hasEnded();
}

void Executor::finishLanding(const Landing& landing, CUresult state) {
  if (state) return endLanding(landing.number);
  if (!landing.contents) {
    const bool lends = landing.bytes >= kLentBytes && link_.remote();
    sendLanding(landing.hostAddress, {landing.staging->memory, landing.bytes}, landing.number, lends);
    if (lends) lentReplies_.push_back({link_.replied(), std::nullopt, landing.staging});
    return;
  }
  for (const auto& [node, stage] : landing.contents->stages)
    if (!stage->toDevice && !landing.landed.contains(stage.get())) land(*stage);
  endLanding(landing.number);
}

void Executor::land(const GraphStage& stage) {
  const std::span<const std::byte> all(stage.memory, stage.bytes);
  // Contiguous rows are sent as one.
  if (!stage.hasGaps()) return void(sendLanding(stage.address, all, 0, false));
  for (uint64_t slice = 0; slice < stage.depth; ++slice)
    for (uint64_t row = 0; row < stage.height; ++row) {
      const uint64_t offset = slice * stage.sliceStride + row * stage.rowStride;
      sendLanding(stage.address + offset, all.subspan(offset, stage.width), 0, false);
    }
}

bool Executor::progressLandings() {
  bool some = false;
  std::vector<CUstream> busy;  // later work in these streams has not happened either
  std::vector<uint64_t> over;
  for (auto l = landings_.begin(); l != landings_.end() && !session_.hasEnded();) {
    const bool waits = std::find(busy.begin(), busy.end(), l->stream) != busy.end();
    const bool isBehind =
        !waits && std::any_of(l->behind.begin(), l->behind.end(), [&](uint64_t each) { return isUnderWay(each); });
    const CUresult rc = waits || isBehind ? CUDA_ERROR_NOT_READY : marks_.happened(l->mark);
    if (rc == CUDA_ERROR_NOT_READY) {
      if (!waits) busy.push_back(l->stream);
      ++l;
      continue;
    }
    const Landing landing = std::move(*l);
    l = landings_.erase(l);
    some = true;
    marks_.giveBack(landing.mark);
    eachTarget(landing, [&](uint64_t address, uint64_t bytes) { landingRanges_.erase(address, bytes, landing.order); });
    finishLanding(landing, rc);
    if (landing.number) over.push_back(landing.number);
  }
  for (const uint64_t number : over) {
    const auto waits = [&](const auto& each) { return each.second == number; };
    for (auto w = std::find_if(landingWaiters_.begin(), landingWaiters_.end(), waits); w != landingWaiters_.end();
         w = std::find_if(landingWaiters_.begin(), landingWaiters_.end(), waits)) {
      const Request request = w->first;
      landingWaiters_.erase(w);
      session_.answer(request, CUDA_SUCCESS);
    }
  }
  return some;
}

CUresult Executor::onLandingAwait(const cmd::Decoded<cmd::LandingAwait>& command) {
  if (session_.current().request == 0) return violation("nobody waits for the landing");
  const uint64_t number = command.fixed.landing;
  if (std::none_of(landings_.begin(), landings_.end(), [&](const Landing& each) { return each.number == number; }))
    return CUDA_SUCCESS;
  landingWaiters_.emplace_back(session_.current(), number);
  return kDeferred;
}

CUresult Executor::onLandingsOver(const cmd::Decoded<cmd::LandingsOver>& command) {
  forgetLandings(command.fixed.landed);
  return CUDA_SUCCESS;
}

CUresult Executor::onCopyFromLanding(const cmd::Decoded<cmd::CopyFromLanding>& command) {
  const auto& copy = command.fixed;
  Stream s;
  if (!stream(copy.stream, s)) return violation("unknown stream");
  const auto landing = namedLandings_.find(copy.landing);
  // It failed, and the failure was reported.
  if (landing == namedLandings_.end()) return CUDA_ERROR_INVALID_VALUE;
  const auto part = std::find_if(landing->second.parts.begin(), landing->second.parts.end(), [&](const auto& each) {
    return copy.hostAddress >= each.hostAddress && copy.hostAddress - each.hostAddress <= each.bytes &&
           copy.bytes <= each.bytes - (copy.hostAddress - each.hostAddress);
  });
  if (part == landing->second.parts.end()) return violation("a copy of bytes that do not land");
  if (CUresult rc = refuseRecording(s)) return rc;
  SessionRange to;
  if (CUresult rc = addresses_.reach(copy.address, copy.bytes, to)) return rc;
  ReadMemory reads{{}, landing->second.keeper};
  const std::byte* from = part->memory + (copy.hostAddress - part->hostAddress);
  CUresult rc = to.isHost() ? hostCopies_.copy(s, to.host(), from, copy.bytes)
                            : hostCopies_.toDevice(s, to.device(), from, copy.bytes);
  if (!rc) rc = marks_.mark(s, reads.mark);
  if (rc) return rc;
  readMemory_.push_back(std::move(reads));
  forgetLandings(copy.landed);
  return CUDA_SUCCESS;
}

bool Executor::progressReadMemory() {
  const size_t before = readMemory_.size();
  std::erase_if(readMemory_, [&](const ReadMemory& each) {
    if (marks_.happened(each.mark) == CUDA_ERROR_NOT_READY) return false;
    marks_.giveBack(each.mark);
    return true;
  });
  return readMemory_.size() != before;
}

std::vector<graph::Source> Executor::landBefore(const HostCall* call) {
  std::vector<graph::Source> sources;
  for (Landing& run : landings_) {
    if (!run.contents) continue;
    const ExecContents& contents = *run.contents;
    std::vector<uint64_t> nodes;
    for (const auto& [node, each] : contents.calls)
      if (each == call) nodes.push_back(node);
    if (nodes.empty() || run.calls[call] == nodes.size()) continue;
    ++run.calls[call];
    for (const uint64_t node : nodes) {
      for (const uint64_t copy : nodesAt(contents.before, node)) {
        const auto stage = contents.stages.find(copy);
        if (stage == contents.stages.end() || run.landed.contains(stage->second.get())) continue;
        land(*stage->second);
        // The function may change it, so it is not sent again. Among several nodes, this one is unknown.
        if (nodes.size() == 1) run.landed.insert(stage->second.get());
      }
      for (const uint64_t copy : nodesAt(contents.after, node)) addSources(contents, node, copy, sources);
    }
    break;
  }
  return sources;
}

/// The bytes that the copy `to` the device reads behind a function of the client, except those that the graph itself writes
/// there meanwhile.
void Executor::addSources(const ExecContents& contents, uint64_t call, uint64_t to,
                          std::vector<graph::Source>& sources) {
  const auto stage = contents.stages.find(to);
  if (stage == contents.stages.end() || !stage->second->toDevice) return;
  RangeMap parts;
  parts.set(stage->second->address, stage->second->bytes, 1);
  const std::vector<uint64_t> known = nodesAt(contents.before, call);
  for (const uint64_t copy : nodesAt(contents.before, to)) {
    const auto written = contents.stages.find(copy);
    if (written == contents.stages.end() || std::find(known.begin(), known.end(), copy) != known.end()) continue;
    parts.set(written->second->address, written->second->bytes, 2);
  }
  parts.visit(stage->second->address, stage->second->bytes, [&](uint64_t begin, uint64_t end, uint64_t part) {
    if (part == 1) sources.push_back({stage->second->number, begin, end - begin, 0, 0});
  });
}

}  // namespace millpond::worker
