// SPDX-License-Identifier: Apache-2.0
#include "protocol/handshake/snapshot.h"

#include <cstring>
#include <random>

#include "testing/check.h"

namespace millpond {
namespace {

Snapshot someSnapshot() {
  Snapshot s;
  s.driverVersion = 13000;
  for (int i = 0; i < 3; ++i) {
    DeviceSnapshot d;
    d.name = "NVIDIA H200 number " + std::to_string(i);
    for (size_t b = 0; b < d.uuid.size(); ++b) d.uuid[b] = static_cast<uint8_t>(16 * i + static_cast<int>(b));
    d.memoryBytes = (uint64_t{1} << 37) + static_cast<uint64_t>(i);
    d.computePercent = static_cast<uint32_t>(100 - i);
    for (size_t a = 0; a < d.attributes.size(); ++a)
      d.attributes[a] = a % 7 ? static_cast<int32_t>(a) * 1000 - i : kNoAttribute;
    d.leastStreamPriority = 0;
    d.greatestStreamPriority = -5 - i;
    s.devices.push_back(d);
  }
  s.errors = {{0, "CUDA_SUCCESS", "no error"}, {1, "CUDA_ERROR_INVALID_VALUE", "invalid argument"}, {999, "", ""}};
  return s;
}

TEST("a snapshot arrives as it was sent") {
  const Snapshot sent = someSnapshot();
  auto read = Snapshot::decode(sent.encode());
  CHECK(bool(read));
  CHECK_EQ(read->driverVersion, sent.driverVersion);
  CHECK_EQ(read->devices.size(), sent.devices.size());
  for (size_t i = 0; i < sent.devices.size(); ++i) {
    const DeviceSnapshot& a = read->devices[i];
    const DeviceSnapshot& b = sent.devices[i];
    CHECK_EQ(a.name, b.name);
    CHECK(a.uuid == b.uuid);
    CHECK_EQ(a.memoryBytes, b.memoryBytes);
    CHECK_EQ(a.computePercent, b.computePercent);
    CHECK(a.attributes == b.attributes);
    CHECK_EQ(a.leastStreamPriority, b.leastStreamPriority);
    CHECK_EQ(a.greatestStreamPriority, b.greatestStreamPriority);
  }
  CHECK_EQ(read->errors.size(), sent.errors.size());
  for (size_t i = 0; i < sent.errors.size(); ++i) {
    CHECK_EQ(read->errors[i].code, sent.errors[i].code);
    CHECK_EQ(read->errors[i].name, sent.errors[i].name);
    CHECK_EQ(read->errors[i].text, sent.errors[i].text);
  }
  CHECK(read->encode() == sent.encode());
}

TEST("an empty snapshot and the largest session have a form") {
  auto empty = Snapshot::decode(Snapshot{}.encode());
  CHECK(bool(empty));
  CHECK(empty->devices.empty() && empty->errors.empty());
  Snapshot large = someSnapshot();
  large.devices.resize(64, large.devices.front());
  auto read = Snapshot::decode(large.encode());
  CHECK(bool(read));
  CHECK_EQ(read->devices.size(), 64u);
}

TEST("every cut and every addition is refused") {
  const auto bytes = someSnapshot().encode();
  for (size_t n = 0; n < bytes.size(); ++n) {
    // A separate block, so that a sanitizer detects any read beyond the cut.
    const std::vector<std::byte> cut(bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(n));
    auto read = Snapshot::decode(cut);
    CHECK(!read);
    CHECK_EQ(read.error().message, "the worker's description of its devices is broken");
  }
  auto longer = bytes;
  longer.push_back(std::byte{0});
  CHECK(!Snapshot::decode(longer));
}

TEST("no bytes at all make it crash or take much memory") {
  const auto bytes = someSnapshot().encode();
  std::minstd_rand random(23);
  size_t taken = 0;
  for (int round = 0; round < 20'000; ++round) {
    auto garbage = bytes;
    for (uint32_t flips = 1 + random() % 8; flips; --flips)
      garbage[random() % garbage.size()] = static_cast<std::byte>(random());
    if (random() % 3 == 0) garbage.resize(random() % garbage.size());
    garbage.shrink_to_fit();
    auto read = Snapshot::decode(garbage);
    if (!read) continue;
    ++taken;
    CHECK_EQ(read->encode().size(), garbage.size());
  }
  CHECK(taken > 0);
}

TEST("counts that promise more than there is are refused") {
  auto bytes = someSnapshot().encode();
  for (const uint32_t count : {4u, 1025u, 0x7fffffffu, 0xffffffffu}) {
    std::memcpy(bytes.data() + 4, &count, sizeof(count));
    CHECK(!Snapshot::decode(bytes));
  }
  // A text that is longer than any name.
  Snapshot wordy = someSnapshot();
  wordy.devices[0].name.assign(4097, 'n');
  CHECK(!Snapshot::decode(wordy.encode()));
}

}  // namespace
}  // namespace millpond
