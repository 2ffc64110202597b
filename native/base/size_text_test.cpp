// SPDX-License-Identifier: Apache-2.0
#include "base/size_text.h"

#include "testing/check.h"

using namespace millpond;

namespace {
constexpr uint64_t kMi = uint64_t{1} << 20;
}  // namespace

TEST("sizes are written as the command line writes them") {
  CHECK_EQ(sizeText(0), "0 MiB");
  CHECK_EQ(sizeText(1), "1 B");
  CHECK_EQ(sizeText(kMi - 1), "1048575 B");
  CHECK_EQ(sizeText(kMi), "1 MiB");
  CHECK_EQ(sizeText(kMi + kMi / 2), "1.5 MiB");
  CHECK_EQ(sizeText(1024 * kMi - 1), "1023.9 MiB");
  CHECK_EQ(sizeText(80 * 1024 * kMi), "80 GiB");
  CHECK_EQ(sizeText(~uint64_t{0}), "16777215.9 TiB");
}

TEST("what is in use is never shown as less than it is") {
  CHECK_EQ(sizeText(kMi, Rounding::kUp), "1 MiB");
  CHECK_EQ(sizeText(kMi + 1, Rounding::kUp), "1.1 MiB");
  CHECK_EQ(sizeText(1024 * kMi - 1, Rounding::kUp), "1024 MiB");
  CHECK_EQ(sizeText(~uint64_t{0}, Rounding::kUp), "16777216 TiB");
}
