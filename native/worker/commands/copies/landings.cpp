// SPDX-License-Identifier: Apache-2.0
#include "worker/commands/copies/landings.h"

#include <algorithm>
#include <cstring>

namespace millpond::worker {
namespace {

constexpr size_t kMaxLandings = size_t{1} << 16;
constexpr size_t kMaxNamedLandings = 2 * kMaxLandings;

std::vector<uint64_t> nodesAt(const std::map<uint64_t, std::vector<uint64_t>>& nodes, uint64_t node) {
  const auto found = nodes.find(node);
  return found == nodes.end() ? std::vector<uint64_t>{} : found->second;
}

}  // namespace

CUresult Landings::onLandFromDevice(const cmd::Decoded<cmd::LandFromDevice>& command) {
  const auto& copy = command.fixed;
  Stream s;
  if (!stream(copy.stream, s)) return violation("unknown stream");
  forget(copy.landed);
  const CUresult rc = start(s, copy);
  if (rc && !session_.hasEnded()) end(copy.landing);
  return rc;
}

CUresult Landings::start(const Stream& s, const cmd::LandFromDevice& copy) {
  if (copy.hostAddress > UINT64_MAX - copy.bytes) return violation("a copy reaches over the end of all addresses");
  if (CUresult rc = captures_.refuse(s)) return rc;
  SessionRange from;
  if (CUresult rc = addresses_.reach(copy.address, copy.bytes, from)) return rc;
  if (all_.size() >= kMaxLandings || named_.size() >= kMaxNamedLandings) return CUDA_ERROR_OUT_OF_MEMORY;
  if (copy.landing && named_.contains(copy.landing)) return violation("two landings of one number");
  Landing landing;
  landing.number = copy.landing;
  landing.stream = s.handle;
  landing.hostAddress = copy.hostAddress;
  landing.bytes = copy.bytes;
  CUresult rc = buffers_.take(copy.bytes, landing.staging);
  if (rc) return rc;
  rc = from.isHost() ? hostCopies_.copy(s, landing.staging->memory, from.host(), copy.bytes)
                     : driver_.cuMemcpyDtoHAsync_v2(landing.staging->memory, from.device(), copy.bytes, s.handle);
  if (!rc && copy.isHeld) {
    landing.isReached = std::make_shared<bool>(false);
    // Later work of the stream may read the memory as mirrored, so it waits for the bytes.
    rc = hostCopies_.run(s, [this, staging = landing.staging, address = copy.hostAddress, bytes = copy.bytes,
                             isReached = landing.isReached] {
      place(address, {staging->memory, bytes});
      *isReached = true;
    });
  }
  if (!rc) rc = marks_.mark(s, landing.mark);
  if (rc) return rc;
  if (landing.number)
    named_[landing.number] = {{{copy.hostAddress, copy.bytes, landing.staging->memory}}, landing.staging};
  add(std::move(landing));
  return CUDA_SUCCESS;
}

void Landings::place(uint64_t hostAddress, std::span<const std::byte> staging) {
  mirrored_.eachOfBoth(hostAddress, staging.size(), [&](uint64_t begin, uint64_t end) {
    uint64_t bytes = 0;
    for (uint64_t at = begin; at < end; at += bytes) {
      bytes = std::min(end - at, hostRuns_.privateBytes(at));
      if (bytes == 0) return;
      std::memcpy(reinterpret_cast<void*>(at), staging.data() + (at - hostAddress), bytes);
      mirrored_.addLanded(at, bytes);
    }
  });
}

void Landings::placeReached(uint64_t address, uint64_t bytes) {
  for (const Landing& each : all_) {
    if (!each.isReached || !*each.isReached) continue;
    const uint64_t begin = std::max(address, each.hostAddress);
    const uint64_t end = std::min(address + bytes, each.hostAddress + each.bytes);
    if (begin < end) place(begin, {each.staging->memory + (begin - each.hostAddress), end - begin});
  }
}

template <typename Each>
void Landings::eachTarget(const Landing& landing, Each&& each) {
  if (landing.bytes) each(landing.hostAddress, landing.bytes);
  if (!landing.contents) return;
  for (const auto& [node, stage] : landing.contents->stages)
    if (!stage->toDevice) each(stage->address, stage->bytes);
}

const Landings::Landing* Landings::underWay(uint64_t order) const {
  const auto found = std::lower_bound(all_.begin(), all_.end(), order,
                                      [](const Landing& each, uint64_t wanted) { return each.order < wanted; });
  return found != all_.end() && found->order == order ? &*found : nullptr;
}

void Landings::add(Landing landing) {
  landing.order = ++last_;
  eachTarget(landing, [&](uint64_t address, uint64_t bytes) {
    ranges_.visit(address, bytes, [&](uint64_t, uint64_t, uint64_t order) {
      if (order == 0 || order == landing.order) return;
      landing.behind.push_back(order);
      const Landing* before = underWay(order);
      landing.isBehindCopy = landing.isBehindCopy || (before && (before->staging || before->isBehindCopy));
    });
    ranges_.set(address, bytes, landing.order);
  });
  all_.push_back(std::move(landing));
}

CUresult Landings::addLaunch(const Stream& s, uint64_t number, std::shared_ptr<const ExecContents> contents) {
  Landing landing;
  landing.number = number;
  landing.stream = s.handle;
  if (CUresult rc = marks_.mark(s, landing.mark)) return rc;
  if (mirrored_.isAnyFilling() && !addWriters(*contents, {}))
    return violation("memory that is never mirrored completely");
  if (number) {
    Named& named = named_[number];
    named.keeper = contents;
    for (const auto& [node, stage] : contents->stages)
      if (!stage->toDevice && !stage->hasGaps()) named.parts.push_back({stage->address, stage->bytes, stage->memory});
  }
  landing.contents = std::move(contents);
  add(std::move(landing));
  return CUDA_SUCCESS;
}

bool Landings::keepLaunches() {
  return std::all_of(all_.begin(), all_.end(),
                     [&](const Landing& each) { return !each.contents || addWriters(*each.contents, each.landed); });
}

bool Landings::addWriters(const ExecContents& contents, const std::set<const GraphStage*>& landed) {
  return std::all_of(contents.stages.begin(), contents.stages.end(), [&](const auto& each) {
    const auto& stage = each.second;
    return stage->toDevice || landed.contains(stage.get()) || mirrored_.addWriter(stage);
  });
}

void Landings::end(uint64_t number) {
  if (number) send(0, {}, number, false);
}

void Landings::forget(uint64_t below) { named_.erase(named_.begin(), named_.lower_bound(below)); }

bool Landings::send(uint64_t hostAddress, std::span<const std::byte> bytes, uint64_t number, bool lends) {
  constexpr size_t kPiece = wire::kChunkBytes;
  for (size_t at = 0; !session_.hasEnded(); at += kPiece) {
    const auto piece = bytes.subspan(at, std::min(kPiece, bytes.size() - at));
    const bool isLast = at + piece.size() == bytes.size();
    const wire::Landing header{hostAddress + at, piece.size(), isLast ? number : 0, 0};
    const auto body = std::as_bytes(std::span(&header, 1));
    const bool sent = lends ? link_.replyLending(wire::ReplyKind::kLanding, 0, 0, body, piece)
                            : link_.reply(wire::ReplyKind::kLanding, 0, 0, 0, body, piece);
    if (!sent) {
      session_.end({"the client reads no data", true});
    }
    if (isLast) break;
  }
  return !session_.hasEnded();
}

void Landings::finish(const Landing& landing, CUresult state) {
  if (state) return end(landing.number);
  if (landing.isReached) return sendUnplaced(landing);
  if (!landing.contents) {
    const bool lends = landing.bytes >= kLentBytes && link_.remote();
    send(landing.hostAddress, {landing.staging->memory, landing.bytes}, landing.number, lends);
    if (lends) lent_.add(landing.staging);
    return;
  }
  for (const auto& [node, stage] : landing.contents->stages)
    if (!stage->toDevice && !landing.landed.contains(stage.get()))
      land(*stage, landing.isBehindCopy ? Mirrored::kSent : Mirrored::kSkipped);
  end(landing.number);
}

void Landings::sendUnplaced(const Landing& landing) {
  mirrored_.eachOfClient(landing.hostAddress, landing.bytes, [&](uint64_t begin, uint64_t end) {
    send(begin, {landing.staging->memory + (begin - landing.hostAddress), end - begin}, 0, false);
  });
  end(landing.number);
}

void Landings::land(const GraphStage& stage, Mirrored mirrored) {
  const auto sendPart = [&](uint64_t begin, uint64_t end) {
    send(begin, {stage.memory + (begin - stage.address), end - begin}, 0, false);
  };
  stage.eachRow(stage.address, stage.bytes, [&](uint64_t begin, uint64_t end) {
    switch (mirrored) {
      case Mirrored::kSkipped: return mirrored_.eachOfClient(begin, end - begin, sendPart);
      case Mirrored::kSkippedIfFilled: return mirrored_.eachNotFilled(begin, end - begin, sendPart);
      case Mirrored::kSent: return sendPart(begin, end);
    }
  });
}

bool Landings::progress() {
  bool some = false;
  std::vector<CUstream> busy;  // later work in these streams has not happened either
  std::vector<uint64_t> over;
  for (auto l = all_.begin(); l != all_.end() && !session_.hasEnded();) {
    const bool waits = std::find(busy.begin(), busy.end(), l->stream) != busy.end();
    const bool isBehind =
        !waits && std::any_of(l->behind.begin(), l->behind.end(), [&](uint64_t each) { return underWay(each); });
    const CUresult rc = waits || isBehind ? CUDA_ERROR_NOT_READY : marks_.happened(l->mark);
    if (rc == CUDA_ERROR_NOT_READY) {
      if (!waits) busy.push_back(l->stream);
      ++l;
      continue;
    }
    const Landing landing = std::move(*l);
    l = all_.erase(l);
    some = true;
    marks_.giveBack(landing.mark);
    eachTarget(landing, [&](uint64_t address, uint64_t bytes) { ranges_.erase(address, bytes, landing.order); });
    finish(landing, rc);
    if (landing.number) over.push_back(landing.number);
  }
  for (const uint64_t number : over) {
    const auto waits = [&](const auto& each) { return each.second == number; };
    for (auto w = std::find_if(waiters_.begin(), waiters_.end(), waits); w != waiters_.end();
         w = std::find_if(waiters_.begin(), waiters_.end(), waits)) {
      const Request request = w->first;
      waiters_.erase(w);
      session_.answer(request, CUDA_SUCCESS);
    }
  }
  return some;
}

CUresult Landings::onLandingAwait(const cmd::Decoded<cmd::LandingAwait>& command) {
  if (session_.current().request == 0) return violation("no landing of that number is pending");
  const uint64_t number = command.fixed.landing;
  if (std::none_of(all_.begin(), all_.end(), [&](const Landing& each) { return each.number == number; }))
    return CUDA_SUCCESS;
  waiters_.emplace_back(session_.current(), number);
  return kDeferred;
}

CUresult Landings::onLandingsOver(const cmd::Decoded<cmd::LandingsOver>& command) {
  forget(command.fixed.landed);
  return CUDA_SUCCESS;
}

CUresult Landings::onCopyFromLanding(const cmd::Decoded<cmd::CopyFromLanding>& command) {
  const auto& copy = command.fixed;
  Stream s;
  if (!stream(copy.stream, s)) return violation("unknown stream");
  const auto landing = named_.find(copy.landing);
  // The work failed, which has been reported.
  if (landing == named_.end()) return CUDA_ERROR_INVALID_VALUE;
  const auto part = std::find_if(landing->second.parts.begin(), landing->second.parts.end(), [&](const auto& each) {
    return copy.hostAddress >= each.hostAddress && copy.hostAddress - each.hostAddress <= each.bytes &&
           copy.bytes <= each.bytes - (copy.hostAddress - each.hostAddress);
  });
  if (part == landing->second.parts.end()) return violation("a copy that is not part of a landing");
  if (CUresult rc = captures_.refuse(s)) return rc;
  SessionRange to;
  if (CUresult rc = addresses_.reach(copy.address, copy.bytes, to)) return rc;
  Mark place;
  const std::byte* from = part->memory + (copy.hostAddress - part->hostAddress);
  CUresult rc = to.isHost() ? hostCopies_.copy(s, to.host(), from, copy.bytes)
                            : hostCopies_.toDevice(s, to.device(), from, copy.bytes);
  if (!rc) rc = marks_.mark(s, place);
  if (rc) return rc;
  reads_.add(place, landing->second.keeper);
  forget(copy.landed);
  return CUDA_SUCCESS;
}

std::vector<graph::Source> Landings::landBefore(const HostCall* call) {
  std::vector<graph::Source> sources;
  for (Landing& run : all_) {
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
        land(*stage->second, Mirrored::kSkippedIfFilled);
        // The function may change the bytes, so they are not sent again. If several nodes have the function, it is unknown which runs.
        if (nodes.size() == 1) run.landed.insert(stage->second.get());
      }
      for (const uint64_t copy : nodesAt(contents.after, node)) addSources(contents, node, copy, sources);
    }
    break;
  }
  return sources;
}

void Landings::addSources(const ExecContents& contents, uint64_t call, uint64_t to,
                          std::vector<graph::Source>& sources) const {
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
    if (part != 1) return;
    mirrored_.eachNotFilled(begin, end - begin, [&](uint64_t first, uint64_t behind) {
      sources.push_back({stage->second->number, first, behind - first, 0, 0});
    });
  });
}

}  // namespace millpond::worker
