// SPDX-License-Identifier: Apache-2.0
#include "worker/core/claim_counts.h"

#include <algorithm>
#include <optional>
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

/// What objects of that kind count as; none if there is no limit on them.
std::optional<Thing> limitedAs(HandleKind kind) {
  switch (kind) {
    case HandleKind::kStream: return Thing::kStream;
    case HandleKind::kEvent: return Thing::kEvent;
    default: return std::nullopt;
  }
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
  const auto thing = limitedAs(kind);
  return !thing || hold(*thing, countOf(kind) + 1);
}

void ClaimCounts::count(HandleKind kind) {
  if (const auto thing = limitedAs(kind)) hold(*thing, countOf(kind));
}

uint64_t ClaimCounts::countOf(HandleKind kind) const {
  const size_t destroyed = kind == HandleKind::kStream ? session_.marks().destroyed() : 0;
  return session_.handles().countOf(kind) + destroyed;
}

void ClaimCounts::countContexts() {
  const auto own = std::span(session_.contexts().all()).subspan(session_.devices().all().size());
  hold(Thing::kContext, static_cast<uint64_t>(std::count_if(
                            own.begin(), own.end(), [](const Context& context) { return context.handle != nullptr; })));
}

}  // namespace millpond::worker
