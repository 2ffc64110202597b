// SPDX-License-Identifier: Apache-2.0
// Pinned and registered memory that calls name of which no kernel has the address: textures, tensor maps, copies. A kernel then
// reads it by an address that is hidden in its parameter, so that only the call itself can have made it known.
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <utility>

#include "testing/streams/program.h"

using namespace millpond::streams;

namespace {

constexpr size_t kPage = 4096;
constexpr unsigned kCount = 32;

/// `hidden`: a word at the complement of its parameter. `fetch`: elements of a texture object from `first` on. `bound`: the same
/// of a reference. `plane`: the element at (x, y).
constexpr char kKernels[] = R"(
.version 7.0
.target sm_75
.address_size 64
.global .texref line;
.visible .entry hidden(.param .u64 address, .param .u64 out) {
  .reg .u32 %r<2>;
  .reg .u64 %p<3>;
  ld.param.u64 %p1, [address];
  not.b64 %p1, %p1;
  ld.u32 %r1, [%p1];
  ld.param.u64 %p2, [out];
  st.u32 [%p2], %r1;
  ret;
}
.visible .entry fetch(.param .u64 texture, .param .u64 out, .param .u32 first) {
  .reg .u32 %r<8>;
  .reg .u64 %p<5>;
  ld.param.u64 %p1, [texture];
  ld.param.u64 %p2, [out];
  ld.param.u32 %r1, [first];
  mov.u32 %r2, %tid.x;
  add.u32 %r1, %r1, %r2;
  tex.1d.v4.u32.s32 {%r4, %r5, %r6, %r7}, [%p1, {%r1}];
  mul.wide.u32 %p3, %r2, 4;
  add.u64 %p4, %p2, %p3;
  st.u32 [%p4], %r4;
  ret;
}
.visible .entry bound(.param .u64 out, .param .u32 first) {
  .reg .u32 %r<8>;
  .reg .u64 %p<5>;
  mov.u64 %p1, line;
  ld.param.u64 %p2, [out];
  ld.param.u32 %r1, [first];
  mov.u32 %r2, %tid.x;
  add.u32 %r1, %r1, %r2;
  tex.1d.v4.u32.s32 {%r4, %r5, %r6, %r7}, [%p1, {%r1}];
  mul.wide.u32 %p3, %r2, 4;
  add.u64 %p4, %p2, %p3;
  st.u32 [%p4], %r4;
  ret;
}
.visible .entry plane(.param .u64 texture, .param .u64 out, .param .u32 x, .param .u32 y) {
  .reg .u32 %r<8>;
  .reg .u64 %p<3>;
  ld.param.u64 %p1, [texture];
  ld.param.u64 %p2, [out];
  ld.param.u32 %r1, [x];
  ld.param.u32 %r2, [y];
  tex.2d.v4.u32.s32 {%r4, %r5, %r6, %r7}, [%p1, {%r1, %r2}];
  st.u32 [%p2], %r4;
  ret;
}
)";

CUmodule module() {
  static CUmodule loaded = [] {
    CUmodule made = nullptr;
    OK(CU(cuModuleLoadData)(&made, kKernels));
    return made;
  }();
  return loaded;
}

CUfunction function(const char* name) {
  CUfunction found = nullptr;
  OK(CU(cuModuleGetFunction)(&found, module(), name));
  return found;
}

std::vector<int> launched(const char* name, unsigned threads, std::vector<void*> arguments, CUdeviceptr out) {
  OK(CU(cuLaunchKernel)(function(name), 1, 1, 1, threads, 1, 1, 0, nullptr, arguments.data(), nullptr));
  return read(out, threads);
}

/// Memory of the program whose address no kernel has been given, with its words numbered; pinned, or registered.
class Words {
 public:
  enum class Kind { kPinned, kRegistered };

  explicit Words(Kind kind, size_t bytes = kPage) : kind_(kind) {
    context();
    void* place = nullptr;
    if (kind == Kind::kPinned) {
      OK(CU(cuMemHostAlloc)(&place, bytes, 0));
    } else {
      place = std::aligned_alloc(kPage, bytes);
      OK(CU(cuMemHostRegister_v2)(place, bytes, CU_MEMHOSTREGISTER_DEVICEMAP));
    }
    words_ = static_cast<int*>(place);
    std::iota(words_, words_ + bytes / sizeof(int), 1000);
  }
  ~Words() {
    if (kind_ == Kind::kPinned) {
      OK(CU(cuMemFreeHost)(words_));
    } else {
      OK(CU(cuMemHostUnregister)(words_));
      std::free(words_);
    }
  }
  Words(const Words&) = delete;
  Words& operator=(const Words&) = delete;

  int& operator[](size_t i) { return words_[i]; }
  int* data() { return words_; }
  CUdeviceptr at(size_t i = 0) const { return reinterpret_cast<CUdeviceptr>(words_ + i); }
  /// A word as read by a kernel that was not given the address.
  int hidden(size_t i) {
    CUdeviceptr out = allocate(sizeof(int));
    uint64_t address = ~at(i);
    const int seen = launched("hidden", 1, {&address, &out}, out)[0];
    OK(CU(cuMemFree_v2)(out));
    return seen;
  }

 private:
  const Kind kind_;
  int* words_ = nullptr;
};

constexpr Words::Kind kKinds[] = {Words::Kind::kPinned, Words::Kind::kRegistered};

CUtexObject texture(const CUDA_RESOURCE_DESC& resource) {
  CUDA_TEXTURE_DESC how{};
  how.flags = CU_TRSF_READ_AS_INTEGER;
  CUtexObject object = 0;
  OK(CU(cuTexObjectCreate)(&object, &resource, &how, nullptr));
  return object;
}

}  // namespace

TEST("a kernel reads a line of the program's memory by a texture object, and what the program writes there") {
  for (const auto kind : kKinds) {
    Words words(kind);
    CUDA_RESOURCE_DESC resource{};
    resource.resType = CU_RESOURCE_TYPE_LINEAR;
    resource.res.linear = {words.at(), CU_AD_FORMAT_UNSIGNED_INT32, 1, kPage};
    CUtexObject object = texture(resource);
    CUdeviceptr out = allocate(kCount * sizeof(int));
    unsigned first = 100;
    for (int round = 0; round < 2; ++round) {
      const std::vector<int> seen = launched("fetch", kCount, {&object, &out, &first}, out);
      for (unsigned i = 0; i < kCount; ++i) CHECK_EQ(seen[i], 1000 + round * 7 + static_cast<int>(first + i));
      for (unsigned i = 0; i < kCount; ++i) words[first + i] += 7;
    }
    OK(CU(cuTexObjectDestroy)(object));
    OK(CU(cuMemFree_v2)(out));
  }
}

TEST("and a plane of it") {
  for (const auto kind : kKinds) {
    constexpr unsigned kWidth = 16, kPitch = 512;
    Words words(kind);
    CUDA_RESOURCE_DESC resource{};
    resource.resType = CU_RESOURCE_TYPE_PITCH2D;
    resource.res.pitch2D = {words.at(), CU_AD_FORMAT_UNSIGNED_INT32, 1, kWidth, kPage / kPitch, kPitch};
    CUtexObject object = texture(resource);
    CUdeviceptr out = allocate(sizeof(int));
    unsigned x = 3, y = 5;
    CHECK_EQ(launched("plane", 1, {&object, &out, &x, &y}, out)[0], 1000 + 5 * 128 + 3);
    OK(CU(cuTexObjectDestroy)(object));
    OK(CU(cuMemFree_v2)(out));
  }
}

TEST("a texture reference is bound to it") {
  for (const auto kind : kKinds) {
    Words words(kind);
    CUtexref line = nullptr;
    OK(CU(cuModuleGetTexRef)(&line, module(), "line"));
    OK(CU(cuTexRefSetFormat)(line, CU_AD_FORMAT_UNSIGNED_INT32, 1));
    OK(CU(cuTexRefSetFlags)(line, CU_TRSF_READ_AS_INTEGER));
    OK(CU(cuTexRefSetAddress_v2)(nullptr, line, words.at(), kPage));
    CUdeviceptr out = allocate(kCount * sizeof(int));
    unsigned first = 64;
    const std::vector<int> seen = launched("bound", kCount, {&out, &first}, out);
    for (unsigned i = 0; i < kCount; ++i) CHECK_EQ(seen[i], 1000 + static_cast<int>(first + i));
    OK(CU(cuTexRefSetAddress_v2)(nullptr, line, 0, 0));
    OK(CU(cuMemFree_v2)(out));
  }
}

TEST("a tensor map of it is made, also where other memory was before") {
  for (const auto kind : kKinds)
    for (int round = 0; round < 2; ++round) {
      Words words(kind);
      CUtensorMap map;
      const cuuint64_t extents[] = {64, 16}, strides[] = {256};
      const cuuint32_t box[] = {16, 4}, steps[] = {1, 1};
      const auto encode =
          reinterpret_cast<decltype(&::cuTensorMapEncodeTiled)>(::dlsym(driverLibrary(), "cuTensorMapEncodeTiled"));
      // Not every driver supports them, nor every device.
      if (!encode) continue;
      const CUresult made = encode(&map, CU_TENSOR_MAP_DATA_TYPE_INT32, 2, words.data(), extents, strides, box, steps,
                                   CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE,
                                   CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
      CHECK(made == CUDA_SUCCESS || made == CUDA_ERROR_NOT_SUPPORTED);
      CHECK_EQ(words.hidden(77), 1077);
    }
}

TEST("copies to it and from it as memory of the device") {
  for (const auto kind : kKinds) {
    const std::vector<int> given(256, 5);
    std::vector<int> taken(256);
    Words to(kind);
    OK(CU(cuMemcpyHtoD_v2)(to.at(256), given.data(), given.size() * sizeof(int)));
    CHECK_EQ(to[255], 1255);
    CHECK_EQ(to[256], 5);
    CHECK_EQ(to[511], 5);
    CHECK_EQ(to.hidden(300), 5);
    Words from(kind);
    OK(CU(cuMemcpyDtoH_v2)(taken.data(), from.at(100), taken.size() * sizeof(int)));
    CHECK_EQ(taken[0], 1100);
    CHECK_EQ(taken[255], 1355);

    Words source(kind), copied(kind);
    CUDA_MEMCPY3D box{};
    box.srcMemoryType = box.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    box.srcDevice = source.at();
    box.dstDevice = copied.at(512);
    box.srcPitch = box.dstPitch = box.WidthInBytes = 256;
    box.srcHeight = box.dstHeight = box.Height = 2;
    box.Depth = 1;
    CUgraph graph = nullptr;
    OK(CU(cuGraphCreate)(&graph, 0));
    CUgraphNode node = nullptr;
    OK(CU(cuGraphAddMemcpyNode)(&node, graph, nullptr, 0, &box, context()));
    CUgraphExec exec = nullptr;
    OK(CU(cuGraphInstantiateWithFlags)(&exec, graph, 0));
    CUstream s = stream();
    source[127] = 9;
    OK(CU(cuGraphLaunch)(exec, s));
    OK(CU(cuStreamSynchronize)(s));
    CHECK_EQ(copied[512], 1000);
    CHECK_EQ(copied[512 + 127], 9);
    OK(CU(cuStreamDestroy_v2)(s));
    OK(CU(cuGraphExecDestroy)(exec));
    OK(CU(cuGraphDestroy)(graph));
  }
}

TEST("a fill leads on to what the memory has the address of") {
  Words first(Words::Kind::kPinned), second(Words::Kind::kPinned);
  const int* const next = second.data();
  std::memcpy(first.data(), &next, sizeof(next));
  CUstream s = stream();
  OK(CU(cuMemsetD32Async)(first.at(512), 3, 16, s));
  OK(CU(cuStreamSynchronize)(s));
  CHECK_EQ(first[512], 3);
  CHECK_EQ(second.hidden(8), 1008);
  OK(CU(cuStreamDestroy_v2)(s));
}

int main(int argc, char** argv) { return run(argc, argv); }
