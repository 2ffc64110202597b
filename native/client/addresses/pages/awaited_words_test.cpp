// SPDX-License-Identifier: Apache-2.0
#include "client/addresses/pages/awaited_words.h"

#include "testing/check.h"

namespace millpond::client {
namespace {

bool isTrue(uint32_t bytes, unsigned flags, uint64_t value, uint64_t now) {
  AwaitedWord word;
  word.bytes = bytes;
  word.value = value;
  word.flags = flags | CU_STREAM_WAIT_VALUE_FLUSH;
  return word.isTrue(now);
}

TEST("a word is true as the driver compares it, also around the end of its range") {
  for (const uint32_t bytes : {4u, 8u}) {
    const uint64_t last = bytes == 4 ? UINT32_MAX : UINT64_MAX;
    CHECK(isTrue(bytes, CU_STREAM_WAIT_VALUE_EQ, last, last));
    CHECK(!isTrue(bytes, CU_STREAM_WAIT_VALUE_EQ, last, 0));
    // Half of all values count as later ones.
    CHECK(isTrue(bytes, CU_STREAM_WAIT_VALUE_GEQ, 5, 5));
    CHECK(isTrue(bytes, CU_STREAM_WAIT_VALUE_GEQ, last, 3));
    CHECK(!isTrue(bytes, CU_STREAM_WAIT_VALUE_GEQ, 5, 4));
    CHECK(!isTrue(bytes, CU_STREAM_WAIT_VALUE_GEQ, 3, last));
    CHECK(isTrue(bytes, CU_STREAM_WAIT_VALUE_AND, 6, 12));
    CHECK(!isTrue(bytes, CU_STREAM_WAIT_VALUE_AND, 6, 9));
    CHECK(isTrue(bytes, CU_STREAM_WAIT_VALUE_NOR, last - 1, last - 1));
    CHECK(!isTrue(bytes, CU_STREAM_WAIT_VALUE_NOR, last - 1, last));
  }
  // Bytes beside a word of four bytes are not part of it.
  CHECK(!isTrue(4, CU_STREAM_WAIT_VALUE_AND, uint64_t{1} << 40, uint64_t{1} << 40));
}

}  // namespace
}  // namespace millpond::client
