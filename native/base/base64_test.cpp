// SPDX-License-Identifier: Apache-2.0
#include "base/base64.h"

#include <cstdint>
#include <random>

#include "testing/check.h"

using millpond::base64UrlDecode;
using millpond::base64UrlEncode;

namespace {
std::string encoded(std::string_view text) {
  return base64UrlEncode(std::as_bytes(std::span(text.data(), text.size())));
}
}  // namespace

TEST("the vectors of RFC 4648, without padding") {
  CHECK_EQ(encoded(""), "");
  CHECK_EQ(encoded("f"), "Zg");
  CHECK_EQ(encoded("fo"), "Zm8");
  CHECK_EQ(encoded("foo"), "Zm9v");
  CHECK_EQ(encoded("foob"), "Zm9vYg");
  CHECK_EQ(encoded("fooba"), "Zm9vYmE");
  CHECK_EQ(encoded("foobar"), "Zm9vYmFy");
  CHECK_EQ(encoded("\xfb\xff"), "-_8");
}

TEST("round trips") {
  std::mt19937 random(3);
  for (size_t size = 0; size < 70; ++size) {
    std::vector<std::byte> bytes(size);
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random() % 256);
    CHECK(base64UrlDecode(base64UrlEncode(bytes)) == bytes);
  }
}

TEST("one spelling only") {
  for (const char* text : {"A", "AAAAA", "Zg==", "Zh", "Zm9", "Z+8", "Z/8", "Zg\n", " Zg", "Z\xc3\xbc"}) {
    if (base64UrlDecode(text)) millpond::testing::fail(__FILE__, __LINE__, text);
  }
}
