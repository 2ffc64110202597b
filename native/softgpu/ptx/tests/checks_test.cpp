// SPDX-License-Identifier: Apache-2.0
// Findings of programs compiled with checks.
#include <set>

#include "softgpu/ptx/tests/fixture.h"
#include "softgpu/ptx/written_bytes.h"

namespace millpond::softgpu::ptx::testing {
namespace {

/// A finding that outlives its launch.
struct Found {
  Finding::Kind kind;
  FaultKind fault;
  bool isFatal;
  std::string kernel;
  std::string variable;
  std::string file;
  uint32_t fileLine;
  uint32_t block;
  uint32_t thread;
  uint32_t line;
  uint32_t otherThread;
  uint32_t otherLine;
  bool isWrite;
  uint64_t address;
  uint32_t bytes;
};

class Recorder final : public Inspector {
 public:
  explicit Recorder(const TestMemory& memory) : memory_(memory) {}
  Range find(uint64_t address) const override {
    const MemoryMap::Range range = memory_.find(address);
    // The last bytes of an allocation that ends within a 32-byte granule are the device's, not the program's.
    return {range.begin, range.end - slack, range.writable, written};
  }
  void found(const Finding& f) override {
    std::lock_guard lock(mutex_);
    all.push_back({f.kind, f.fault, f.isFatal, std::string(f.kernel), std::string(f.variable),
                   std::string(f.access.file), f.access.fileLine, f.block[0], f.access.thread[0], f.access.line,
                   f.other.thread[0], f.other.line, f.access.isWrite, f.address, f.bytes});
  }
  std::vector<Found> all;
  uint64_t slack = 0;
  WrittenBytes* written = nullptr;  // of any memory

 private:
  const TestMemory& memory_;
  std::mutex mutex_;
};

/// A program under checks.
class Checked {
 public:
  explicit Checked(const std::string& text, Checks checks = {.memory = true, .races = true}) : recorder(memory) {
    Compiled compiled = compile(text, checks);
    if (!compiled) ::millpond::testing::fail(__FILE__, __LINE__, compiled.error.message);
    auto module = Module::create(compiled.program, memory);
    if (!module) ::millpond::testing::fail(__FILE__, __LINE__, module.error().message);
    module_ = std::move(*module);
  }

  LaunchResult run(Dim3 grid, Dim3 block, const Parameters& parameters, uint32_t dynamicShared = 0) {
    Launch launch;
    launch.grid = grid;
    launch.block = block;
    launch.dynamicSharedBytes = dynamicShared;
    launch.parameters = parameters.bytes();
    launch.memory = &memory;
    launch.inspector = &recorder;
    return executor().run(*module_->kernel("k"), launch);
  }

  TestMemory memory;
  Recorder recorder;

 private:
  std::unique_ptr<Module> module_;
};

constexpr char kShared[] = ".shared .align 4 .b8 area[4096];\n";

/// Findings of a kernel whose threads of one block run `body`, with the address of their own word of `area` in %r10 and
/// that of the next thread's word in %r11; for the last thread, that of the first.
std::vector<Found> racesOf(const std::string& body, uint32_t threads = 64) {
  Checked checked(
      kernelAround("mov.u32 %r9, area;\nshl.b32 %r8, %tid0, 2;\nadd.u32 %r10, %r9, %r8;\n"
                   "mov.u32 %r7, %ntid.x;\nadd.u32 %r6, %tid0, 1;\nrem.u32 %r6, %r6, %r7;\n"
                   "shl.b32 %r8, %r6, 2;\nadd.u32 %r11, %r9, %r8;\n" +
                       body,
                   kShared));
  Array<uint32_t> out(checked.memory, 4096);
  LaunchResult result = checked.run({1, 1, 1}, {threads, 1, 1}, Parameters(out, uint64_t{0}, uint64_t{0}));
  if (!result) ::millpond::testing::fail(__FILE__, __LINE__, result.message);
  return checked.recorder.all;
}

std::string exchange(const std::string& between) {
  return "st.shared.u32 [%r10], %tid0;\n" + between + "ld.shared.u32 %r1, [%r11];\n";
}

TEST("an access behind an allocation ends its thread and no other, and the launch in the end") {
  Checked checked(
      kernelAround("mov.u32 %r3, %ctaid.x;\nmad.lo.u32 %r1, %r3, 32, %tid0;\nmul.wide.u32 %rd1, %r1, 4;\n"
                   "add.u64 %rd2, %out, %rd1;\nst.global.u32 [%rd2], 7;\nst.global.u32 [%rd2], 8;\n"));
  Array<uint32_t> out(checked.memory, 60);
  const LaunchResult result = checked.run({2, 1, 1}, {32, 1, 1}, Parameters(out, uint64_t{0}, uint64_t{0}));
  CHECK(result.status == LaunchResult::Status::kFault);
  CHECK(result.fault.kind == FaultKind::kIllegalAddress);
  CHECK(result.fault.isReported);
  // Each of the four ended at its first store.
  CHECK_EQ(checked.recorder.all.size(), size_t{4});
  std::set<uint64_t> addresses;
  for (const Found& found : checked.recorder.all) {
    CHECK(found.kind == Finding::Kind::kAccess && found.isFatal && found.isWrite);
    CHECK_EQ(found.kernel, "k");
    CHECK_EQ(found.block, uint32_t{1});
    CHECK_EQ(found.address, out.address() + (32 + found.thread) * 4);
    CHECK_EQ(found.bytes, uint32_t{4});
    addresses.insert(found.address);
  }
  CHECK_EQ(addresses.size(), size_t{4});
  for (const uint32_t value : out) CHECK_EQ(value, uint32_t{8});
}

TEST("what the device does not notice is found, and done") {
  Checked checked(kernelAround("st.global.u32 [%out+56], 7;\nld.global.u32 %r1, [%out+60];\n"));
  Array<uint32_t> out(checked.memory, 16);
  checked.recorder.slack = 8;
  CHECK(checked.run({1, 1, 1}, {1, 1, 1}, Parameters(out, uint64_t{0}, uint64_t{0})).status ==
        LaunchResult::Status::kDone);
  CHECK_EQ(checked.recorder.all.size(), size_t{2});
  CHECK(!checked.recorder.all[0].isFatal && !checked.recorder.all[1].isFatal);
  CHECK_EQ(out[14], uint32_t{7});
}

TEST("misaligned accesses, and those outside shared and local memory, are found where they are") {
  const auto one = [](const std::string& body, const std::string& module = kShared) {
    Checked checked(kernelAround(body, module));
    Array<uint32_t> out(checked.memory, 16);
    checked.run({1, 1, 1}, {1, 1, 1}, Parameters(out, uint64_t{0}, uint64_t{0}));
    CHECK_EQ(checked.recorder.all.size(), size_t{1});
    return checked.recorder.all.at(0);
  };
  CHECK(one("ld.global.u32 %r1, [%out+2];\n").fault == FaultKind::kMisalignedAddress);
  CHECK(one("mov.u32 %r1, area;\nst.shared.u32 [%r1+4096], 1;\n").fault == FaultKind::kSharedOutOfRange);
  CHECK(one("mov.u32 %r1, area;\ncvta.shared.u64 %rd1, area;\nst.u32 [%rd1+4096], 1;\n").address == 4096);
  CHECK(one("mov.u32 %r1, area;\natom.shared.add.u32 %r2, [%r1+4094], 1;\n").fault == FaultKind::kSharedOutOfRange);
  const Found local = one(".local .align 4 .b8 mine[16];\nmov.u64 %rd1, mine;\nld.local.u32 %r1, [%rd1+65536];\n");
  CHECK(local.fault == FaultKind::kLocalOutOfRange && local.isFatal);
  CHECK(one("mov.u64 %rd1, 64;\nst.global.u32 [%rd1], 1;\n").fault == FaultKind::kIllegalAddress);
}

TEST("guarded accesses are checked where their guard holds") {
  Checked checked(
      kernelAround("setp.lt.u32 %p1, %tid0, 4;\nmul.wide.u32 %rd1, %tid0, 4;\nadd.u64 %rd2, %out, %rd1;\n"
                   "@%p1 st.global.u32 [%rd2], 1;\n@!%p1 st.global.u32 [%out], 2;\n"));
  Array<uint32_t> out(checked.memory, 4);
  CHECK(checked.run({1, 1, 1}, {32, 1, 1}, Parameters(out, uint64_t{0}, uint64_t{0})).status ==
        LaunchResult::Status::kDone);
  CHECK(checked.recorder.all.empty());
}

TEST("threads that wait for one that has ended do not hang") {
  Checked checked(
      kernelAround("setp.eq.u32 %p1, %tid0, 0;\n@%p1 st.global.u32 [%out+4096], 1;\n"
                   "@%p1 st.volatile.global.u32 [%out], 1;\n"
                   "WAIT:\nld.volatile.global.u32 %r1, [%out];\nsetp.eq.u32 %p2, %r1, 0;\n@%p2 bra WAIT;\n"));
  Array<uint32_t> out(checked.memory, 4);
  const LaunchResult result = checked.run({2, 1, 1}, {64, 1, 1}, Parameters(out, uint64_t{0}, uint64_t{0}));
  CHECK(result.status == LaunchResult::Status::kFault);
  CHECK(result.fault.kind == FaultKind::kIllegalAddress);
}

TEST("findings name the line of the source") {
  Checked checked(kernelAround(".loc 1 17 3\nmov.u32 %r1, 1;\n.loc 2 40 1, function_name $f, inlined_at 1 18 2\n"
                               "st.global.u32 [%out], 1;\nst.global.u32 [%out+4], 1;\n.loc 1 19 3\n") +
                  ".file 1 \"main.cu\"\n.file 2 \"inner.h\", 1700000000, 12\n");
  Array<uint32_t> out(checked.memory, 1);
  checked.run({1, 1, 1}, {1, 1, 1}, Parameters(out, uint64_t{0}, uint64_t{0}));
  CHECK_EQ(checked.recorder.all.size(), size_t{1});
  CHECK_EQ(checked.recorder.all[0].file, "inner.h");
  CHECK_EQ(checked.recorder.all[0].fileLine, uint32_t{40});
}

TEST("what threads leave for one another needs a barrier between, of the block or of their warp") {
  const std::vector<Found> races = racesOf(exchange(""));
  CHECK(!races.empty());
  for (const Found& race : races) {
    CHECK(race.kind == Finding::Kind::kReadAfterWrite || race.kind == Finding::Kind::kWriteAfterRead);
    CHECK_EQ(race.variable, "area");
    CHECK(race.line != race.otherLine);
  }
  CHECK(racesOf(exchange("bar.sync 0;\n")).empty());
  CHECK(racesOf(exchange("barrier.sync 3, 64;\n")).empty());
  // Within a warp its own synchronisation is sufficient, between two warps it is not.
  CHECK(racesOf(exchange("bar.warp.sync 0xffffffff;\n"), 32).empty());
  CHECK(!racesOf(exchange("bar.warp.sync 0xffffffff;\n"), 64).empty());
  CHECK(racesOf(exchange("shfl.sync.idx.b32 %r2, %r1, 0, 31, 0xffffffff;\n"), 32).empty());
  CHECK(racesOf(exchange("vote.sync.ballot.b32 %r2, %p1, 0xffffffff;\n"), 32).empty());
  CHECK(!racesOf(exchange(""), 32).empty());
  // Lanes 0 and 1 only: the others race.
  CHECK(!racesOf(exchange("setp.lt.u32 %p2, %tid0, 2;\n@%p2 bar.warp.sync 3;\n"), 32).empty());
}

TEST("a barrier before the memory is used again is missed too") {
  const std::string round = "st.shared.u32 [%r10], %tid0;\nbar.sync 0;\nld.shared.u32 %r1, [%r11];\n";
  const std::vector<Found> races = racesOf(round + "add.u32 %r1, %r1, 1;\nst.shared.u32 [%r10], %r1;\n");
  CHECK(!races.empty());
  // Whichever of the two came first.
  for (const Found& race : races)
    CHECK(race.kind == Finding::Kind::kWriteAfterRead || race.kind == Finding::Kind::kReadAfterWrite);
  CHECK(racesOf(round + "bar.sync 0;\nst.shared.u32 [%r10], %r1;\n").empty());
}

TEST("two threads may write the same, and not what differs") {
  CHECK(racesOf("mov.u32 %r1, area;\nst.shared.u32 [%r1], 5;\n").empty());
  const std::vector<Found> races = racesOf("mov.u32 %r1, area;\nst.shared.u32 [%r1], %tid0;\n");
  CHECK(!races.empty());
  for (const Found& race : races) CHECK(race.kind == Finding::Kind::kWriteAfterWrite);
  // Adjacent bytes do not race.
  CHECK(racesOf("mov.u32 %r1, area;\nadd.u32 %r1, %r1, %tid0;\nst.shared.u8 [%r1], %tid0;\n").empty());
}

TEST("atomics do not race with each other, but with what is none") {
  const std::string add = "mov.u32 %r1, area;\natom.shared.add.u32 %r2, [%r1], 1;\n";
  CHECK(racesOf(add).empty());
  CHECK(!racesOf(add + "ld.shared.u32 %r3, [%r1];\n").empty());
  CHECK(racesOf(add + "bar.sync 0;\nld.shared.u32 %r3, [%r1];\n").empty());
}

TEST("who arrives at a named barrier and does not wait is waited for") {
  // The second warp reads the first warp's values.
  const auto handOver = [](const std::string& give, const std::string& take) {
    return "setp.lt.u32 %p1, %tid0, 32;\nsub.u32 %r1, %r10, 128;\n@!%p1 bra TAKE;\nst.shared.u32 [%r10], %tid0;\n" +
           give + "bra END;\nTAKE:\n" + take + "ld.shared.u32 %r2, [%r1];\nEND:\n";
  };
  CHECK(racesOf(handOver("barrier.arrive 1, 64;\n", "barrier.sync 1, 64;\n")).empty());
  CHECK(!racesOf(handOver("barrier.arrive 1, 64;\nst.shared.u32 [%r10], 0;\n", "barrier.sync 1, 64;\n")).empty());
  CHECK(!racesOf(handOver("", "")).empty());
}

TEST("a fence, an atomic and a fence order what is around them") {
  const auto message = [](const std::string& release, const std::string& acquire) {
    return "setp.eq.u32 %p1, %tid0, 0;\nsetp.eq.u32 %p2, %tid0, 32;\nmov.u32 %r1, area;\n"
           "@!%p1 bra READER;\nst.shared.u32 [%r1+128], 5;\n" +
           release +
           "atom.shared.exch.b32 %r2, [%r1], 1;\nbra END;\nREADER:\n@!%p2 bra END;\n"
           "POLL:\natom.shared.or.b32 %r3, [%r1], 0;\nsetp.eq.u32 %p3, %r3, 1;\n@!%p3 bra POLL;\n" +
           acquire + "ld.shared.u32 %r4, [%r1+128];\nEND:\n";
  };
  // The flag is 0 at first, like all memory of a new block.
  CHECK(racesOf(message("membar.cta;\n", "membar.cta;\n")).empty());
  CHECK(!racesOf(message("", "membar.cta;\n")).empty());
  CHECK(!racesOf(message("membar.cta;\n", "")).empty());
}

TEST("reads of what nothing has written are found, byte by byte") {
  const auto of = [](const std::string& body) {
    Checked checked(kernelAround("mul.wide.u32 %rd1, %tid0, 4;\nadd.u64 %rd2, %out, %rd1;\n" + body),
                    {.memory = false, .races = false, .initialisation = true, .barriers = false});
    WrittenBytes written(128);
    checked.recorder.written = &written;
    Array<uint32_t> out(checked.memory, 32);
    CHECK(checked.run({1, 1, 1}, {8, 1, 1}, Parameters(out, uint64_t{0}, uint64_t{0})).status ==
          LaunchResult::Status::kDone);
    std::vector<uint64_t> offsets;
    for (const Found& found : checked.recorder.all) {
      CHECK(found.kind == Finding::Kind::kUninitialised);
      offsets.push_back(found.address - out.address());
    }
    return offsets;
  };
  CHECK_EQ(of("ld.global.u32 %r1, [%rd2];\n").size(), size_t{8});
  CHECK(of("st.global.u32 [%rd2], 1;\nld.global.u32 %r1, [%rd2];\n").empty());
  // Half of a word.
  CHECK_EQ(of("st.global.u16 [%rd2], 1;\nld.global.u32 %r1, [%rd2];\n").at(1), uint64_t{6});
  CHECK(of("st.global.u16 [%rd2], 1;\nld.global.u16 %r1, [%rd2];\n").empty());
  // An atomic reads and writes; a write that its guard prevents does not count.
  CHECK_EQ(of("red.global.add.u32 [%out], 1;\n").size(), size_t{1});
  CHECK_EQ(of("setp.lt.u32 %p1, %tid0, 4;\n@%p1 st.global.u32 [%rd2], 1;\nld.global.u32 %r1, [%rd2];\n").size(),
           size_t{4});
}

/// Kinds of the findings of a kernel whose barriers are checked.
std::vector<Finding::Kind> barriersOf(const std::string& body, uint32_t threads = 64) {
  Checked checked(kernelAround(body), {.memory = false, .races = false, .initialisation = false, .barriers = true});
  Array<uint32_t> out(checked.memory, 4);
  CHECK(checked.run({1, 1, 1}, {threads, 1, 1}, Parameters(out, uint64_t{0}, uint64_t{0})).status ==
        LaunchResult::Status::kDone);
  std::vector<Finding::Kind> kinds;
  for (const Found& found : checked.recorder.all) kinds.push_back(found.kind);
  return kinds;
}

TEST("threads have to come to a barrier of the block at one place, and all of them") {
  using Kinds = std::vector<Finding::Kind>;
  const auto branches = [](const std::string& condition, const std::string& one, const std::string& other) {
    return "setp.lt.u32 %p1, %tid0, " + condition + ";\n@%p1 bra ONE;\n" + other + "bra END;\nONE:\n" + one + "END:\n";
  };
  CHECK(barriersOf("bar.sync 0;\nbar.sync 0;\n").empty());
  // Within a warp, and between warps.
  CHECK(barriersOf(branches("16", "bar.sync 0;\n", "bar.sync 0;\n"), 32) == Kinds{Finding::Kind::kDivergentBarrier});
  CHECK(barriersOf(branches("32", "bar.sync 0;\n", "bar.sync 0;\n")) == Kinds{Finding::Kind::kDivergentBarrier});
  CHECK(barriersOf(branches("32", "bar.sync 0;\n", "")) == Kinds{Finding::Kind::kMissedBarrier});
  // A barrier with a count may be at several places, one for each warp.
  CHECK(barriersOf(branches("32", "bar.sync 1, 64;\n", "bar.arrive 1, 64;\n")).empty());
  CHECK(barriersOf(branches("16", "bar.sync 1, 64;\n", "bar.sync 1, 64;\n")).size() == 1);
  // A barrier that is not aligned guarantees nothing.
  CHECK(barriersOf(branches("16", "barrier.sync 0;\n", "barrier.sync 0;\n")).empty());
}

TEST("a thread that synchronises its warp has to be among those that it names") {
  CHECK(barriersOf("bar.warp.sync 0xffffffff;\n").empty());
  const auto kinds = barriersOf("setp.lt.u32 %p1, %tid0, 4;\n@%p1 bar.warp.sync 3;\n", 32);
  CHECK_EQ(kinds.size(), size_t{2});
  CHECK(kinds.at(0) == Finding::Kind::kNotAMember);
}

TEST("without checks nothing is told") {
  Checked checked(
      kernelAround("mov.u32 %r1, area;\nst.shared.u32 [%r1], %tid0;\nst.global.u32 [%out+64], 1;\n", kShared),
      Checks{});
  Array<uint32_t> out(checked.memory, 1);
  const LaunchResult result = checked.run({1, 1, 1}, {64, 1, 1}, Parameters(out, uint64_t{0}, uint64_t{0}));
  CHECK(result.status == LaunchResult::Status::kFault);
  CHECK(!result.fault.isReported);
  CHECK(checked.recorder.all.empty());
}

}  // namespace
}  // namespace millpond::softgpu::ptx::testing
