// SPDX-License-Identifier: Apache-2.0
#include "cupti/clock.h"

#include <cmath>
#include <ctime>

namespace millpond::profiler {
namespace {

/// The shortest of some measurements is the most precise.
constexpr int kMeasurements = 8;

}  // namespace

int64_t nowNs() {
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

Clock::Moment Clock::measure(Callback callback) {
  Moment best;
  int64_t shortest = INT64_MAX;
  for (int i = 0; i < kMeasurements; ++i) {
    const int64_t before = nowNs();
    const uint64_t stamp = callback();
    const int64_t took = nowNs() - before;
    if (took < 0 || took >= shortest) continue;
    shortest = took;
    best = {before + took / 2, stamp};
  }
  return best;
}

void Clock::use(Callback callback) {
  const std::lock_guard lock(mutex_);
  if (callback == callback_) return;
  callback_ = callback;
  if (callback_) first_ = measure(callback_);
}

uint64_t Clock::now() {
  Callback callback = nullptr;
  {
    const std::lock_guard lock(mutex_);
    callback = callback_;
  }
  return callback ? callback() : static_cast<uint64_t>(nowNs());
}

Clock::Conversion Clock::conversion() {
  const std::lock_guard lock(mutex_);
  Conversion conversion;
  if (!callback_) return conversion;
  const Moment last = measure(callback_);
  conversion.isNone_ = false;
  conversion.ns_ = first_.ns;
  conversion.stamp_ = first_.stamp;
  if (last.ns > first_.ns)
    conversion.rate_ = static_cast<double>(last.stamp - first_.stamp) / static_cast<double>(last.ns - first_.ns);
  return conversion;
}

uint64_t Clock::Conversion::operator()(int64_t ns) const {
  if (isNone_) return static_cast<uint64_t>(ns);
  return stamp_ + static_cast<uint64_t>(std::llround(static_cast<double>(ns - ns_) * rate_));
}

}  // namespace millpond::profiler
