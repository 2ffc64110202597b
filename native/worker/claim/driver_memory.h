// SPDX-License-Identifier: Apache-2.0
// Device memory that a driver allocates for a session beside its programs' allocations, as charged to the claim's
// budget. Sizes as measured on an H200 and an H100 with driver 580.159.04; those of other cards are assumed to grow with
// the number of multiprocessors, where the agent has not measured them.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <tuple>

#include "worker/claim/claim_budget.h"

namespace millpond::worker {

/// Memory costs of a driver on one device. For the software GPU, those set in its environment.
struct DriverCosts {
  uint64_t context = 0;          ///< of each context except the primary one
  uint64_t prints = 0;           ///< of each context from the first module on whose kernels print
  uint64_t allocates = 0;        ///< of each context from the first module on whose kernels call malloc
  uint64_t stream = 0;           ///< of each stream; kept for later streams when it ends
  uint64_t residentThreads = 0;  ///< threads for which a context has a stack
  uint64_t graphNode = 0;        ///< upper bound, of an executable graph

  static DriverCosts of(uint64_t multiprocessors, uint64_t threadsOfEach) {
    return {.context = multiprocessors << 22,
            .prints = multiprocessors << 19,
            .allocates = multiprocessors * (uint64_t{1152} << 10),
            .stream = uint64_t{576} << 10,
            .residentThreads = multiprocessors * threadsOfEach,
            .graphNode = uint64_t{128} << 10};
  }
  bool any() const { return context != 0 || prints != 0 || allocates != 0; }
};

/// Default limits of a context; only memory beyond them is counted.
inline constexpr uint64_t kUsualStack = 1024;
inline constexpr uint64_t kUsualHeap = uint64_t{8} << 20;
inline constexpr uint64_t kUsualOutput = 8650752;

class DriverMemory {
 public:
  enum class Of : uint8_t {
    kContext,
    kStreams,
    kStacks,
    kHeap,
    kOutput,
    kPrints,
    kAllocates,
    kModule,
    kGraph,
    kEnding
  };

  explicit DriverMemory(std::deque<ClaimBudget>& budgets) : budgets_(budgets) {}

  /// Sets the memory in use on a device of the session. Returns false, and changes nothing, if it does not fit.
  bool set(Of what, uint64_t number, size_t device, uint64_t bytes) {
    uint64_t& has = taken_[{what, number, device}];
    if (bytes > has && !budgets_[device].take(bytes - has)) return false;
    if (bytes < has) budgets_[device].give({has - bytes, 0});
    has = bytes;
    return true;
  }
  /// On all devices.
  void drop(Of what, uint64_t number) {
    const auto first = taken_.lower_bound({what, number, 0});
    auto last = first;
    for (; last != taken_.end() && std::get<0>(last->first) == what && std::get<1>(last->first) == number; ++last)
      if (last->second) budgets_[std::get<2>(last->first)].give({last->second, 0});
    taken_.erase(first, last);
  }
  /// Keeps this charge under `ending`, to be dropped (Of::kEnding) when the driver has released the memory.
  void retire(Of what, uint64_t number, uint64_t ending) {
    auto at = taken_.lower_bound({what, number, 0});
    while (at != taken_.end() && std::get<0>(at->first) == what && std::get<1>(at->first) == number) {
      taken_[{Of::kEnding, ending, std::get<2>(at->first)}] += at->second;
      at = taken_.erase(at);
    }
  }
  uint64_t bytesOn(size_t device) const {
    uint64_t sum = 0;
    for (const auto& [key, bytes] : taken_)
      if (std::get<2>(key) == device) sum += bytes;
    return sum;
  }

 private:
  std::deque<ClaimBudget>& budgets_;
  std::map<std::tuple<Of, uint64_t, size_t>, uint64_t> taken_;
};

}  // namespace millpond::worker
