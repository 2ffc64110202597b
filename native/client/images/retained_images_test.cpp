// SPDX-License-Identifier: Apache-2.0
#include "client/images/retained_images.h"

#include <algorithm>
#include <array>
#include <vector>

#include "testing/check.h"

namespace millpond::client {
namespace {

constexpr auto kCompiledIn = [] {
  std::array<std::byte, 100'000> bytes{};
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 7 + i / 256);
  return bytes;
}();
std::array<std::byte, 1000> writable = {std::byte{1}};

bool isSame(std::span<const std::byte> a, std::span<const std::byte> b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end());
}

TEST("an image that lies in a file is kept without a copy, and any other is copied") {
  RetainedImages images;
  CHECK(images.find(1).empty());
  CHECK(images.keep(1, kCompiledIn));
  CHECK(images.keep(2, std::span(kCompiledIn).subspan(4321, 5000)));
  CHECK_EQ(images.copiedBytes(), 0u);
  CHECK(isSame(images.find(1), kCompiledIn));
  CHECK(images.find(1).data() != kCompiledIn.data());
  CHECK(isSame(images.find(2), std::span(kCompiledIn).subspan(4321, 5000)));
  {
    const std::vector<std::byte> own(kCompiledIn.begin(), kCompiledIn.end());
    CHECK(images.keep(3, own));
  }
  CHECK(isSame(images.find(3), kCompiledIn));
  CHECK_EQ(images.copiedBytes(), kCompiledIn.size());
  // Writable memory may change.
  CHECK(images.keep(4, writable));
  writable[0] = std::byte{2};
  CHECK(images.find(4)[0] == std::byte{1});
  images.drop(3);
  images.drop(3);
  CHECK(images.find(3).empty());
  images.drop(4);
  CHECK_EQ(images.copiedBytes(), 0u);
}

TEST("no more is copied than the limit, and what was is there again when it is dropped") {
  RetainedImages images;
  const std::vector<std::byte> quarter(RetainedImages::kMostCopiedBytes / 4);
  for (uint64_t i = 1; i <= 4; ++i) CHECK(images.keep(i, quarter));
  CHECK(!images.keep(5, writable));
  CHECK(images.find(5).empty());
  CHECK(images.keep(6, kCompiledIn));
  images.drop(2);
  CHECK(images.keep(5, writable));
}

}  // namespace
}  // namespace millpond::client
