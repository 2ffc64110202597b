// SPDX-License-Identifier: Apache-2.0
#include "client/memory/handover.h"

#include <algorithm>

namespace millpond::client {
namespace {

constexpr int64_t kPatienceNs = 50'000'000;

}  // namespace

bool Handover::Turn::awaitUses() const {
  std::unique_lock lock(handover_.mutex_);
  const auto isUnused = [this] {
    return std::none_of(handover_.uses_.begin(), handover_.uses_.end(),
                        [this](const Range& each) { return each.meets(*handover_.run_); });
  };
  return handover_.changed_.wait(lock, isUnused, kPatienceNs);
}

}  // namespace millpond::client
