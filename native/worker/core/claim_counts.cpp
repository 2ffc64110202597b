// SPDX-License-Identifier: Apache-2.0
#include "worker/core/claim_counts.h"

#include <algorithm>
#include <span>

#include "base/log.h"

namespace millpond::worker {
namespace {

const char* nameOf(Thing thing) {
  switch (thing) {
    case Thing::kContext: return "contexts";
    case Thing::kStream: return "streams";
    case Thing::kEvent: return "events";
    case Thing::kGraphNode: return "nodes of graphs";
    case Thing::kHostByte: return "bytes of host memory";
    case Thing::kImageByte: return "bytes of images in transfer";
  }
  return "things";
}

}  // namespace

bool ClaimCounts::hold(Thing thing, uint64_t amount) {
  if (things_.hold(thing, amount)) return true;
  const auto bit = static_cast<uint8_t>(1u << static_cast<unsigned>(thing));
  if (!(logged_ & bit))
    log(LogLevel::Warn,
        "the claim's sessions may have %llu %s together and have %llu; this one has %llu and wanted %llu: refused",
        static_cast<unsigned long long>(things_.limits().of(thing)), nameOf(thing),
        static_cast<unsigned long long>(things_.total(thing)), static_cast<unsigned long long>(things_.held(thing)),
        static_cast<unsigned long long>(amount));
  logged_ |= bit;
  return false;
}

bool ClaimCounts::hasRoomFor(HandleKind kind) {
  if (kind != HandleKind::kStream && kind != HandleKind::kEvent) return true;
  if (kind == HandleKind::kStream) return hold(Thing::kStream, streams() + 1);
  return hold(Thing::kEvent, session_.handles().countOf(kind) + 1);
}

uint64_t ClaimCounts::streams() const {
  return session_.handles().countOf(HandleKind::kStream) + session_.marks().destroyed();
}

void ClaimCounts::count(HandleKind kind) {
  if (kind == HandleKind::kStream) hold(Thing::kStream, streams());
  if (kind == HandleKind::kEvent) hold(Thing::kEvent, session_.handles().countOf(kind));
}

void ClaimCounts::countContexts() {
  const auto own = std::span(session_.contexts().all()).subspan(session_.devices().all().size());
  hold(Thing::kContext, static_cast<uint64_t>(std::count_if(
                            own.begin(), own.end(), [](const Context& context) { return context.handle != nullptr; })));
}

}  // namespace millpond::worker
