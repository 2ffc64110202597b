// SPDX-License-Identifier: Apache-2.0
// Runs one of the programs: driver_programs NAME [ignored arguments…]
#include <cstring>

#include "testing/programs/program.h"

namespace millpond::programs {
namespace {

constexpr char kAdd[] = R"(
.version 7.0
.target sm_75
.address_size 64
.visible .entry add(.param .u64 p, .param .u32 value, .param .u32 count)
{
  .reg .pred %q;
  .reg .b32 %r<8>;
  .reg .b64 %d<4>;
  ld.param.u64 %d1, [p];
  ld.param.u32 %r1, [value];
  ld.param.u32 %r2, [count];
  mov.u32 %r3, %ctaid.x;
  mov.u32 %r4, %ntid.x;
  mov.u32 %r5, %tid.x;
  mad.lo.s32 %r6, %r3, %r4, %r5;
  setp.ge.u32 %q, %r6, %r2;
  @%q bra done;
  mul.wide.u32 %d2, %r6, 4;
  add.s64 %d3, %d1, %d2;
  ld.u32 %r7, [%d3];
  add.s32 %r7, %r7, %r1;
  st.u32 [%d3], %r7;
done:
  ret;
}
)";

struct Program {
  const char* name;
  void (*run)();
};
constexpr Program kPrograms[] = {
    {"arrays", arrays},
    {"batches", batches},
    {"bug-barrier", bugBarrier},
    {"bug-behind", bugBehind},
    {"bug-copy", bugCopy},
    {"bug-freed", bugFreed},
    {"bug-leak", bugLeak},
    {"bug-left", bugLeft},
    {"bug-none", bugNone},
    {"bug-null", bugNull},
    {"bug-race", bugRace},
    {"bug-twice", bugTwice},
    {"bug-unreadable", bugUnreadable},
    {"bug-unwritten", bugUnwritten},
    {"host-memory", hostMemory},
    {"managed", managed},
    {"memory-pools", memoryPools},
    {"shell", shell},
    {"virtual-memory", virtualMemory},
};

}  // namespace

CUcontext useDevice(int ordinal) {
  OK(cuInit(0));
  CUdevice device = 0;
  OK(cuDeviceGet(&device, ordinal));
  CUcontext context = nullptr;
  OK(cuDevicePrimaryCtxRetain(&context, device));
  OK(cuCtxSetCurrent(context));
  return context;
}

void launchAdd(CUdeviceptr p, uint32_t value, uint32_t count, CUstream stream) {
  static CUlibrary library = nullptr;
  static CUkernel kernel = nullptr;
  if (!library) {
    OK(cuLibraryLoadData(&library, kAdd, nullptr, nullptr, 0, nullptr, nullptr, 0));
    OK(cuLibraryGetKernel(&kernel, library, "add"));
  }
  void* arguments[] = {&p, &value, &count};
  OK(cuLaunchKernel(reinterpret_cast<CUfunction>(kernel), (count + 127) / 128, 1, 1, 128, 1, 1, 0, stream, arguments,
                    nullptr));
}

void requireWords(CUdeviceptr p, uint32_t value, size_t count) {
  std::vector<uint32_t> words(count);
  OK(cuMemcpyDtoH_v2(words.data(), p, count * sizeof(uint32_t)));
  for (size_t i = 0; i < count; ++i) {
    if (words[i] == value) continue;
    std::fprintf(stderr, "word %zu of %zu is %u, not %u\n", i, count, words[i], value);
    std::exit(1);
  }
}

}  // namespace millpond::programs

int main(int argc, char** argv) {
  for (const auto& program : millpond::programs::kPrograms) {
    if (argc < 2 || std::strcmp(argv[1], program.name) != 0) continue;
    program.run();
    std::printf("%s: OK\n", program.name);
    return 0;
  }
  std::fprintf(stderr, "usage: driver_programs NAME, one of:\n");
  for (const auto& program : millpond::programs::kPrograms) std::fprintf(stderr, "  %s\n", program.name);
  return 2;
}
