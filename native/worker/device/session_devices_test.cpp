// SPDX-License-Identifier: Apache-2.0
#include "worker/device/session_devices.h"

#include "testing/check.h"
#include "worker/testing/fake_driver.h"

namespace millpond::worker {
namespace {

TEST("a device whose kernels reach the worker's own memory is refused, unless that is trusted") {
  FakeDriver fake(1);
  const Driver driver = fake.table();
  const std::vector<DeviceShare> shares{{FakeDriver::uuid(0), 64 * kMi, 50}};
  CHECK(bool(SessionDevices(driver).assign(shares)));
  fake.reachPageableMemory();
  SessionDevices devices(driver);
  const Status warm = devices.warm(FakeDriver::uuid(0));
  CHECK(!warm);
  CHECK(warm.error().message.find("uvm_disable_hmm=1") != std::string::npos);
  // Repeating the request does not circumvent it.
  CHECK(!devices.assign(shares));
  CHECK(!devices.assign(shares));
  SessionDevices trusting(driver, true);
  CHECK(bool(trusting.assign(shares)));
}

TEST("a session that is refused, or waits, has no context, not even one that was made ahead") {
  FakeDriver fake(2);
  const Driver driver = fake.table();
  const std::vector<DeviceShare> shares{{FakeDriver::uuid(0), 64 * kMi, 50}, {FakeDriver::uuid(1), 64 * kMi, 50}};
  SessionDevices devices(driver);
  CHECK(bool(devices.warm(FakeDriver::uuid(0))));
  CHECK_EQ(fake.primaryContexts(), 1u);
  CHECK(!devices.assign(shares, [&]() -> Status {
    CHECK_EQ(fake.primaryContexts(), 1u);
    return Error{"the claim has no room"};
  }));
  CHECK_EQ(fake.primaryContexts(), 0u);
  CHECK(bool(devices.warm(FakeDriver::uuid(0))));
  CHECK(bool(devices.assign(shares, [&]() -> Status {
    devices.cool();
    CHECK_EQ(fake.primaryContexts(), 0u);
    return Done{};
  })));
  CHECK_EQ(fake.primaryContexts(), 2u);
}

}  // namespace
}  // namespace millpond::worker
