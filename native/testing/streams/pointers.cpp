// SPDX-License-Identifier: Apache-2.0
// Kernels that find addresses of pinned and registered memory where no parameter says them: in device memory, in parameters
// passed by value, and in memory of the program that leads further.
#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "testing/streams/program.h"

using namespace millpond::streams;

namespace {

constexpr size_t kPage = 4096;

/// `sum`: adds the words at the addresses of a list. `follow`: adds words of a chain, each followed by the next one's
/// address. `odd`: reads at an address at an odd offset, and adds one there.
constexpr char kKernels[] = R"(
.version 6.4
.target sm_70
.address_size 64
.visible .entry sum(.param .u64 list, .param .u32 count, .param .u64 out) {
  .reg .u32 %r<8>;
  .reg .u64 %p<4>;
  .reg .pred %q;
  ld.param.u64 %p1, [list];
  ld.param.u32 %r1, [count];
  mov.u32 %r2, 0;
NEXT:
  ld.u64 %p2, [%p1];
  ld.u32 %r3, [%p2];
  add.u32 %r2, %r2, %r3;
  add.u64 %p1, %p1, 8;
  sub.u32 %r1, %r1, 1;
  setp.ne.u32 %q, %r1, 0;
  @%q bra NEXT;
  ld.param.u64 %p3, [out];
  st.u32 [%p3], %r2;
  ret;
}
.visible .entry follow(.param .u64 first, .param .u64 out) {
  .reg .u32 %r<4>;
  .reg .u64 %p<4>;
  .reg .pred %q;
  ld.param.u64 %p1, [first];
  ld.u64 %p1, [%p1];
  mov.u32 %r1, 0;
NEXT:
  ld.u32 %r2, [%p1];
  add.u32 %r1, %r1, %r2;
  ld.u64 %p1, [%p1+8];
  setp.ne.u64 %q, %p1, 0;
  @%q bra NEXT;
  ld.param.u64 %p3, [out];
  st.u32 [%p3], %r1;
  ret;
}
.visible .entry odd(.param .align 1 .b8 value[9], .param .u64 out) {
  .reg .u32 %r<4>;
  .reg .u64 %p<5>;
  .reg .u16 %h;
  .reg .pred %q;
  mov.u64 %p1, 0;
  mov.u64 %p3, value;
  mov.u32 %r1, 8;
NEXT:
  cvt.u64.u32 %p4, %r1;
  add.u64 %p4, %p3, %p4;
  ld.param.u8 %h, [%p4];
  shl.b64 %p1, %p1, 8;
  cvt.u64.u16 %p2, %h;
  or.b64 %p1, %p1, %p2;
  sub.u32 %r1, %r1, 1;
  setp.ne.u32 %q, %r1, 0;
  @%q bra NEXT;
  ld.u32 %r2, [%p1];
  ld.param.u64 %p2, [out];
  st.u32 [%p2], %r2;
  add.u32 %r2, %r2, 1;
  st.u32 [%p1], %r2;
  ret;
}
)";

CUfunction function(const char* name) {
  static CUmodule module = [] {
    CUmodule loaded = nullptr;
    OK(CU(cuModuleLoadData)(&loaded, kKernels));
    return loaded;
  }();
  CUfunction found = nullptr;
  OK(CU(cuModuleGetFunction)(&found, module, name));
  return found;
}

int* pinned(size_t bytes) {
  context();
  void* memory = nullptr;
  OK(CU(cuMemHostAlloc)(&memory, bytes, 0));
  std::memset(memory, 0, bytes);
  return static_cast<int*>(memory);
}

int launched(CUfunction function, void** arguments, CUdeviceptr out) {
  OK(CU(cuLaunchKernel)(function, 1, 1, 1, 1, 1, 1, 0, nullptr, arguments, nullptr));
  return read(out, 1)[0];
}

int sum(CUdeviceptr list, unsigned count) {
  CUdeviceptr out = allocate(sizeof(int));
  void* arguments[] = {&list, &count, &out};
  const int result = launched(function("sum"), arguments, out);
  OK(CU(cuMemFree_v2)(out));
  return result;
}

int follow(CUdeviceptr first) {
  CUdeviceptr out = allocate(sizeof(int));
  void* arguments[] = {&first, &out};
  const int result = launched(function("follow"), arguments, out);
  OK(CU(cuMemFree_v2)(out));
  return result;
}

/// A word of a chain, and the address of the next.
struct Link {
  int value = 0;
  Link* next = nullptr;
};

}  // namespace

TEST("kernels reach memory whose addresses lie in device memory") {
  constexpr unsigned kCount = 8;
  int* words[kCount];
  for (unsigned i = 0; i < kCount; ++i) {
    words[i] = pinned(kPage * (i * 5 + 1));
    words[i][0] = static_cast<int>(i) + 1;
  }
  const CUdeviceptr list = allocate(sizeof words);
  OK(CU(cuMemcpyHtoD_v2)(list, words, sizeof words));
  CHECK_EQ(sum(list, kCount), 36);
  for (unsigned i = 0; i < kCount; ++i) words[i][0] *= 10;
  CHECK_EQ(sum(list, kCount), 360);
  for (int* each : words) OK(CU(cuMemFreeHost)(each));
  OK(CU(cuMemFree_v2)(list));
}

TEST("and registered memory, named in the middle of a large copy") {
  context();
  constexpr size_t kBytes = size_t{3} << 20;
  auto* words = static_cast<int*>(std::aligned_alloc(kPage, 20 * kPage));
  OK(CU(cuMemHostRegister_v2)(words, 20 * kPage, CU_MEMHOSTREGISTER_DEVICEMAP));
  words[12345] = 99;
  std::vector<uint64_t> data(kBytes / sizeof(uint64_t), 0x0123456789abcdef);
  data[200'000] = reinterpret_cast<uint64_t>(words + 12345);
  const CUdeviceptr memory = allocate(kBytes);
  OK(CU(cuMemcpyHtoDAsync_v2)(memory, data.data(), kBytes, nullptr));
  CHECK_EQ(sum(memory + 200'000 * sizeof(uint64_t), 1), 99);
  OK(CU(cuMemHostUnregister)(words));
  std::free(words);
  OK(CU(cuMemFree_v2)(memory));
}

TEST("an address at an odd offset of a parameter") {
  int* words = pinned(100);
  words[3] = 41;
  struct [[gnu::packed]] Odd {
    char before;
    int* address;
  } value{1, words + 3};
  CUdeviceptr out = allocate(sizeof(int));
  void* arguments[] = {&value, &out};
  CHECK_EQ(launched(function("odd"), arguments, out), 41);
  CHECK_EQ(words[3], 42);
  OK(CU(cuMemFreeHost)(words));
  OK(CU(cuMemFree_v2)(out));
}

TEST("an address behind the end") {
  int* words = pinned(kPage);
  words[kPage / sizeof(int) - 1] = 12;
  CUdeviceptr place = allocate(sizeof(int*));
  int** const last = reinterpret_cast<int**>(pinned(kPage));
  last[kPage / sizeof(int*) - 1] = words + kPage / sizeof(int) - 1;
  // Each is known only by the address just past it.
  int** const behind = last + kPage / sizeof(int*);
  OK(CU(cuMemcpyHtoD_v2)(place, &behind, sizeof behind));
  CHECK_EQ(sum(reinterpret_cast<CUdeviceptr>(behind - 1), 1), 12);
  OK(CU(cuMemFreeHost)(words));
  OK(CU(cuMemFreeHost)(last));
  OK(CU(cuMemFree_v2)(place));
}

TEST("chains through memory of the program, also when the program grows them later") {
  auto* first = reinterpret_cast<Link*>(pinned(kPage));
  auto* second = reinterpret_cast<Link*>(pinned(size_t{1} << 20));
  auto* third = reinterpret_cast<Link*>(pinned(kPage));
  first[7] = {1, &second[1000]};
  second[1000] = {20, nullptr};
  const CUdeviceptr place = allocate(sizeof(Link*));
  Link* const head = &first[7];
  OK(CU(cuMemcpyHtoD_v2)(place, &head, sizeof head));
  CHECK_EQ(follow(place), 21);
  second[1000].next = &third[3];
  third[3].value = 300;
  CHECK_EQ(follow(place), 321);
  auto* fourth = reinterpret_cast<Link*>(pinned(size_t{1} << 20));
  third[3].next = &fourth[9000];
  fourth[9000] = {4000, nullptr};
  CHECK_EQ(follow(place), 4321);
  for (Link* each : {first, second, third, fourth}) OK(CU(cuMemFreeHost)(each));
  OK(CU(cuMemFree_v2)(place));
}

TEST("a list of addresses in pinned memory, given as a parameter") {
  int** list = reinterpret_cast<int**>(pinned(kPage));
  int* words = pinned(kPage);
  words[17] = 5;
  list[0] = list[1] = words + 17;
  CHECK_EQ(sum(reinterpret_cast<CUdeviceptr>(list), 2), 10);
  OK(CU(cuMemFreeHost)(list));
  OK(CU(cuMemFreeHost)(words));
}

TEST("streams wait for words of memory whose address nothing has asked for, and write them") {
  const auto at = [](int* word) { return reinterpret_cast<CUdeviceptr>(word); };
  context();
  CUstream s = stream();
  int* words = pinned(kPage);
  OK(CU(cuStreamWaitValue32_v2)(s, at(words), 7, CU_STREAM_WAIT_VALUE_GEQ));
  OK(CU(cuStreamWriteValue32_v2)(s, at(words + 1), 42, 0));
  FAILS(CUDA_ERROR_NOT_READY, CU(cuStreamQuery)(s));
  std::atomic_ref<int>(words[0]).store(9);
  OK(CU(cuStreamSynchronize)(s));
  CHECK_EQ(words[1], 42);

  int* more = pinned(kPage);
  CUstreamBatchMemOpParams both[2]{};
  both[0].waitValue = {CU_STREAM_MEM_OP_WAIT_VALUE_32, at(more), {5}, CU_STREAM_WAIT_VALUE_EQ, 0};
  both[1].writeValue = {CU_STREAM_MEM_OP_WRITE_VALUE_32, at(more + 9), {43}, 0, 0};
  OK(CU(cuStreamBatchMemOp_v2)(s, 2, both, 0));
  std::atomic_ref<int>(more[0]).store(5);
  OK(CU(cuStreamSynchronize)(s));
  CHECK_EQ(more[9], 43);

  int* filled = pinned(kPage);
  CUgraph graph = nullptr;
  OK(CU(cuGraphCreate)(&graph, 0));
  CUgraphNode fill = nullptr;
  const CUDA_MEMSET_NODE_PARAMS sevens{at(filled), 0, 7, 4, 16, 1};
  OK(CU(cuGraphAddMemsetNode)(&fill, graph, nullptr, 0, &sevens, context()));
  CUgraphExec exec = nullptr;
  OK(CU(cuGraphInstantiateWithFlags)(&exec, graph, 0));
  OK(CU(cuGraphLaunch)(exec, s));
  OK(CU(cuStreamSynchronize)(s));
  CHECK_EQ(filled[15], 7);
  CHECK_EQ(filled[16], 0);
  OK(CU(cuGraphExecDestroy)(exec));
  OK(CU(cuGraphDestroy)(graph));
  OK(CU(cuStreamDestroy_v2)(s));
  for (int* each : {words, more, filled}) OK(CU(cuMemFreeHost)(each));
}

TEST("copies between devices take pinned memory for either end") {
  constexpr size_t kWords = 100'000;
  context();
  CUstream s = stream();
  int* from = pinned(kWords * sizeof(int));
  int* to = pinned(kWords * sizeof(int));
  const CUdeviceptr memory = allocate(kWords * sizeof(int));
  const auto at = [](int* words) { return reinterpret_cast<CUdeviceptr>(words); };
  for (int round = 1; round <= 3; ++round) {
    for (size_t i = 0; i < kWords; ++i) from[i] = static_cast<int>(i) * round;
    OK(CU(cuMemcpyDtoDAsync_v2)(memory, at(from), kWords * sizeof(int), s));
    OK(CU(cuMemcpyDtoDAsync_v2)(at(to), memory, kWords * sizeof(int), s));
    OK(CU(cuStreamSynchronize)(s));
    CHECK(std::equal(from, from + kWords, to));
    OK(CU(cuMemcpyDtoD_v2)(at(to), at(from + 1), 4000));
    OK(CU(cuMemcpyPeerAsync)(at(to + 5000), context(), memory, context(), 400, s));
    OK(CU(cuStreamSynchronize)(s));
    CHECK_EQ(to[999], from[1000]);
    CHECK_EQ(to[5099], from[99]);
  }
  for (int* each : {from, to}) OK(CU(cuMemFreeHost)(each));
  OK(CU(cuMemFree_v2)(memory));
  OK(CU(cuStreamDestroy_v2)(s));
}

TEST(
    "a kernel is recorded while the program has written what kernels reach, and memory is there that none has reached") {
  context();
  std::vector<int*> registered(kPage);
  int** list = registered.data();
  OK(CU(cuMemHostRegister_v2)(list, kPage * sizeof(int*), 0));
  int* words = pinned(kPage);
  // An address just before or after memory also refers to that memory.
  int* between = pinned(kPage);
  int* others = pinned(kPage);
  list[0] = words;
  words[0] = 1;
  CHECK_EQ(sum(reinterpret_cast<CUdeviceptr>(list), 1), 1);
  CUstream s = stream();
  CUdeviceptr first = reinterpret_cast<CUdeviceptr>(list), out = allocate(sizeof(int));
  unsigned count = 2;
  void* arguments[] = {&first, &count, &out};
  const CUfunction summing = function("sum");
  others[3] = 20;
  list[1] = others + 3;
  CUgraph graph = nullptr;
  OK(CU(cuStreamBeginCapture_v2)(s, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  OK(CU(cuLaunchKernel)(summing, 1, 1, 1, 1, 1, 1, 0, s, arguments, nullptr));
  OK(CU(cuStreamEndCapture)(s, &graph));
  CUgraphExec exec = nullptr;
  OK(CU(cuGraphInstantiateWithFlags)(&exec, graph, 0));
  for (int round = 0; round < 3; ++round) {
    words[0] = round;
    OK(CU(cuGraphLaunch)(exec, s));
    OK(CU(cuStreamSynchronize)(s));
    CHECK_EQ(read(out, 1)[0], 20 + round);
  }
  OK(CU(cuGraphExecDestroy)(exec));
  OK(CU(cuGraphDestroy)(graph));
  OK(CU(cuStreamDestroy_v2)(s));
  OK(CU(cuMemFree_v2)(out));
  OK(CU(cuMemHostUnregister)(list));
  for (int* each : {words, between, others}) OK(CU(cuMemFreeHost)(each));
}

int main(int argc, char** argv) { return run(argc, argv); }
