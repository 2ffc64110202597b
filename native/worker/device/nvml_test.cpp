// SPDX-License-Identifier: Apache-2.0
#include "worker/device/nvml.h"

#include <dlfcn.h>

#include <string>
#include <vector>

#include "testing/check.h"

using millpond::worker::Nvml;

TEST("devices are linked as the management library says") {
  const Nvml nvml(MILLPOND_FAKE_NVML);
  CHECK_EQ(nvml.driverVersion(), std::string("580.1"));
  CHECK(nvml.areLinked("GPU-a", "GPU-b"));
  CHECK(nvml.areLinked("GPU-b", "GPU-a"));
  CHECK(!nvml.areLinked("GPU-a", "GPU-c"));
  CHECK(!nvml.areLinked("GPU-a", "GPU-unknown"));
  CHECK_EQ(nvml.linksOf("GPU-a"), 2u);
  CHECK_EQ(nvml.linksOf("GPU-c"), 0u);
  CHECK_EQ(nvml.linksOf("GPU-unknown"), 0u);
}

TEST("without a management library nothing is known") {
  const Nvml nvml("/nonexistent/libnvidia-ml.so.1");
  CHECK_EQ(nvml.driverVersion(), std::string());
  CHECK(!nvml.areLinked("GPU-a", "GPU-b"));
  CHECK_EQ(nvml.linksOf("GPU-a"), 0u);
}

namespace {

template <typename Function>
Function* fake(const char* name) {
  void* const library = ::dlopen(MILLPOND_FAKE_NVML, RTLD_NOW | RTLD_LOCAL);
  auto* const found = reinterpret_cast<Function*>(library ? ::dlsym(library, name) : nullptr);
  CHECK(found != nullptr);
  return found;
}

constexpr unsigned long long kXid = 8, kDoubleBitEcc = 2;
const std::string kNothing;

}  // namespace

TEST("what the driver reports of a card is told once, and what it reports of programs is not") {
  Nvml nvml(MILLPOND_FAKE_NVML);
  for (const char* uuid : {"GPU-a", "GPU-b", "GPU-c", "GPU-unknown"}) nvml.watch(uuid);
  auto* const report = fake<void(unsigned, unsigned long long, unsigned long long)>("fakeNvmlReport");
  // Errors of programs, contained and corrected errors, summaries of others, and numbers other than Xids.
  for (const unsigned long long harmless : {8, 13, 31, 32, 43, 45, 63, 68, 69, 92, 94, 105, 121, 137, 154})
    report(0, kXid, harmless);
  report(0, kDoubleBitEcc, 79);
  CHECK(nvml.takeFaults().empty());
  const std::vector<unsigned long long> ofCards = {46,  48,  62,  64,  74,  79,  95,  109, 110,
                                                   119, 120, 136, 140, 143, 155, 158, 999};
  for (const unsigned long long xid : ofCards) report(1, kXid, xid);
  const auto faults = nvml.takeFaults();
  CHECK_EQ(faults.size(), ofCards.size());
  for (size_t i = 0; i < faults.size(); ++i) {
    CHECK_EQ(faults[i].uuid, std::string("GPU-b"));
    CHECK_EQ(faults[i].reason, "the driver has reported Xid " + std::to_string(ofCards[i]));
  }
  CHECK(nvml.takeFaults().empty());
  CHECK_EQ(nvml.illness("GPU-b"), kNothing);
}

TEST("errors of memory and Xids are counted, those of programs too") {
  Nvml nvml(MILLPOND_FAKE_NVML);
  for (const char* uuid : {"GPU-a", "GPU-b", "GPU-c"}) nvml.watch(uuid);
  auto before = nvml.figures("GPU-a");
  CHECK_EQ(before.at("eccCorrectedErrors"), 0xffff'ffffu);
  CHECK_EQ(before.at("eccUncorrectedErrors"), 3u);
  CHECK_EQ(before.at("remappedRows"), 3u);
  CHECK_EQ(before.at("pendingRowRemaps"), 1u);
  CHECK_EQ(before.at("xids"), 0u);
  CHECK(before.count("lastXid") == 0);
  auto* const report = fake<void(unsigned, unsigned long long, unsigned long long)>("fakeNvmlReport");
  report(0, kXid, 79);
  report(0, kXid, 13);
  report(0, kDoubleBitEcc, 5);
  CHECK_EQ(nvml.takeFaults().size(), 1u);
  CHECK_EQ(nvml.figures("GPU-a").at("xids"), 2u);
  CHECK_EQ(nvml.figures("GPU-a").at("lastXid"), 13u);
  CHECK_EQ(nvml.figures("GPU-b").at("xids"), 0u);
  // Without ECC, and without reports: absent, not zero.
  const auto silent = nvml.figures("GPU-c");
  CHECK(silent.count("eccCorrectedErrors") == 0 && silent.count("xids") == 0);
}

TEST("a device is ill for as long as its driver wants something done with it") {
  Nvml nvml(MILLPOND_FAKE_NVML);
  nvml.watch("GPU-a");
  auto* const recover = fake<void(unsigned, int)>("fakeNvmlRecover");
  for (const int reset : {1, 4}) {
    recover(0, reset);
    CHECK_EQ(nvml.illness("GPU-a"), std::string("its driver requires a reset of it"));
  }
  recover(0, 2);
  CHECK_EQ(nvml.illness("GPU-a"), std::string("its driver requires a restart of the host"));
  // A driver that reports nothing, one that reports only its links, and one that cannot tell.
  for (const int nothing : {0, 3, -1}) {
    recover(0, nothing);
    CHECK_EQ(nvml.illness("GPU-a"), kNothing);
  }
}

TEST("a device is ill for as long as its card says so, whether it can report or not") {
  Nvml nvml(MILLPOND_FAKE_NVML);
  nvml.watch("GPU-c");
  auto* const answer = fake<void(unsigned, int)>("fakeNvmlAnswer");
  answer(2, 15);
  CHECK_EQ(nvml.illness("GPU-c"), std::string("it has fallen off its bus"));
  answer(2, 16);
  CHECK_EQ(nvml.illness("GPU-c"), std::string("it requires a reset"));
  // Not supported, or not allowed: this says nothing about the card.
  for (const int silent : {0, 3, 4, 999}) {
    answer(2, silent);
    CHECK_EQ(nvml.illness("GPU-c"), kNothing);
  }
  fake<void(unsigned)>("fakeNvmlFailRows")(2);
  CHECK_EQ(nvml.illness("GPU-c"), std::string("no spare rows are left for failed rows of its memory"));
}

TEST("without a management library nothing is known against a device") {
  Nvml nvml("/nonexistent/libnvidia-ml.so.1");
  nvml.watch("GPU-a");
  CHECK_EQ(nvml.illness("GPU-a"), kNothing);
}
