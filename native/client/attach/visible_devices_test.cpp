// SPDX-License-Identifier: Apache-2.0
#include "client/attach/visible_devices.h"

#include "testing/check.h"

using millpond::DeviceSnapshot;
using millpond::client::visibleDevices;

namespace {
std::vector<DeviceSnapshot> threeDevices() {
  std::vector<DeviceSnapshot> devices(3);
  devices[0].uuid = {0xab, 0xcd, 0xef, 0x01, 0, 1, 2, 3};
  devices[1].uuid = {0xab, 0xcd, 0xef, 0x02};
  devices[2].uuid = {0x12};
  return devices;
}
std::string seen(std::optional<std::string_view> variable) {
  std::string text;
  const auto visible = visibleDevices(threeDevices(), variable);
  if (!visible) return "refused";
  for (const uint16_t device : *visible) text += std::to_string(device);
  return text;
}
}  // namespace

TEST("UUIDs as text") {
  CHECK_EQ(millpond::client::uuidText(threeDevices()[0].uuid), "GPU-abcdef01-0001-0203-0000-000000000000");
}

TEST("ordinals and UUIDs, in the order given, up to the first that is wrong") {
  CHECK_EQ(seen(std::nullopt), "012");
  CHECK_EQ(seen("2,0"), "20");
  CHECK_EQ(seen(" 1 , 2 "), "12");
  CHECK_EQ(seen(""), "");
  CHECK_EQ(seen("-1"), "");
  CHECK_EQ(seen("NoDevFiles"), "");
  CHECK_EQ(seen("0,3,1"), "0");
  CHECK_EQ(seen("0,,1"), "0");
  CHECK_EQ(seen("0,1,0,2"), "refused");
  CHECK_EQ(seen("0,1x"), "0");
  CHECK_EQ(seen("GPU-12"), "2");
  CHECK_EQ(seen("GPU-ABCDEF02,0"), "10");
  CHECK_EQ(seen("GPU-abcdef"), "");  // two of them
  CHECK_EQ(seen("GPU-abcdef01-0001-0203-0000-000000000000"), "0");
  CHECK_EQ(seen("GPU-abcdef01-0001-0203-0000-0000000000000"), "");
  CHECK_EQ(seen("99999999999"), "");
}

TEST("no devices") { CHECK(visibleDevices({}, std::nullopt)->empty()); }
