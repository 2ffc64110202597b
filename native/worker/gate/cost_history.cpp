// SPDX-License-Identifier: Apache-2.0
#include "worker/gate/cost_history.h"

#include <algorithm>

namespace millpond::worker::gate {
namespace {

/// The history starts over for programs with more shapes.
constexpr size_t kMostKept = 8192;
/// One measurement changes the prediction only partly: the next may differ.
constexpr double kWeight = 0.5;
constexpr double kMostChange = 8;
/// No work is free.
constexpr double kLeastNs = 500;

}  // namespace

uint64_t CostHistory::key(const Work& work) {
  uint64_t mixed = work.what * 0x9e3779b97f4a7c15 ^ work.shape;
  mixed ^= mixed >> 32;
  return mixed * 0xd6e8feb86659fd93;
}

std::optional<int64_t> CostHistory::expected(const Work& work) const {
  if (const auto known = costs_.find(key(work)); known != costs_.end()) return static_cast<int64_t>(known->second);
  if (const auto known = costsBySize_.find(work.what); known != costsBySize_.end())
    return static_cast<int64_t>(std::max(known->second * static_cast<double>(work.size), kLeastNs));
  return work.firstGuessNs;
}

void CostHistory::keep(const Work& work, double ns) {
  if (costs_.size() >= kMostKept) costs_.clear();
  if (costsBySize_.size() >= kMostKept) costsBySize_.clear();
  costs_[key(work)] = ns;
  costsBySize_[work.what] = ns / static_cast<double>(std::max<uint64_t>(work.size, 1));
}

void CostHistory::learn(std::span<const DoneWork> done, int64_t measuredNs) {
  double expectedNs = 0;
  uint32_t unknown = 0;
  for (const DoneWork& each : done) {
    expectedNs += static_cast<double>(each.expectedNs) * each.count;
    if (each.expectedNs == 0) unknown += each.count;
  }
  const auto measured = static_cast<double>(std::max<int64_t>(measuredNs, 1));
  const double left = std::max(measured - expectedNs, 0.0);
  const double ratio = expectedNs > 0 ? std::clamp(measured / expectedNs, 1 / kMostChange, kMostChange) : 1;
  for (const DoneWork& each : done) {
    if (each.expectedNs == 0)
      keep(each.work, std::max(left / unknown, kLeastNs));
    else if (unknown == 0)
      keep(each.work, static_cast<double>(each.expectedNs) * (1 + (ratio - 1) * kWeight));
  }
}

}  // namespace millpond::worker::gate
