// SPDX-License-Identifier: Apache-2.0
#include "client/memory/landings.h"

#include <algorithm>

#include "client/memory/command_sink.h"
#include "client/process/host_functions.h"

namespace millpond::client {

uint64_t Landings::begin(Source source, std::span<const Range> ranges, bool isHeld) {
  const std::lock_guard lock(mutex_);
  const uint64_t number = ++last_;
  for (const Range& each : ranges) ranges_.set(each.address, each.bytes, number);
  underWay_[number] = {source, HostFunctions::given(), {ranges.begin(), ranges.end()}, isHeld};
  if (source == Source::kCopy)
    for (const Range& each : ranges) copied_ += each.bytes;
  count_.store(underWay_.size(), std::memory_order_relaxed);
  return number;
}

void Landings::markSent(uint64_t number) {
  const std::lock_guard lock(mutex_);
  const auto found = underWay_.find(number);
  if (found != underWay_.end()) found->second.isSent = true;
  sent_.notifyAll();
}

void Landings::end(uint64_t number) noexcept {
  const std::lock_guard lock(mutex_);
  const auto found = underWay_.find(number);
  if (found == underWay_.end()) return;
  uint64_t bytes = kLeastBytes;
  for (const Range& each : found->second.ranges) {
    ranges_.erase(each.address, each.bytes, number);
    bytes += each.bytes;
    if (found->second.source == Source::kCopy) copied_ -= each.bytes;
  }
  underWay_.erase(found);
  sent_.notifyAll();
  count_.store(underWay_.size(), std::memory_order_relaxed);
  untold_.fetch_add(bytes, std::memory_order_relaxed);
}

uint64_t Landings::overLocked() const {
  uint64_t over = last_ + 1;
  if (!underWay_.empty()) over = std::min(over, underWay_.begin()->first);
  if (!named_.empty()) over = std::min(over, *named_.begin());
  return over;
}

uint64_t Landings::firstOver(uint64_t more, uint64_t most) const noexcept {
  const std::lock_guard lock(mutex_);
  if (copied_ + more <= most) return 0;
  const auto first = std::find_if(underWay_.begin(), underWay_.end(),
                                  [](const auto& each) { return each.second.source == Source::kCopy; });
  return first == underWay_.end() ? 0 : first->first;
}

uint64_t Landings::firstCopyTo(uint64_t address, uint64_t bytes, bool isHeld) const noexcept {
  if (!any()) return 0;
  const std::lock_guard lock(mutex_);
  const auto writes = [&](const Range& each) {
    return each.address < address + bytes && address < each.address + each.bytes;
  };
  for (const auto& [number, each] : underWay_)
    if (each.source == Source::kCopy && each.isHeld == isHeld &&
        std::any_of(each.ranges.begin(), each.ranges.end(), writes))
      return number;
  return 0;
}

uint64_t Landings::over() const noexcept {
  const std::lock_guard lock(mutex_);
  return overLocked();
}

Landings::Parts::Parts(Landings& landings, uint64_t address, uint64_t bytes) : landings_(landings) {
  const std::lock_guard lock(landings_.mutex_);
  landings_.ranges_.visit(address, bytes, [&](uint64_t begin, uint64_t end, uint64_t number) {
    parts_.push_back({begin, end - begin, number, Source::kCopy, true, 0});
    if (number == 0) return;
    const UnderWay& landing = landings_.underWay_[number];
    parts_.back().source = landing.source;
    parts_.back().begun = landing.begun;
    parts_.back().isWhole = std::any_of(landing.ranges.begin(), landing.ranges.end(), [&](const Range& each) {
      return each.isWhole && each.address <= begin && end - each.address <= each.bytes;
    });
    landings_.named_.insert(number);
  });
}

Landings::Parts::~Parts() {
  const std::lock_guard lock(landings_.mutex_);
  for (const Part& part : parts_)
    if (part.landing != 0) landings_.named_.erase(landings_.named_.find(part.landing));
}

CUresult Landings::await(const CommandSink& call, uint64_t address, uint64_t bytes) {
  if (!any()) return CUDA_SUCCESS;
  const Parts parts(*this, address, bytes);
  for (const Part& part : parts)
    if (part.landing != 0)
      if (const CUresult r = await(call, part.landing); r != CUDA_SUCCESS) return r;
  return CUDA_SUCCESS;
}

CUresult Landings::awaitCopies(const CommandSink& call, uint64_t address, uint64_t bytes) {
  while (const uint64_t number = firstCopyTo(address, bytes, false))
    if (const CUresult r = await(call, number); r != CUDA_SUCCESS) return r;
  return CUDA_SUCCESS;
}

CUresult Landings::await(const CommandSink& call, uint64_t number) {
  {
    // The worker treats an unknown landing as one that is over.
    std::unique_lock lock(mutex_);
    sent_.wait(lock, [&] {
      const auto found = underWay_.find(number);
      return found == underWay_.end() || found->second.isSent;
    });
  }
  cmd::LandingAwaitReply reply{};
  const CUresult r = call.wait(cmd::LandingAwait{.landing = number}, reply);
  // For a landing that never began, there is no other message.
  if (r == CUDA_SUCCESS) end(number);
  return r;
}

}  // namespace millpond::client
