// SPDX-License-Identifier: Apache-2.0
// The race detector beside one that keeps everything: full clocks of all threads, and all accesses.
#include <algorithm>
#include <bit>
#include <random>

#include "softgpu/ptx/instruction.h"
#include "softgpu/ptx/program_impl.h"
#include "softgpu/ptx/run/race.h"
#include "testing/check.h"

namespace millpond::softgpu::ptx::testing {
namespace {

constexpr uint32_t kThreads = 40;  // one warp, and a part of another
constexpr uint32_t kWarps = 2;
constexpr uint32_t kBytes = 6;

using Clocks = std::vector<uint32_t>;

/// Random events, reported to both.
class Model {
 public:
  explicit Model(uint64_t seed) : random_(seed), detector_(kThreads, kBytes), known_(kThreads, Clocks(kThreads)) {
    for (uint32_t t = 0; t < kThreads; ++t) known_[t][t] = 1;
    detector_.begin();
    site_ = detector_.siteOf(&instruction_, &function_);
  }

  void step() {
    const uint32_t what = below(20);
    if (what < 15) return access();
    if (what < 18) return synchroniseWarp();
    barrier(what == 19);
  }

 private:
  struct Past {
    uint32_t thread;
    uint32_t clock;
    bool isWrite;
    bool isAtomic;
  };

  uint32_t below(uint32_t n) { return static_cast<uint32_t>(random_() % n); }
  uint32_t lanesOf(uint32_t warp) const { return warp == 0 ? UINT32_MAX : 0xff; }

  /// Whether an earlier access to the byte is not ordered before one by `thread`.
  bool races(const Past& past, uint32_t thread, bool isWrite, bool isAtomic) const {
    return past.thread != thread && (past.isWrite || isWrite) && !(past.isAtomic && isAtomic) &&
           known_[thread][past.thread] < past.clock;
  }

  void access() {
    const uint32_t thread = below(kThreads);
    const uint32_t byte = below(kBytes);
    const bool isWrite = below(3) == 0;
    const bool isAtomic = below(4) == 0;
    std::vector<Past>& all = past_[byte];
    const auto race = detector_.access({thread, byte, 1, isWrite, isAtomic, nullptr, nullptr}, site_);
    const bool isRace =
        std::any_of(all.begin(), all.end(), [&](const Past& past) { return races(past, thread, isWrite, isAtomic); });
    if (race) {
      CHECK(isRace);
      CHECK_EQ(race->offset, byte);
    }
    // The last write is never forgotten.
    const auto last = std::find_if(all.rbegin(), all.rend(), [](const Past& past) { return past.isWrite; });
    if (last != all.rend() && races(*last, thread, isWrite, isAtomic)) CHECK(race.has_value());
    all.push_back({thread, known_[thread][thread], isWrite, isAtomic});
  }

  void learnAll(const std::vector<uint32_t>& from, const std::vector<uint32_t>& to) {
    Clocks all(kThreads);
    for (const uint32_t t : from)
      for (uint32_t k = 0; k < kThreads; ++k) all[k] = std::max(all[k], known_[t][k]);
    for (const uint32_t t : from) ++known_[t][t];
    for (const uint32_t t : to)
      for (uint32_t k = 0; k < kThreads; ++k) known_[t][k] = std::max(known_[t][k], all[k]);
  }

  static std::vector<uint32_t> threadsOf(uint32_t warp, uint32_t lanes) {
    std::vector<uint32_t> out;
    for (; lanes; lanes &= lanes - 1) out.push_back(warp * 32 + static_cast<uint32_t>(std::countr_zero(lanes)));
    return out;
  }

  void synchroniseWarp() {
    const uint32_t warp = below(kWarps);
    uint32_t lanes = static_cast<uint32_t>(random_()) & lanesOf(warp);
    if (below(2) || lanes == 0) lanes = lanesOf(warp);
    uint32_t members[32];
    std::fill(members, members + 32, lanes);
    detector_.arriveInWarp(warp, lanes);
    detector_.leaveInWarp(warp, lanes, members);
    learnAll(threadsOf(warp, lanes), threadsOf(warp, lanes));
  }

  void barrier(bool isWhole) {
    std::vector<uint32_t> coming;
    std::vector<uint32_t> waiting;
    for (uint32_t warp = 0; warp < kWarps; ++warp) {
      const uint32_t some = isWhole ? UINT32_MAX : static_cast<uint32_t>(random_());
      const uint32_t passing = isWhole ? 0 : static_cast<uint32_t>(random_()) & ~some & lanesOf(warp);
      for (const bool waits : {true, false}) {
        const uint32_t lanes = waits ? some & lanesOf(warp) : passing;
        if (lanes == 0) continue;
        detector_.arriveAtBarrier(2, warp, lanes, waits);
        for (const uint32_t t : threadsOf(warp, lanes)) {
          coming.push_back(t);
          if (waits) waiting.push_back(t);
        }
      }
    }
    detector_.completeBarrier(2, kThreads);
    learnAll(coming, waiting);
  }

  std::mt19937_64 random_;
  RaceDetector detector_;
  std::vector<Clocks> known_;
  std::vector<Past> past_[kBytes];
  Instruction instruction_;
  FunctionCode function_;
  uint32_t site_ = 0;
};

TEST("a race is one that full clocks see, and none with the last write is missed") {
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    Model model(seed);
    for (int i = 0; i < 200; ++i) model.step();
  }
}

}  // namespace
}  // namespace millpond::softgpu::ptx::testing
