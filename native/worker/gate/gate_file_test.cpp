// SPDX-License-Identifier: Apache-2.0
#include "worker/gate/gate_file.h"

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <vector>

#include "testing/check.h"
#include "worker/testing/gate_folder.h"

namespace millpond::worker::gate {
namespace {

std::unique_ptr<GateFile> open(const GateFolder& folder) {
  auto file = GateFile::open(folder.gate());
  CHECK(bool(file));
  return std::move(*file);
}

/// In a separate process, which kills itself.
void inDyingProcess(const std::function<void()>& body) {
  const pid_t child = ::fork();
  CHECK(child >= 0);
  if (child == 0) {
    body();
    ::_exit(0);
  }
  int status = 0;
  CHECK_EQ(::waitpid(child, &status, 0), child);
  CHECK(WIFSIGNALED(status));
}

}  // namespace

TEST("all who open a gate sit at one table") {
  const GateFolder folder;
  const auto one = open(folder);
  const auto two = open(folder);
  const auto slot = one->join(1, {ServiceClass::kGuaranteed, 30}, 0);
  CHECK(slot.has_value());
  CHECK_EQ(two->taken(), 1u);
  const auto other = two->join(2, {ServiceClass::kBurstable, 30}, 0);
  CHECK(other.has_value());
  CHECK(*other != *slot);
  CHECK_EQ(one->taken(), 2u);
  two->leave(*other, 0);
  one->leave(*slot, 0);
  CHECK_EQ(two->taken(), 0u);
}

TEST("the slot of a process that was killed is free again, and so is its turn") {
  const GateFolder folder;
  const auto here = open(folder);
  inDyingProcess([&] {
    const auto there = open(folder);
    const auto slot = there->join(1, {ServiceClass::kGuaranteed, 100}, 0);
    GateFile::Locked locked(*there);
    locked.slicer.beginFlight(*slot, 0);
    if (!locked.slicer.ask(*slot, 0).isMine) std::abort();
    ::kill(::getpid(), SIGKILL);  // with the table locked
  });
  const auto slot = here->join(2, {ServiceClass::kGuaranteed, 50}, 1);
  CHECK(slot.has_value());
  CHECK_EQ(here->taken(), 1u);
  {
    GateFile::Locked locked(*here);
    CHECK(locked.slicer.ask(*slot, 1).isMine);
    // The dead one's work does not count as being in flight.
    locked.slicer.beginFlight(*slot, 1);
    const int64_t before = locked.slicer.sharedTime(1);
    CHECK_EQ(locked.slicer.sharedTime(1001), before + 1000);
  }
  here->leave(*slot, 1001);
}

TEST("the slot of a session that ends without leaving is free again") {
  const GateFolder folder;
  const auto file = open(folder);
  CHECK(open(folder)->join(1, {}, 0).has_value());
  CHECK_EQ(file->taken(), 1u);
  file->sweep(1);
  CHECK_EQ(file->taken(), 0u);
}

TEST("a live session keeps its slot, and the number of slots is limited") {
  const GateFolder folder;
  const auto file = open(folder);
  // A claim for each.
  for (uint32_t i = 0; i < kSlots; ++i) CHECK(file->join(1 + i, {}, 0).has_value());
  CHECK_EQ(file->claims(), kSlots);
  file->sweep(1);
  CHECK(!file->join(1, {}, 1).has_value());
  file->leave(7, 1);
  CHECK_EQ(file->join(kSlots + 1, {}, 1).value_or(kNoSlot), 7u);
  for (uint32_t i = 0; i < kSlots; ++i) file->leave(i, 1);
  CHECK_EQ(file->taken(), 0u);
}

TEST("what a claim owes is kept when its sessions have ended, in whatever way, and not the next claim's") {
  const GateFolder folder;
  const auto here = open(folder);
  constexpr Share kTenth{ServiceClass::kGuaranteed, 10};
  constexpr int64_t kMilli = 1'000'000;
  inDyingProcess([&] {
    const auto there = open(folder);
    const auto slot = there->join(1, kTenth, 0);
    GateFile::Locked(*there).slicer.charge(*slot, 100 * 60'000 * kMilli, 0);
    ::kill(::getpid(), SIGKILL);
  });
  const int64_t owed = 100 * 60'000 * kMilli;
  const auto again = here->join(1, kTenth, 1'000 * kMilli);
  const auto other = here->join(2, kTenth, 1'000 * kMilli);
  {
    GateFile::Locked locked(*here);
    const int64_t credit = locked.slicer.credit(*again, 1'000 * kMilli);
    CHECK(credit < -owed + 150 * kMilli);
    CHECK(credit >= -owed + 100 * kMilli);
    CHECK(locked.slicer.credit(*other, 1'000 * kMilli) > 0);
  }
  here->leave(*again, 1'000 * kMilli);
  here->leave(*other, 1'000 * kMilli);
  // Whatever other claims join and leave, it is the last debt that is forgotten.
  for (uint64_t claim = 3; claim < 3 + 2 * kAccounts; ++claim)
    here->leave(*here->join(claim, kTenth, 1'001 * kMilli), 1'001 * kMilli);
  const auto later = here->join(1, kTenth, 2'000 * kMilli);
  CHECK(GateFile::Locked(*here).slicer.credit(*later, 2'000 * kMilli) < -owed + 300 * kMilli);
  here->leave(*later, 2'000 * kMilli);
}

namespace {

constexpr int64_t kSecondNs = 1'000'000'000;

uint64_t claimOf(uint32_t tenant, uint32_t claim) { return uint64_t{tenant} << 32 | claim; }

/// The total debt of a tenant's claims, with and without sessions.
int64_t owed(GateFile& file, uint32_t tenant) {
  const GateFile::Locked locked(file);
  int64_t sum = 0;
  for (const Account& each : locked.slicer.table().accounts)
    if (each.claim != 0 && tenantOf(each.claim) == tenant) sum -= std::min<int64_t>(each.credit, 0);
  return sum;
}

}  // namespace

TEST("a tenant that ends its claim and begins another one still has the debt, and other tenants have not") {
  const GateFolder folder;
  const auto file = open(folder);
  constexpr Share kTenth{ServiceClass::kGuaranteed, 10};
  for (uint32_t claim = 1; claim <= 5; ++claim) {
    const auto slot = file->join(claimOf(7, claim), kTenth, 0);
    if (claim == 1) GateFile::Locked(*file).slicer.charge(*slot, 30 * kSecondNs, 0);
    CHECK(GateFile::Locked(*file).slicer.credit(*slot, 0) < -29 * kSecondNs);
    file->leave(*slot, 0);
  }
  const auto other = file->join(claimOf(8, 1), kTenth, 0);
  CHECK(GateFile::Locked(*file).slicer.credit(*other, 0) > 0);
  // It is repaid by waiting, and gone afterwards.
  const auto later = file->join(claimOf(7, 6), kTenth, 400 * kSecondNs);
  CHECK(GateFile::Locked(*file).slicer.credit(*later, 400 * kSecondNs) >= 0);
}

TEST("a debt is not left with a claim that repays it slowly, nor with one of another class") {
  const GateFolder folder;
  const auto file = open(folder);
  const auto first = file->join(claimOf(7, 1), {ServiceClass::kGuaranteed, 50}, 0);
  GateFile::Locked(*file).slicer.charge(*first, 30 * kSecondNs, 0);
  file->leave(*first, 0);
  file->join(claimOf(7, 2), {ServiceClass::kBestEffort, 1}, 0);
  file->join(claimOf(7, 3), {ServiceClass::kBurstable, 50}, 0);
  file->join(claimOf(7, 4), {ServiceClass::kGuaranteed, 1}, 0);
  const auto next = file->join(claimOf(7, 5), {ServiceClass::kGuaranteed, 50}, 0);
  CHECK(GateFile::Locked(*file).slicer.credit(*next, 0) < -29 * kSecondNs);
}

TEST("claims of a tenant that come and go in any order owe together what they have used above their shares") {
  uint32_t state = 20'261'124;
  const auto random = [&](uint32_t below) {
    state = state * 1'664'525 + 1'013'904'223;
    return (state >> 8) % below;
  };
  for (int round = 0; round < 50; ++round) {
    const GateFolder folder;
    const auto file = open(folder);
    std::vector<uint32_t> slots;
    int64_t used = 0;
    int64_t given = 0;  // credit that claims start with, or have saved
    for (int step = 0; step < 60; ++step) {
      if (slots.size() < 8 && random(2) == 0) {
        slots.push_back(*file->join(claimOf(7, 1 + random(20)), {ServiceClass::kGuaranteed, 1 + random(99)}, 0));
        given += kMostCreditNs;
      } else if (!slots.empty()) {
        const size_t which = random(static_cast<uint32_t>(slots.size()));
        if (random(2) == 0) {
          const int64_t ns = int64_t{1 + random(5)} * kSecondNs;
          GateFile::Locked(*file).slicer.charge(slots[which], ns, 0);
          used += ns;
        } else {
          file->leave(slots[which], 0);
          slots.erase(slots.begin() + static_cast<ptrdiff_t>(which));
        }
      }
      CHECK(owed(*file, 7) <= used + 1000);
      CHECK(owed(*file, 7) >= used - given - 1000);
    }
    for (const uint32_t slot : slots) file->leave(slot, 0);
  }
}

TEST("a file that is no gate is refused, and says so") {
  const GateFolder folder;
  std::ofstream(folder.gate()) << "something else";
  const auto file = GateFile::open(folder.gate());
  CHECK(!file);
  CHECK(file.error().message.find("another release") != std::string::npos);
  CHECK(!GateFile::open(folder.path + "/nowhere/GPU-1"));
}

}  // namespace millpond::worker::gate
