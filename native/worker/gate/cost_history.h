// SPDX-License-Identifier: Apache-2.0
// The measured costs of work, as a prediction of later costs. Predictions decide how much is in flight, never the
// charge.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>

namespace millpond::worker::gate {

/// A command that takes GPU time.
struct Work {
  uint64_t what = 0;                    ///< the function, the graph or the kind of command
  uint64_t shape = 0;                   ///< everything else that usually determines its cost
  uint64_t size = 1;                    ///< threads, or bytes
  std::optional<int64_t> firstGuessNs;  ///< if nothing is known
};

/// Consecutive commands of one kind.
struct DoneWork {
  Work work;
  int64_t expectedNs = 0;  ///< of each; 0: unknown
  uint32_t count = 1;
};

class CostHistory {
 public:
  std::optional<int64_t> expected(const Work& work) const;
  /// Records the total time of those commands.
  void learn(std::span<const DoneWork> done, int64_t measuredNs);

 private:
  static uint64_t key(const Work& work);
  void keep(const Work& work, double ns);

  std::unordered_map<uint64_t, double> costs_;        ///< ns, by work and shape
  std::unordered_map<uint64_t, double> costsBySize_;  ///< ns per unit of size, by work
};

}  // namespace millpond::worker::gate
