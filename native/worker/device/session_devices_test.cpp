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
  // Asking again does not get around it.
  CHECK(!devices.assign(shares));
  CHECK(!devices.assign(shares));
  SessionDevices trusting(driver, true);
  CHECK(bool(trusting.assign(shares)));
}

}  // namespace
}  // namespace millpond::worker
