// SPDX-License-Identifier: Apache-2.0
#include "softgpu/driver/sanitizer/allocations.h"
#include "testing/check.h"

namespace millpond::softgpu::testing {
namespace {

TEST("a launch may use what was there when it was made, and nothing later") {
  Allocations all;
  const uint64_t before = all.now();
  all.allocated(0x1000, 100, "one");
  const uint64_t during = all.now();
  all.freed(0x1000, "free");
  const uint64_t after = all.now();
  CHECK(!all.find(0x1000, before));
  CHECK(all.find(0x1063, during).has_value());
  CHECK(!all.find(0x1064, during));
  CHECK(!all.find(0x1000, after));
  CHECK_EQ(std::string(all.nearest(0x1000, 0)->freedBy), "free");
  // A double free is recorded as one free.
  all.freed(0x1000, "again");
  CHECK_EQ(all.now(), after);
}

TEST("memory that is given out again is another allocation") {
  Allocations all;
  all.allocated(0x1000, 100, "one");
  all.allocated(0x1200, 100, "two");
  all.freed(0x1000, "free");
  all.freed(0x1200, "free");
  all.allocated(0x1010, 0x400, "three");
  CHECK_EQ(all.nearest(0x1210, 0)->number, uint64_t{3});
  CHECK_EQ(all.left().size(), size_t{1});
  CHECK_EQ(all.left()[0].bytes, uint64_t{0x400});
}

TEST("the nearest allocation is told, on either side, and none that is far") {
  Allocations all;
  CHECK(!all.nearest(0x1000, 1 << 20));
  all.allocated(0x1000, 0x100, "one");
  all.allocated(0x2000, 0x100, "two");
  CHECK_EQ(all.nearest(0x1180, 1 << 20)->number, uint64_t{1});
  CHECK_EQ(all.nearest(0x1f80, 1 << 20)->number, uint64_t{2});
  CHECK_EQ(all.nearest(0xff0, 1 << 20)->number, uint64_t{1});
  CHECK(!all.nearest(0x8000, 0x100));
}

TEST("what was written of an allocation is kept where that is asked for, and goes with copies") {
  Allocations all;
  all.allocated(0x1000, 100, "one", {}, true);
  all.allocated(0x2000, 100, "two", {}, true);
  all.allocated(0x3000, 100, "three");
  const auto hole = [&all](uint64_t base) { return all.nearest(base, 0)->written->firstUnwritten(0, 100); };
  all.written(0x1000, 50);
  all.written(0x1033, 100);  // more than exists
  CHECK_EQ(*hole(0x1000), uint64_t{50});
  all.copied(0x2000, 0x1000, 60);
  CHECK_EQ(*hole(0x2000), uint64_t{50});
  CHECK_EQ(*all.nearest(0x2000, 0)->written->firstUnwritten(51, 49), uint64_t{60});
  // A copy of unwritten bytes makes its target unwritten.
  all.written(0x1000, 100);
  CHECK(!hole(0x1000));
  all.copied(0x1000, 0x2000, 51);
  CHECK_EQ(*hole(0x1000), uint64_t{50});
  // Memory that is not tracked counts as written.
  all.copied(0x2000, 0x3000, 100);
  CHECK(!hole(0x2000));
  CHECK(all.nearest(0x3000, 0)->written == nullptr);
  // Memory that is allocated again counts as unwritten.
  all.freed(0x1000, "free");
  all.allocated(0x1000, 100, "four", {}, true);
  CHECK_EQ(*hole(0x1000), uint64_t{0});
  // Other processes may write shared memory.
  all.share();
  CHECK(!hole(0x1000));
  all.allocated(0x4000, 100, "five", {}, true);
  CHECK(all.nearest(0x4000, 0)->written == nullptr);
}

TEST("managed memory is what was given to be managed") {
  Allocations all;
  all.manage(0x10000, 0x1000);
  CHECK(!all.isManaged(0xffff));
  CHECK(all.isManaged(0x10000) && all.isManaged(0x10fff));
  CHECK(!all.isManaged(0x11000));
}

}  // namespace
}  // namespace millpond::softgpu::testing
