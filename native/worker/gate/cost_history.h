// SPDX-License-Identifier: Apache-2.0
// What work has cost, and so what it may cost again. Guesses decide how much is in flight, never what is charged.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>

namespace millpond::worker::gate {

/// A command that the GPU works at.
struct Work {
  uint64_t what = 0;                    ///< the function, the graph or the kind of command
  uint64_t shape = 0;                   ///< everything else that its cost depends on as a rule
  uint64_t size = 1;                    ///< threads, or bytes
  std::optional<int64_t> firstGuessNs;  ///< where nothing is known
};

/// As many commands of one kind in a row.
struct DoneWork {
  Work work;
  int64_t expectedNs = 0;  ///< of each; 0: not known
  uint32_t count = 1;
};

class CostHistory {
 public:
  std::optional<int64_t> expected(const Work& work) const;
  /// All of that together has taken so long.
  void learn(std::span<const DoneWork> done, int64_t measuredNs);

 private:
  static uint64_t key(const Work& work);
  void keep(const Work& work, double ns);

  std::unordered_map<uint64_t, double> costs_;        ///< ns, by what and shape
  std::unordered_map<uint64_t, double> costsBySize_;  ///< ns for each of its size, by what
};

}  // namespace millpond::worker::gate
