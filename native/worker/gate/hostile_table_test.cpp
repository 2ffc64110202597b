// SPDX-License-Identifier: Apache-2.0
// A compromised worker has the table of its devices mapped and can write anything there, at any time. The others lose no more
// than their time slices by it: they neither end nor hang, nor do they use memory outside of the table.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <random>
#include <thread>

#include "base/unique_fd.h"
#include "protocol/futex.h"
#include "testing/check.h"
#include "worker/gate/session_gate.h"
#include "worker/testing/gate_folder.h"

namespace millpond::worker::gate {
namespace {

constexpr int64_t kMs = 1'000'000;

/// The table's file, as seen by a process that may write everything in it.
class Attacker {
 public:
  explicit Attacker(const GateFolder& folder) {
    const UniqueFd file(::open(folder.gate().c_str(), O_RDWR | O_CLOEXEC));
    struct stat info {};
    CHECK_EQ(::fstat(file.get(), &info), 0);
    words_ = static_cast<size_t>(info.st_size) / sizeof(uint32_t);
    void* place = ::mmap(nullptr, words_ * sizeof(uint32_t), PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
    CHECK(place != MAP_FAILED);
    place_ = static_cast<std::atomic<uint32_t>*>(place);
  }
  ~Attacker() { ::munmap(place_, words_ * sizeof(uint32_t)); }
  size_t words() const { return words_; }
  /// Mostly the head of the table, or its first claims and slots.
  size_t somewhere(std::mt19937_64& random) const {
    const size_t table = words_ - sizeof(Table) / sizeof(uint32_t);
    const auto within = [&](size_t offset, size_t bytes) {
      return table + (offset + random() % bytes) / sizeof(uint32_t);
    };
    switch (random() % 4) {
      case 0: return within(0, offsetof(Table, accounts));
      case 1: return within(offsetof(Table, accounts), 8 * sizeof(Account));
      case 2: return within(offsetof(Table, slots), 8 * sizeof(Slot));
      default: return random() % words_;
    }
  }
  std::atomic<uint32_t>& at(size_t word) { return place_[word]; }

 private:
  std::atomic<uint32_t>* place_ = nullptr;
  size_t words_ = 0;
};

std::unique_ptr<SessionGate> join(const GateFolder& folder, uint64_t claim, Share share, int64_t patienceNs) {
  auto file = GateFile::open(folder.gate(), patienceNs);
  CHECK(bool(file));
  auto gate = SessionGate::open(std::move(*file), claim, share, 0);
  return gate ? std::move(*gate) : nullptr;
}

/// Simulates a session at its gate for `steps` steps of a millisecond. Returns the time for which it had work in
/// flight.
int64_t work(SessionGate& gate, std::mt19937_64& random, int64_t from, int steps) {
  int64_t worked = 0;
  for (int step = 0; step < steps; ++step) {
    const int64_t now = from + step * kMs;
    gate.look(now, true);
    const std::optional<int64_t> expected = random() % 4 ? std::optional<int64_t>(kMs) : std::nullopt;
    if (random() % 64 == 0)
      gate.setShare({static_cast<ServiceClass>(random() % 3), static_cast<uint32_t>(1 + random() % 100)});
    if (!gate.admit(expected, now)) {
      CHECK(gate.napNs(now) >= 0);
      continue;
    }
    if (!gate.isOn()) continue;
    gate.issued(expected, now);
    const uint64_t batch = gate.close(now);
    if (random() % 32 == 0) gate.abandon(batch, now);
    const int64_t used = gate.landed(batch, random() % 8 ? std::optional<int64_t>(kMs) : std::nullopt, now + kMs);
    CHECK(used >= 0);
    CHECK(used <= kMs);
    worked += kMs;
  }
  return worked;
}

}  // namespace

TEST("sessions go on, whatever is written into the table between their steps") {
  std::mt19937_64 random(20'261'125);
  for (int round = 0; round < 200; ++round) {
    const GateFolder folder;
    const auto one = join(folder, 1, {ServiceClass::kGuaranteed, 30}, 2 * kMs);
    const auto two = join(folder, 2, {ServiceClass::kBurstable, 30}, 2 * kMs);
    CHECK(one && two);
    Attacker attacker(folder);
    // Values used for bounds are more likely than others.
    constexpr uint32_t kTelling[] = {0, 1, 2, 3, 4, 0x7fffffff, 0x80000000, 0xffffffff, kSlots, kAccounts, 100, 101};
    for (int step = 0; step < 40; ++step) {
      for (size_t i = 0; i < 200; ++i) {
        const uint64_t value = random();
        const size_t word = attacker.somewhere(random);
        attacker.at(word).store(value % 3 ? kTelling[random() % std::size(kTelling)] : static_cast<uint32_t>(random()));
      }
      work(*one, random, step * kMs, 2);
      work(*two, random, step * kMs, 2);
      join(folder, 3 + static_cast<uint64_t>(step), {ServiceClass::kBestEffort, 1}, 2 * kMs);
    }
  }
}

TEST("sessions go on while the table is being overwritten") {
  const GateFolder folder;
  const auto one = join(folder, 1, {ServiceClass::kGuaranteed, 30}, 5 * kMs);
  CHECK(one != nullptr);
  std::atomic<bool> isOver{false};
  std::thread writer([&] {
    std::mt19937_64 random(7);
    Attacker attacker(folder);
    // Everything but the lock: otherwise the session would have abandoned the table immediately.
    while (!isOver)
      attacker.at(1 + random() % (attacker.words() - 1))
          .store(static_cast<uint32_t>(random() % 5 ? random() % 3 : random()));
  });
  std::mt19937_64 random(8);
  work(*one, random, 0, 20'000);
  isOver = true;
  writer.join();
}

TEST("a session that cannot lock the table keeps to its share without it") {
  const GateFolder folder;
  const auto gate = join(folder, 1, {ServiceClass::kGuaranteed, 30}, 2 * kMs);
  const auto holder = GateFile::open(folder.gate());
  CHECK(bool(holder));
  const GateFile::Locked held(**holder);
  int64_t worked = 0;
  constexpr int kSteps = 10'000;
  for (int step = 0; step < kSteps; ++step) {
    const int64_t now = step * kMs;
    gate->look(now, true);
    if (!gate->admit(kMs, now)) continue;
    CHECK(gate->isOn());
    gate->issued(kMs, now);
    worked += gate->landed(gate->close(now), kMs, now + kMs);
  }
  CHECK(worked > kSteps * kMs * 28 / 100);
  CHECK(worked < kSteps * kMs * 31 / 100);
}

}  // namespace millpond::worker::gate
