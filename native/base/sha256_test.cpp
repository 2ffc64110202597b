// SPDX-License-Identifier: Apache-2.0
#include "base/sha256.h"

#include <string_view>
#include <vector>

#include "testing/check.h"

using namespace millpond;

namespace {
std::string of(std::string_view text) { return hex(sha256(std::as_bytes(std::span(text)))); }
}  // namespace

TEST("the examples of the standard") {
  CHECK_EQ(of(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  CHECK_EQ(of("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  CHECK_EQ(of("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
           "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  CHECK_EQ(of(std::string(1'000'000, 'a')), "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST("the processor's instructions and the portable code agree on every length") {
  std::vector<std::byte> data;
  for (size_t n = 0; n < 300; ++n) {
    CHECK(sha256(data) == sha256Portable(data));
    data.push_back(static_cast<std::byte>(n * 7 + 3));
  }
}
