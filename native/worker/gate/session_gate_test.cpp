// SPDX-License-Identifier: Apache-2.0
// Shares over a time that the test makes: the gates are the real ones, in a file; the GPU is a model of one that slices
// its time between all sessions with work in flight, as real ones do between contexts.
#include "worker/gate/session_gate.h"

#include <algorithm>
#include <random>
#include <vector>

#include "testing/check.h"
#include "worker/gate/lane.h"
#include "worker/testing/simulated_gpu.h"

namespace millpond::worker::gate {

TEST("two sessions have their shares in every second, whatever their kernels are like") {
  for (const uint32_t less : {10u, 30u, 50u}) {
    for (const auto& [ours, theirs] : {std::pair{50'000, 50'000}, {2 * kMs, 100'000}, {100'000, 8 * kMs}}) {
      Gpu gpu;
      Tenant& small = gpu.add(guaranteed(less), always(ours));
      Tenant& large = gpu.add(guaranteed(100 - less), always(theirs));
      gpu.run(5 * kSecond);
      CHECK_WITHIN(percentOf(small, gpu), less - 3, less + 1.5);
      CHECK_WITHIN(percentOf(large, gpu), 100 - less - 5, 100 - less + 1.5);
      for (const int64_t window : small.windows) CHECK_WITHIN(window / kMs, less * 10 - 40, less * 10 + 25);
    }
  }
}

TEST("a guaranteed session never has more than its share, although nobody else is there") {
  for (const uint32_t percent : {1u, 30u, 75u}) {
    Gpu gpu;
    Tenant& tenant = gpu.add(guaranteed(percent), always(200'000));
    gpu.run(4 * kSecond);
    CHECK_WITHIN(percentOf(tenant, gpu), percent * 0.95, percent * 1.01 + 0.1);
    for (const int64_t window : tenant.windows) CHECK(window <= percent * kSecond / 100 + kMostCreditNs + 200'000);
  }
}

TEST("who has the whole GPU for itself is not measured, and everybody is as soon as there is another") {
  Gpu gpu;
  Tenant& first = gpu.add(guaranteed(100), always(100'000));
  gpu.run(kSecond / 10);
  CHECK(!first.gate->isOn());
  CHECK(first.gate->isAtRest());
  CHECK_EQ(first.gate->usedNs(), 0);
  Tenant& second = gpu.add(bestEffort(), always(100'000));
  gpu.run(kSecond);  // previously issued work completes
  CHECK(first.gate->isOn());
  CHECK(second.gate->isOn());
  CHECK(first.gate->usedNs() > 0);
}

TEST("a burstable session has what others leave, and its share when they do not") {
  Gpu gpu;
  Tenant& burst = gpu.add(burstable(30), always(300'000));
  Tenant& other = gpu.add(guaranteed(70), always(300'000), [](int64_t now) { return now > 2 * kSecond; });
  gpu.run(2 * kSecond);
  CHECK_WITHIN(percentOf(burst, gpu), 96, 100);
  const int64_t before = burst.workedNs;
  gpu.run(2 * kSecond);
  CHECK_WITHIN((burst.workedNs - before) / (20 * kMs), 27, 33);
  CHECK_WITHIN(other.workedNs / (20 * kMs), 65, 71);
}

TEST("two burstable sessions share what is idle by their shares") {
  Gpu gpu;
  Tenant& one = gpu.add(burstable(10), always(300'000));
  Tenant& three = gpu.add(burstable(30), always(300'000));
  gpu.run(4 * kSecond);
  CHECK_WITHIN(percentOf(one, gpu), 22, 28);
  CHECK_WITHIN(percentOf(three, gpu), 70, 77);
}

TEST("a best-effort session has what is idle and nothing else, and is out of the way soon") {
  Gpu gpu;
  // A service: 2 ms of kernels every 10 ms.
  Tenant& service = gpu.add(guaranteed(60), always(100'000));
  int64_t left = 20, due = 0;
  service.wants = [&](int64_t now) {
    if (now >= due) {
      due += 10 * kMs;
      left = 20;
    }
    return left > 0;
  };
  service.kernelNs = [&] {
    --left;
    return 100'000;
  };
  Tenant& training = gpu.add(bestEffort(), always(150'000));
  gpu.run(4 * kSecond);
  CHECK_WITHIN(percentOf(service, gpu), 19.5, 20.5);
  CHECK_WITHIN(percentOf(training, gpu), 70, 80.5);
  std::sort(service.waits.begin(), service.waits.end());
  CHECK(service.waits[service.waits.size() * 99 / 100] <= kBestEffortFlightNs + 2 * kFlightNs);

  Gpu full;
  full.add(burstable(10), always(200'000));
  Tenant& starved = full.add(bestEffort(), always(200'000));
  full.run(2 * kSecond);
  CHECK_WITHIN(percentOf(starved, full), 0, 2);
}

TEST("one long best-effort kernel holds nobody up for its length") {
  Gpu gpu;
  Tenant& service =
      gpu.add(guaranteed(50), always(200'000), [](int64_t now) { return now > 20 * kMs && now < 40 * kMs; });
  gpu.add(bestEffort(), always(80 * kMs));
  gpu.run(100 * kMs);
  CHECK(!service.waits.empty());
  CHECK(service.waits.front() <= kYieldNs + kTurnSlackNs + kLongestTurnNs);
}

TEST("a kernel that is longer than its share allows is paid for by waiting") {
  Gpu gpu;
  Tenant& tenant = gpu.add(guaranteed(20), always(60 * kMs));
  gpu.run(6 * kSecond);
  CHECK_WITHIN(percentOf(tenant, gpu), 18, 21.5);
}

TEST("kernels of which nothing is known keep the shares, too") {
  Gpu gpu;
  Tenant& small = gpu.add(guaranteed(30), always(700'000));
  Tenant& large = gpu.add(guaranteed(70), always(5 * kMs));
  small.isKnown = large.isKnown = false;
  gpu.run(4 * kSecond);
  CHECK_WITHIN(percentOf(small, gpu), 26, 32);
  CHECK_WITHIN(percentOf(large, gpu), 62, 71.5);
}

TEST("another share counts at once") {
  Gpu gpu;
  Tenant& tenant = gpu.add(guaranteed(20), always(200'000));
  gpu.run(kSecond);
  const int64_t before = tenant.workedNs;
  CHECK_WITHIN(before / (10 * kMs), 18, 21.5);
  tenant.gate->setShare(guaranteed(80));
  gpu.run(kSecond);
  CHECK_WITHIN((tenant.workedNs - before) / (10 * kMs), 77, 81.5);
  const int64_t then = tenant.workedNs;
  tenant.gate->setShare(guaranteed(10));
  gpu.run(kSecond);
  CHECK_WITHIN((tenant.workedNs - then) / (10 * kMs), 8, 11.5);
  tenant.gate->setShare(guaranteed(100));
  gpu.run(kSecond / 10);
  CHECK(!tenant.gate->isOn());
}

TEST("a program that waits for each of its kernels has its share beside one that never waits") {
  Gpu gpu;
  Tenant& sparse = gpu.add(guaranteed(50), always(400'000));
  // It returns 60 microseconds after each kernel.
  int64_t emptySince = -1;
  sparse.wants = [&](int64_t now) {
    if (!sparse.flight.empty()) {
      emptySince = -1;
      return false;
    }
    if (emptySince < 0) emptySince = now;
    return now - emptySince >= 60'000;
  };
  gpu.add(guaranteed(50), always(200'000));
  gpu.run(4 * kSecond);
  CHECK_WITHIN(percentOf(sparse, gpu), 35, 51.5);
}

TEST("work that never ends holds up neither the others nor its own session") {
  Gpu gpu;
  int64_t issued = 0;
  Tenant& stuck = gpu.add(guaranteed(50), [&] { return issued++ == 0 ? 1000 * kSecond : 100'000; });
  Tenant& other = gpu.add(guaranteed(50), always(100'000));
  stuck.wants = [&](int64_t) { return issued < 3; };
  gpu.run(kSecond);
  CHECK_EQ(issued, 3);
  CHECK_WITHIN(percentOf(other, gpu), 40, 51.5);
}

TEST("a claim whose work only waits is charged for the turns that it keeps from another") {
  for (const uint32_t sessions : {1u, 2u, 8u}) {
    Gpu gpu;
    for (uint32_t i = 0; i < sessions; ++i) {
      Tenant& each = gpu.add(
          guaranteed(10), always(10'000), [](int64_t) { return true; }, 7);
      each.waitsNs = 3 * kMs;
      each.isKnown = i % 2 == 0;
    }
    Tenant& other = gpu.add(guaranteed(90), always(200'000));
    gpu.run(2 * kSecond);
    CHECK_WITHIN(percentOf(other, gpu), 87, 91);
  }
}

TEST("work that waits costs nothing where nobody else wants the time") {
  Gpu gpu;
  Tenant& waiting = gpu.add(guaranteed(10), always(10'000));
  waiting.waitsNs = 3 * kMs;
  gpu.add(guaranteed(90), always(10'000), [](int64_t) { return false; });
  gpu.run(kSecond);
  CHECK_EQ(waiting.gate->usedNs(), 0);
  CHECK(waiting.waits.size() > 250);
}

TEST("what a turn cost before its work completed is not charged for that work once more") {
  Gpu gpu;
  // Each takes 6 ms, which is not known in advance, and its turn ends earlier.
  Tenant& slow = gpu.add(guaranteed(50), always(6 * kMs));
  slow.isKnown = false;
  gpu.add(guaranteed(50), always(200'000));
  gpu.run(5 * kSecond);
  CHECK_WITHIN(percentOf(slow, gpu), 46, 51.5);
}

TEST("a claim has its share however many sessions it has, and a neighbour has its own") {
  for (const uint32_t sessions : {1u, 8u, 64u}) {
    for (const int64_t kernel : {50'000, 300'000, 5'000'000}) {
      if (sessions == 64 && kernel != 300'000) continue;
      Gpu gpu;
      std::vector<Tenant*> many;
      for (uint32_t i = 0; i < sessions; ++i)
        many.push_back(&gpu.add(
            guaranteed(10), always(kernel), [](int64_t) { return true; }, 7));
      Tenant& other = gpu.add(guaranteed(60), always(200'000));
      gpu.run(5 * kSecond);
      double sum = 0, least = 100;
      for (const Tenant* each : many) {
        sum += percentOf(*each, gpu);
        least = std::min(least, percentOf(*each, gpu));
      }
      CHECK_WITHIN(sum, 8, 12);
      CHECK_WITHIN(percentOf(other, gpu), 56, 62);
      // They also share it evenly.
      if (kernel < kMs) CHECK(least >= 0.5 * sum / sessions);
    }
  }
}

TEST("a process for each kernel gets the claim's share and no more, one after the other or many at a time") {
  for (const uint32_t processes : {1u, 8u}) {
    for (const int64_t kernel : {300'000, 20'000'000}) {
      Gpu gpu;
      std::vector<Tenant*> many;
      for (uint32_t i = 0; i < processes; ++i) {
        many.push_back(&gpu.add(
            guaranteed(10), always(kernel), [](int64_t) { return true; }, 7));
        many.back()->isBrief = true;
        many.back()->isKnown = false;
      }
      gpu.run(10 * kSecond);
      double sum = 0;
      for (const Tenant* each : many) sum += percentOf(*each, gpu);
      CHECK_WITHIN(sum, 8, 12);
    }
  }
}

TEST("processes that are ended while their kernel is at work have used what it took") {
  Gpu gpu;
  Tenant& tenant = gpu.add(
      guaranteed(10), always(1000 * kSecond), [](int64_t) { return true; }, 7);
  tenant.patienceNs = 100 * kMs;
  gpu.run(20 * kSecond);
  CHECK_WITHIN(percentOf(tenant, gpu), 9, 12);
}

TEST("a debt of minutes is paid in full") {
  Gpu gpu;
  Tenant& tenant = gpu.add(guaranteed(1), always(kSecond));
  gpu.run(205 * kSecond);
  CHECK_WITHIN(percentOf(tenant, gpu), 0.9, 1.6);
}

TEST("sessions of a claim that has a GPU for itself are neither held nor measured") {
  Gpu gpu;
  Tenant& one = gpu.add(
      guaranteed(100), always(100'000), [](int64_t) { return true; }, 7);
  Tenant& two = gpu.add(
      guaranteed(100), always(100'000), [](int64_t) { return true; }, 7);
  gpu.run(kSecond / 10);
  CHECK(!one.gate->isOn() && one.gate->isAtRest());
  CHECK(!two.gate->isOn() && two.gate->isAtRest());
  CHECK_WITHIN(percentOf(one, gpu), 49, 51);
}

TEST(
    "among best-effort claims the one of the higher priority has what is idle, and shares are kept whatever priorities") {
  Gpu gpu;
  Share preferred = bestEffort();
  preferred.priority = 5;
  Tenant& low = gpu.add(bestEffort(), always(200'000));
  Tenant& high = gpu.add(preferred, always(200'000), [](int64_t now) { return now > kSecond; });
  gpu.run(kSecond);
  CHECK_WITHIN(percentOf(low, gpu), 95, 100);
  gpu.run(kSecond);
  CHECK_WITHIN(high.workedNs / (10 * kMs), 94, 100);

  Gpu shared;
  Share eager = guaranteed(30);
  eager.priority = 5;
  Tenant& first = shared.add(eager, always(200'000));
  Tenant& second = shared.add(guaranteed(70), always(200'000));
  shared.run(4 * kSecond);
  CHECK_WITHIN(percentOf(first, shared), 27, 31.5);
  CHECK_WITHIN(percentOf(second, shared), 65, 71.5);
}

TEST("a claim's copies in a direction have its share beside others', whatever its processes, and all that is idle") {
  const auto ofCopies = [](uint32_t percent) { return shareOf(Lane::kToDevice, guaranteed(percent)); };
  // Pieces of 256 KiB, and copies of 256 MiB and 1 GiB.
  for (const int64_t piece : {int64_t{10'000}, 10 * kMs, 50 * kMs}) {
    for (const uint32_t processes : {1u, 8u}) {
      Gpu bus;
      std::vector<Tenant*> many;
      for (uint32_t i = 0; i < processes; ++i)
        many.push_back(&bus.add(
            ofCopies(30), always(piece), [](int64_t now) { return now < 8 * kSecond; }, 7));
      Tenant& other = bus.add(ofCopies(70), always(10'000), [](int64_t now) { return now >= 4 * kSecond; });
      const auto ofMany = [&] {
        int64_t sum = 0;
        for (const Tenant* each : many) sum += each->workedNs;
        return static_cast<double>(sum);
      };
      bus.run(4 * kSecond);
      CHECK_WITHIN(ofMany() / (40 * kMs), 95, 100);
      // Their work in flight when the other claim arrives is bounded, too.
      for (int second = 0; second < 4; ++second) {
        const double before = ofMany();
        bus.run(kSecond);
        const double most = 31 + static_cast<double>(piece > kMs ? piece + kMostBurstNs / 2 : 0) / (10 * kMs);
        CHECK_WITHIN((ofMany() - before) / (10 * kMs), 24, most);
      }
      if (piece > kMs) continue;
      const int64_t others = other.workedNs;
      bus.run(2 * kSecond);
      CHECK_WITHIN((other.workedNs - others) / (20 * kMs), 95, 100);
    }
  }
}

TEST("brief work goes without a turn until its claim's credit is used up") {
  Gpu bus;
  const Share share = shareOf(Lane::kToDevice, guaranteed(10));
  Tenant& one = bus.add(share, always(10'000), [](int64_t) { return false; });
  bus.add(share, always(10'000), [](int64_t) { return false; });
  bus.run(kSecond);
  CHECK(one.gate->isOn());
  int64_t charged = 0;
  while (one.gate->admitBrief(5'000, bus.now())) charged += 5'000;
  CHECK_WITHIN(charged, kMostCreditNs - 5'000, kMostCreditNs);
  CHECK_EQ(one.gate->usedNs(), charged);
  CHECK(!one.gate->admitBrief(std::nullopt, bus.now()));
  bus.run(100 * kMs);
  CHECK(one.gate->admitBrief(5'000, bus.now()));
}

TEST("random sessions: no share exceeded, none starved, nothing idle that somebody wants") {
  std::mt19937 random(7);
  const auto between = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  for (int round = 0; round < 24; ++round) {
    Gpu gpu;
    std::vector<Tenant*> tenants;
    uint32_t left = 100;
    bool hasGreedy = false;
    const int64_t count = between(2, 6);
    for (int64_t i = 0; i < count; ++i) {
      const auto percent = static_cast<uint32_t>(between(1, std::max<int64_t>(1, left / 2)));
      const int64_t kind = between(0, 3);
      Share share = kind < 2 ? guaranteed(percent) : kind == 2 ? burstable(percent) : bestEffort();
      if (kind != 3) left -= std::min(left - 1, percent);
      hasGreedy = hasGreedy || kind >= 2;
      const int64_t mean = int64_t{10'000} << between(0, 8);
      tenants.push_back(
          &gpu.add(share, [mean, &between] { return between(mean / 2, mean * 3 / 2) / 1000 * 1000 + 1000; }));
    }
    const int64_t length = 3 * kSecond;
    gpu.run(length);
    int64_t longest = 0;
    for (const Tenant* tenant : tenants) longest = std::max(longest, tenant->longestNs);
    for (const Tenant* tenant : tenants) {
      const Share& share = tenant->share;
      const int64_t due = share.percent * length / 100;
      const int64_t error = kMostCreditNs + kFlightNs + 2 * tenant->longestNs;
      if (share.serviceClass == ServiceClass::kGuaranteed) {
        CHECK(tenant->workedNs <= due * 101 / 100 + error);
        for (const int64_t window : tenant->windows) CHECK(window <= due / 3 * 101 / 100 + error);
      }
      if (share.serviceClass != ServiceClass::kBestEffort)
        CHECK(tenant->workedNs >= due * 85 / 100 - 2 * longest - error);
    }
    if (hasGreedy) CHECK(gpu.busyNs() >= length * 90 / 100);
  }
}

TEST("random claims, some hostile: no claim that wants all the time takes any of what another one's share is") {
  for (unsigned round = 0; round < 15; ++round) {
    std::mt19937 random(round);
    const auto between = [&](int64_t low, int64_t high) {
      return std::uniform_int_distribution<int64_t>(low, high)(random);
    };
    const Lane lane = kLanes[static_cast<size_t>(round % kLanes.size())];
    Gpu gpu;
    // One honest claim, and everything that a hostile one can do with sessions of its own: it gets the rest.
    const auto percent = static_cast<uint32_t>(between(10, 90));
    Tenant& honest = gpu.add(shareOf(lane, guaranteed(percent)), always(between(1, 40) * 10'000));
    const int64_t sessions = between(1, 8);
    int64_t longest = 0;
    for (int64_t i = 0; i < sessions; ++i) {
      const int64_t length = std::min(int64_t{10'000} << between(0, 11), 20 * kMs);
      longest = std::max(longest, length);
      Tenant& each = gpu.add(
          shareOf(lane, guaranteed(100 - percent)), always(length), [](int64_t) { return true; }, 7);
      each.isKnown = between(0, 1) == 1;
      each.isBrief = between(0, 3) == 0;
      if (!each.isBrief && between(0, 2) == 0) each.waitsNs = between(1, 200) * kMs / 10;
    }
    gpu.run(2 * kSecond);
    // The hostile claim gets or wastes at most its share, its saved credit and its work in flight.
    const int64_t lost = gpu.now() - honest.workedNs;
    const int64_t share = (100 - percent) * gpu.now() / 100;
    CHECK(lost <= share + gpu.now() * 2 / 100 + kMostCreditNs + 2 * longest);
  }
}

}  // namespace millpond::worker::gate
