// SPDX-License-Identifier: Apache-2.0
// Where the threads of a block came to its barriers, for programs whose barriers are checked. A barrier of the whole block
// without a count is one place of the program that all threads reach; one with a count is one place for each warp.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

namespace millpond::softgpu::ptx {

struct Instruction;
struct FunctionCode;
class Block;

class BarrierWatch {
 public:
  static constexpr uint32_t kBarriers = 16;

  struct Arrival {
    uint32_t warp = 0;
    uint32_t lanes = 0;
    const Instruction* at = nullptr;
    const FunctionCode* function = nullptr;
    bool isOfBlock = false;  // all threads of the block are awaited
  };
  struct Divergence {
    Arrival first;
    Arrival second;
  };
  struct Outcome {
    std::optional<Divergence> divergence;
    std::optional<Arrival> missed;  // threads of the block have ended without reaching it
  };

  /// No thread has reached any barrier.
  void begin() {
    for (auto& arrivals : arrivals_) arrivals.clear();
  }
  void arrive(uint32_t id, const Arrival& arrival) {
    if (id < kBarriers) arrivals_[id].push_back(arrival);
  }
  /// The barrier is complete: returns its errors. `haveEnded`: threads of the block that have ended.
  Outcome complete(uint32_t id, bool haveEnded) {
    Outcome out;
    std::vector<Arrival>& all = arrivals_[id];
    for (size_t k = 1; k < all.size() && !out.divergence; ++k) out.divergence = differsFromEarlier(all, k);
    if (haveEnded && !all.empty() && all.front().isOfBlock) out.missed = all.front();
    all.clear();
    return out;
  }

 private:
  static std::optional<Divergence> differsFromEarlier(const std::vector<Arrival>& all, size_t k) {
    for (size_t j = 0; j < k; ++j) {
      const bool mustAgree = all[j].warp == all[k].warp || (all[j].isOfBlock && all[k].isOfBlock);
      if (mustAgree && all[j].at != all[k].at) return Divergence{all[j], all[k]};
      // The others have been compared with this one.
      if (all[j].isOfBlock && all[k].isOfBlock) break;
    }
    return std::nullopt;
  }

  std::array<std::vector<Arrival>, kBarriers> arrivals_;
};

/// Reports errors of a barrier to the inspector of the launch. Implemented with the other checks, in inspect.cpp.
void reportBarrier(Block& block, const BarrierWatch::Outcome& outcome);

}  // namespace millpond::softgpu::ptx
