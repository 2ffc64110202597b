// SPDX-License-Identifier: Apache-2.0
// The form of a traced call, with the tables of the real API.
#include "client/trace/trace_line.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <initializer_list>
#include <string>
#include <vector>

#include "client/state/handle_table.h"
#include "client/trace/trace.h"
#include "client/trace/trace_tables.h"
#include "testing/check.h"

using namespace millpond::client;

namespace {

uint32_t symbolOf(std::string_view name) {
  for (uint32_t i = 0; i < trace::kSymbolCount; ++i)
    if (name == &trace::kWords[trace::kSymbols[i].name]) return i;
  millpond::testing::fail(__FILE__, __LINE__, "no symbol " + std::string(name));
}

const FunctionInfo* lookup(uint64_t handle) {
  static const FunctionInfo* info = [] {
    auto* made = new FunctionInfo;
    made->name = "_Z9vectorAddPfi";
    made->parameters = {{0, 8}, {8, 4}, {16, 32}};
    return made;
  }();
  return handle == 0x1234 ? info : nullptr;
}

template <typename... Arguments>
std::string line(const std::string& name, CUresult result, const Arguments&... arguments) {
  const std::vector<uint64_t> words = {trace::toWord(arguments)...};
  trace::Line line;
  line.putCall({symbolOf(name), result, words}, &lookup);
  std::string text(line.end(""));
  CHECK(text.ends_with('\n'));
  text.pop_back();
  return text;
}

std::string hex(const void* address) {
  char text[32];
  std::snprintf(text, sizeof text, "0x%zx", reinterpret_cast<size_t>(address));
  return text;
}

}  // namespace

TEST("numbers, addresses, flags and what a call wrote") {
  CUdeviceptr made = 0x7f0000001000;
  CHECK_EQ(line("cuMemAlloc_v2", CUDA_SUCCESS, &made, size_t{4096}),
           "cuMemAlloc_v2(dptr=&0x7f0000001000, bytesize=4096) = CUDA_SUCCESS");
  CHECK_EQ(line("cuMemAlloc_v2", CUDA_ERROR_OUT_OF_MEMORY, &made, size_t{4096}),
           "cuMemAlloc_v2(dptr=" + hex(&made) + ", bytesize=4096) = CUDA_ERROR_OUT_OF_MEMORY");
  CHECK_EQ(line("cuMemAlloc_v2", CUDA_ERROR_INVALID_VALUE, static_cast<CUdeviceptr*>(nullptr), size_t{0}),
           "cuMemAlloc_v2(dptr=null, bytesize=0) = CUDA_ERROR_INVALID_VALUE");
  CHECK_EQ(line("cuCtxSynchronize", CUDA_SUCCESS), "cuCtxSynchronize() = CUDA_SUCCESS");
  CHECK_EQ(line("cuCtxSynchronize", static_cast<CUresult>(990)), "cuCtxSynchronize() = 990");
  CHECK_EQ(line("cuStreamCreateWithPriority", CUDA_ERROR_INVALID_VALUE, static_cast<CUstream*>(nullptr), 1u, -5),
           "cuStreamCreateWithPriority(phStream=null, flags=0x1, priority=-5) = CUDA_ERROR_INVALID_VALUE");
  CHECK_EQ(line("cuGetProcAddress", CUDA_ERROR_INVALID_VALUE, static_cast<const char*>(nullptr),
                static_cast<void**>(nullptr), 2000, cuuint64_t{0}),
           "cuGetProcAddress(symbol=null, pfn=null, cudaVersion=2000, flags=0x0) = CUDA_ERROR_INVALID_VALUE");
  float took = 1.5f;
  CHECK_EQ(
      line("cuEventElapsedTime", CUDA_SUCCESS, &took, reinterpret_cast<CUevent>(16), reinterpret_cast<CUevent>(32)),
      "cuEventElapsedTime(pMilliseconds=&1.5, hStart=0x10, hEnd=0x20) = CUDA_SUCCESS");
}

TEST("names instead of numbers, where the number has one") {
  int value = -1;
  CHECK_EQ(line("cuDeviceGetAttribute", CUDA_SUCCESS, &value, CU_DEVICE_ATTRIBUTE_WARP_SIZE, CUdevice{0}),
           "cuDeviceGetAttribute(pi=&-1, attrib=CU_DEVICE_ATTRIBUTE_WARP_SIZE, dev=0) = CUDA_SUCCESS");
  CHECK_EQ(line("cuDeviceGetAttribute", CUDA_SUCCESS, &value, static_cast<CUdevice_attribute>(220), CUdevice{0}),
           "cuDeviceGetAttribute(pi=&-1, attrib=220, dev=0) = CUDA_SUCCESS");
  const char* text = "no error";
  CHECK_EQ(line("cuGetErrorString", CUDA_SUCCESS, CUDA_ERROR_NOT_FOUND, &text),
           "cuGetErrorString(error=CUDA_ERROR_NOT_FOUND, pStr=&\"no error\") = CUDA_SUCCESS");
  CHECK_EQ(line("cuStreamSynchronize", CUDA_SUCCESS, CU_STREAM_PER_THREAD),
           "cuStreamSynchronize(hStream=perThread) = CUDA_SUCCESS");
  CHECK_EQ(line("cuStreamSynchronize", CUDA_SUCCESS, static_cast<CUstream>(nullptr)),
           "cuStreamSynchronize(hStream=default) = CUDA_SUCCESS");
}

TEST("texts are quoted, escaped and bounded") {
  CUfunction function = reinterpret_cast<CUfunction>(0x1234);
  const auto module = reinterpret_cast<CUmodule>(0x20);
  CHECK_EQ(line("cuModuleGetFunction", CUDA_SUCCESS, &function, module, static_cast<const char*>("a\"b\\\n")),
           R"(cuModuleGetFunction(hfunc=&0x1234 "_Z9vectorAddPfi", hmod=0x20, name="a\"b\\\u000a") = CUDA_SUCCESS)");
  const std::string longName(500, 'x');
  CHECK_EQ(
      line("cuModuleGetFunction", CUDA_ERROR_NOT_FOUND, static_cast<CUfunction*>(nullptr), module, longName.c_str()),
      "cuModuleGetFunction(hfunc=null, hmod=0x20, name=\"" + std::string(120, 'x') + "\"...) = CUDA_ERROR_NOT_FOUND");
  const std::string exact(120, 'y');
  CHECK(line("cuModuleGetFunction", CUDA_ERROR_NOT_FOUND, static_cast<CUfunction*>(nullptr), module, exact.c_str())
            .find("y\") = ") != std::string::npos);
  char name[8] = "GPU";
  CHECK_EQ(line("cuDeviceGetName", CUDA_SUCCESS, static_cast<char*>(name), 8, CUdevice{0}),
           "cuDeviceGetName(name=\"GPU\", len=8, dev=0) = CUDA_SUCCESS");
}

TEST("memory that cannot be read is told by its address, and is not touched") {
  const size_t page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  auto* pages =
      static_cast<char*>(::mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  CHECK(pages != MAP_FAILED);
  CHECK(::mprotect(pages + page, page, PROT_NONE) == 0);
  const auto module = reinterpret_cast<CUmodule>(0x20);
  const char* gone = pages + page;
  CHECK_EQ(line("cuModuleGetFunction", CUDA_ERROR_NOT_FOUND, static_cast<CUfunction*>(nullptr), module, gone),
           "cuModuleGetFunction(hfunc=null, hmod=0x20, name=" + hex(gone) + ") = CUDA_ERROR_NOT_FOUND");
  // A text that ends with its page.
  char* last = pages + page - 4;
  std::memcpy(last, "end", 4);
  CHECK_EQ(line("cuModuleGetFunction", CUDA_ERROR_NOT_FOUND, static_cast<CUfunction*>(nullptr), module,
                static_cast<const char*>(last)),
           "cuModuleGetFunction(hfunc=null, hmod=0x20, name=\"end\") = CUDA_ERROR_NOT_FOUND");
  CHECK(::munmap(pages, 2 * page) == 0);
}

TEST("structs show their main fields") {
  CUmemAllocationProp prop{};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  prop.location.id = 1;
  const std::string text = line("cuMemCreate", CUDA_ERROR_INVALID_VALUE,
                                static_cast<CUmemGenericAllocationHandle*>(nullptr), size_t{2097152}, &prop, 0ull);
  CHECK(text.starts_with("cuMemCreate(handle=null, size=2097152, prop=&{type=CU_MEM_ALLOCATION_TYPE_PINNED, "));
  CHECK(text.find("location.type=CU_MEM_LOCATION_TYPE_DEVICE, location.id=1") != text.npos);
  CUmemLocation location{};
  location.type = CU_MEM_LOCATION_TYPE_HOST;
  CHECK_EQ(line("cuMemAdvise_v2", CUDA_SUCCESS, CUdeviceptr{4096}, size_t{1}, CU_MEM_ADVISE_SET_READ_MOSTLY, location),
           "cuMemAdvise_v2(devPtr=0x1000, count=1, advice=CU_MEM_ADVISE_SET_READ_MOSTLY, "
           "location={type=CU_MEM_LOCATION_TYPE_HOST, id=0}) = CUDA_SUCCESS");
}

TEST("a list, which may be empty, is told by its address") {
  CUlibrary library = reinterpret_cast<CUlibrary>(0x40);
  const void* code = reinterpret_cast<const void*>(0x50);
  CUjit_option option = CU_JIT_MAX_REGISTERS;
  CHECK_EQ(line("cuLibraryLoadData", CUDA_SUCCESS, &library, code, &option, static_cast<void**>(nullptr), 0u,
                static_cast<CUlibraryOption*>(nullptr), static_cast<void**>(nullptr), 0u),
           "cuLibraryLoadData(library=&0x40, code=0x50, jitOptions=" + hex(&option) +
               ", jitOptionsValues=null, numJitOptions=0, libraryOptions=null, libraryOptionValues=null, "
               "numLibraryOptions=0) = CUDA_SUCCESS");
}

TEST("a launch shows the kernel's name and what it was given") {
  const auto function = reinterpret_cast<CUfunction>(0x1234);
  uint64_t pointer = 0x7f0000000000;
  uint32_t count = 10;
  char wide[32] = {};
  void* parameters[] = {&pointer, &count, wide};
  void** extra = nullptr;
  const std::string text = line("cuLaunchKernel", CUDA_SUCCESS, function, 1u, 2u, 3u, 4u, 5u, 6u, 7u,
                                reinterpret_cast<CUstream>(0x30), &parameters[0], extra);
  CHECK_EQ(text,
           "cuLaunchKernel(f=0x1234 \"_Z9vectorAddPfi\", gridDimX=1, gridDimY=2, gridDimZ=3, blockDimX=4, blockDimY=5, "
           "blockDimZ=6, sharedMemBytes=7, hStream=0x30, kernelParams=[0x7f0000000000, 0xa, {32 bytes}], extra=null) = "
           "CUDA_SUCCESS");
  void* broken[] = {&pointer, reinterpret_cast<void*>(8), wide};
  CHECK(line("cuLaunchKernel", CUDA_SUCCESS, function, 1u, 1u, 1u, 1u, 1u, 1u, 0u, static_cast<CUstream>(nullptr),
             &broken[0], extra)
            .find("kernelParams=" + hex(&broken[0]) + ", extra=null") != std::string::npos);
  const auto unknown = reinterpret_cast<CUfunction>(0x99);
  CHECK(line("cuLaunchKernel", CUDA_ERROR_INVALID_HANDLE, unknown, 1u, 1u, 1u, 1u, 1u, 1u, 0u,
             static_cast<CUstream>(nullptr), &parameters[0], extra)
            .starts_with("cuLaunchKernel(f=0x99, gridDimX=1, "));
}

TEST("what does not fit is left out from an argument on, and the result is there") {
  std::string path(4000, '\1');
  trace::Line full;
  for (int i = 0; i < 1500; ++i) full.put('x');
  const std::vector<uint64_t> words = {0, trace::toWord(static_cast<const char*>(path.c_str()))};
  full.putCall({symbolOf("cuModuleLoad"), CUDA_ERROR_FILE_NOT_FOUND, words}, &lookup);
  const std::string text(full.end("; waits 1"));
  CHECK(text.ends_with("xcuModuleLoad(module=null, ...) = CUDA_ERROR_FILE_NOT_FOUND; waits 1\n"));
}

TEST("times have three decimals and a width") {
  trace::Line line;
  line.putMicroseconds(1'234'567, 10);
  line.put('|');
  line.putMicroseconds(5, 3);
  line.put('|');
  line.putMicroseconds(1'000, 0);
  CHECK_EQ(std::string(line.end("")), "  1234.567|0.005|1.000\n");
}
