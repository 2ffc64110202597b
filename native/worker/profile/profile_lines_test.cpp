// SPDX-License-Identifier: Apache-2.0
#include "worker/profile/profile_lines.h"

#include <malloc.h>

#include <random>

#include "testing/check.h"

namespace millpond::worker {
namespace {

cupti::KernelRecord kernel(const char* name, uint64_t start) {
  cupti::KernelRecord record{};
  record.kind = cupti::Kind::kConcurrentKernel;
  record.registersPerThread = 32;
  record.start = start;
  record.end = start + 50;
  record.device = 1;
  record.context = 2;
  record.stream = 7;
  record.grid[0] = 4;
  record.grid[1] = record.grid[2] = record.block[1] = record.block[2] = 1;
  record.block[0] = 256;
  record.staticSharedBytes = 16;
  record.dynamicSharedBytes = 1024;
  record.correlation = 99;
  record.name = name;
  return record;
}

TEST("a name has a line of its own, before the first line that uses it") {
  ProfileLines lines;
  lines.add(kernel("_Z3addPKfS0_Pfm", 1000));
  lines.add(kernel("_Z3addPKfS0_Pfm", 2000));
  const auto page = lines.take(1 << 20);
  CHECK_EQ(page.lines,
           "name\t1\t\"add(float const*, float const*, float*, unsigned long)\"\t\"_Z3addPKfS0_Pfm\"\n"
           "k\t1000\t1050\t1\t2\t7\t99\t1\t4\t1\t1\t256\t1\t1\t32\t16\t1024\n"
           "k\t2000\t2050\t1\t2\t7\t99\t1\t4\t1\t1\t256\t1\t1\t32\t16\t1024\n");
  CHECK(!page.hasMore);
  CHECK_EQ(page.lost, 0u);
  CHECK_EQ(lines.take(1 << 20).lines, "");
}

TEST("a client that never takes the last line does not make the worker keep those that it took") {
  const size_t before = ::mallinfo2().hblkhd;
  ProfileLines lines;
  bool hasMore = true;
  for (size_t taken = 0; taken < 4 * ProfileLines::kMostBytes;) {
    for (int i = 0; i < 4000; ++i) lines.add(kernel("fill", 1'000'000'000));
    const auto page = lines.take(size_t{128} << 10);
    taken += page.lines.size();
    hasMore = hasMore && page.hasMore;
  }
  CHECK(hasMore);
  CHECK(::mallinfo2().hblkhd - before <= 3 * ProfileLines::kMostBytes);
}

TEST("names beyond a limit are unknown, and those before it keep their numbers") {
  ProfileLines lines;
  constexpr size_t kLimit = 16384;
  size_t names = 0, unknown = 0;
  for (size_t i = 0; i < kLimit + 100; ++i) {
    lines.add(kernel(("kernel" + std::to_string(i)).c_str(), 1000));
    const std::string page = lines.take(1 << 20).lines;
    names += page.starts_with("name\t") ? 1 : 0;
    unknown += page.find("\t\"?\"\n") != std::string::npos ? 1 : 0;
  }
  CHECK_EQ(names, kLimit + 1);
  CHECK_EQ(unknown, 1u);
  lines.add(kernel("kernel0", 1000));
  CHECK(lines.take(1 << 20).lines.find("\t99\t1\t4\t") != std::string::npos);
}

TEST("a kernel's name that stands for one that no memory holds") {
  std::string name = "_Z1f1aIiiES_IS0_S0_ES_IS1_S1_E";
  for (const char each : std::string("23456789ABCDEFGHIJKLMNOPQRSTUVWXYZ")) {
    const std::string before = std::string("S") + each + "_";
    name += "S_I" + before + before + "E";
  }
  ProfileLines lines;
  lines.add(kernel(name.c_str(), 1000));
  CHECK(lines.take(1 << 20).lines.size() < 10'000);
}

TEST("copies and fills, and copies between devices as copies") {
  ProfileLines lines;
  lines.add(cupti::CopyRecord{cupti::Kind::kCopy, cupti::CopyKind::kHostToDevice, cupti::MemoryKind::kPinned,
                              cupti::MemoryKind::kDevice, 0, 4096, 10, 20, 0, 1, 7, 5});
  lines.add(cupti::PeerCopyRecord{cupti::Kind::kPeerCopy, cupti::CopyKind::kDeviceToDevice, cupti::MemoryKind::kDevice,
                                  cupti::MemoryKind::kDevice, 0, 64, 30, 40, 0, 1, 7, 0, 1, 1, 2, 6});
  lines.add(cupti::FillRecord{cupti::Kind::kFill, 255, 128, 50, 60, 0, 1, 7, 8});
  CHECK_EQ(lines.take(1 << 20).lines,
           "c\t10\t20\t0\t1\t7\t5\t1\t2\t3\t4096\n"
           "c\t30\t40\t0\t1\t7\t6\t10\t3\t3\t64\n"
           "f\t50\t60\t0\t1\t7\t8\t255\t128\n");
}

TEST("devices have their places in the session, and work has the command that it is for") {
  ProfileLines lines;
  lines.nameDevices({5, 1});
  lines.addCommand(99, 3, 4096);
  lines.add(cupti::FillRecord{cupti::Kind::kFill, 0, 8, 50, 60, 1, 1, 7, 99});
  lines.add(cupti::FillRecord{cupti::Kind::kFill, 0, 8, 70, 80, 5, 1, 7, 100});
  lines.add(cupti::FillRecord{cupti::Kind::kFill, 0, 8, 90, 95, 2, 1, 7, 101});
  CHECK_EQ(lines.take(1 << 20).lines,
           "t\t99\t3\t4096\n"
           "f\t50\t60\t1\t1\t7\t99\t0\t8\n"
           "f\t70\t80\t0\t1\t7\t100\t0\t8\n"
           "f\t90\t95\t2\t1\t7\t101\t0\t8\n");
}

TEST("names that are no text, or longer than any, are cut and escaped") {
  ProfileLines lines;
  lines.add(kernel("a\tb\n\"c\"\xff", 1));
  lines.add(kernel(std::string(1 << 20, 'x').c_str(), 2));
  lines.add(kernel(nullptr, 3));
  const std::string text = lines.take(1 << 20).lines;
  size_t count = 0;
  for (size_t at = 0; (at = text.find('\n', at)) != std::string::npos; ++at) ++count;
  CHECK_EQ(count, 6u);
  CHECK(text.size() < 20'000);
  for (const char c : text) CHECK(static_cast<unsigned char>(c) >= 0x20 || c == '\n' || c == '\t');
}

TEST("pages of any size are whole lines, and together everything in its order") {
  std::mt19937 random(11);
  for (int round = 0; round < 50; ++round) {
    ProfileLines lines, same;
    std::string all, joined;
    for (int i = 0; i < 200; ++i) {
      const std::string name = "kernel" + std::to_string(random() % 20);
      const uint64_t start = random();
      lines.add(kernel(name.c_str(), start));
      same.add(kernel(name.c_str(), start));
      if (random() % 10 == 0) {
        const auto page = lines.take(200 + random() % 2000);
        CHECK(page.lines.empty() || page.lines.back() == '\n');
        joined += page.lines;
      }
    }
    for (bool hasMore = true; hasMore;) {
      const auto page = lines.take(200 + random() % 2000);
      CHECK(!page.lines.empty() || !page.hasMore);
      hasMore = page.hasMore;
      joined += page.lines;
    }
    CHECK_EQ(joined, same.take(SIZE_MAX).lines);
  }
}

TEST("what a client does not come for is dropped beyond a limit, and counted") {
  ProfileLines lines;
  lines.lose(5);
  const uint64_t records = ProfileLines::kMostBytes / 40;
  for (uint64_t i = 0; i < records; ++i) lines.add(kernel("k", i));
  const auto first = lines.take(100);
  CHECK(first.lost > 5);
  CHECK(first.lost < records);
  uint64_t bytes = first.lines.size();
  for (bool hasMore = true; hasMore;) {
    const auto page = lines.take(size_t{8} << 20);
    bytes += page.lines.size();
    hasMore = page.hasMore;
  }
  CHECK(bytes <= ProfileLines::kMostBytes + 16'384);
  // There is room again.
  lines.add(kernel("k", 1));
  CHECK(lines.take(1000).lines.starts_with("k\t1\t"));
}

}  // namespace
}  // namespace millpond::worker
