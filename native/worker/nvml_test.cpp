// SPDX-License-Identifier: Apache-2.0
#include "worker/nvml.h"

#include <dlfcn.h>

#include "testing/check.h"

using millpond::worker::Nvml;

TEST("devices are linked as the management library says") {
  const Nvml nvml(MILLPOND_FAKE_NVML);
  CHECK_EQ(nvml.driverVersion(), std::string("580.1"));
  CHECK(nvml.areLinked("GPU-a", "GPU-b"));
  CHECK(nvml.areLinked("GPU-b", "GPU-a"));
  CHECK(!nvml.areLinked("GPU-a", "GPU-c"));
  CHECK(!nvml.areLinked("GPU-a", "GPU-unknown"));
}

TEST("without a management library nothing is known") {
  const Nvml nvml("/nonexistent/libnvidia-ml.so.1");
  CHECK_EQ(nvml.driverVersion(), std::string());
  CHECK(!nvml.areLinked("GPU-a", "GPU-b"));
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

TEST("a device of which the driver reports a fault of the card is ill from then on, and others are not") {
  Nvml nvml(MILLPOND_FAKE_NVML);
  for (const char* uuid : {"GPU-a", "GPU-b", "GPU-c", "GPU-unknown"}) nvml.watch(uuid);
  auto* const report = fake<void(unsigned, unsigned long long, unsigned long long)>("fakeNvmlReport");
  // What programs did wrong, and what is no Xid.
  for (const unsigned long long harmless : {13, 31, 43, 45, 63, 94}) report(0, kXid, harmless);
  report(0, kDoubleBitEcc, 79);
  CHECK_EQ(nvml.illness("GPU-a"), kNothing);
  report(0, kXid, 79);
  report(0, kXid, 48);
  CHECK_EQ(nvml.illness("GPU-a"), std::string("the driver has reported Xid 79"));
  CHECK_EQ(nvml.illness("GPU-a"), std::string("the driver has reported Xid 79"));
  for (const char* uuid : {"GPU-b", "GPU-c", "GPU-unknown"}) CHECK_EQ(nvml.illness(uuid), kNothing);
}

TEST("a device is ill for as long as its card says so, whether it can report or not") {
  Nvml nvml(MILLPOND_FAKE_NVML);
  nvml.watch("GPU-c");
  auto* const answer = fake<void(unsigned, int)>("fakeNvmlAnswer");
  answer(2, 15);
  CHECK_EQ(nvml.illness("GPU-c"), std::string("it has fallen off its bus"));
  answer(2, 16);
  CHECK_EQ(nvml.illness("GPU-c"), std::string("it has to be reset"));
  // Not supported, or not allowed: says nothing of the card.
  for (const int silent : {0, 3, 4, 999}) {
    answer(2, silent);
    CHECK_EQ(nvml.illness("GPU-c"), kNothing);
  }
  fake<void(unsigned)>("fakeNvmlFailRows")(2);
  CHECK_EQ(nvml.illness("GPU-c"), std::string("broken rows of its memory cannot be replaced any more"));
}

TEST("without a management library nothing is known against a device") {
  Nvml nvml("/nonexistent/libnvidia-ml.so.1");
  nvml.watch("GPU-a");
  CHECK_EQ(nvml.illness("GPU-a"), kNothing);
}
