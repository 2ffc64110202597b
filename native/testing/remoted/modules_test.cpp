// SPDX-License-Identifier: Apache-2.0
// Modules, libraries and links: their logs, their contents, and their sources.
#include <cstring>
#include <fstream>
#include <set>

#include "testing/remoted.h"
#include "testing/stderr_capture.h"

using namespace millpond::testing;

namespace {

#define HEAD ".version 7.0\n.target sm_75\n.address_size 64\n"
constexpr char kTwo[] = HEAD R"(
.visible .global .align 4 .u32 number = 5;
.visible .entry first(.param .u64 to, .param .u32 value) {
  .reg .u32 %r<2>;
  .reg .u64 %p<2>;
  ld.param.u64 %p1, [to];
  ld.param.u32 %r1, [value];
  st.global.u32 [%p1], %r1;
  ret;
}
.visible .entry second() { ret; }
)";
constexpr char kManaged[] = HEAD ".visible .global .attribute(.managed) .align 4 .u32 ours = 5;\n";
constexpr char kBroken[] = HEAD ".visible .entry broken() { .reg .u32 %r<2>; mov.u32 %r1 nonsense; }\n";
constexpr char kTrapping[] = HEAD ".visible .entry trapping() { trap; }\n";
constexpr char kCaller[] = HEAD R"(
.extern .func (.param .u32 result) twice(.param .u32 value);
.visible .entry call(.param .u64 to, .param .u32 value) {
  .reg .u32 %r<3>;
  .reg .u64 %p<2>;
  ld.param.u64 %p1, [to];
  ld.param.u32 %r1, [value];
  { .param .u32 in; .param .u32 out;
    st.param.u32 [in], %r1;
    call (out), twice, (in);
    ld.param.u32 %r2, [out]; }
  st.global.u32 [%p1], %r2;
  ret;
}
)";
constexpr char kCallee[] = HEAD R"(
.visible .func (.param .u32 result) twice(.param .u32 value) {
  .reg .u32 %r<2>;
  ld.param.u32 %r1, [value];
  add.u32 %r1, %r1, %r1;
  st.param.u32 [result], %r1;
  ret;
}
)";

unsigned run(CUfunction function, unsigned value) {
  CUdeviceptr memory = 0;
  OK(CU(cuMemAlloc_v2)(&memory, 4));
  void* parameters[] = {&memory, &value};
  OK(CU(cuLaunchKernel)(function, 1, 1, 1, 1, 1, 1, 0, nullptr, parameters, nullptr));
  unsigned result = 0;
  OK(CU(cuMemcpyDtoH_v2)(&result, memory, 4));
  OK(CU(cuMemFree_v2)(memory));
  return result;
}

template <typename T>
void* value(T number) {
  return reinterpret_cast<void*>(static_cast<uintptr_t>(number));
}

/// Logs and time, in the way in which programs request them.
struct Logs {
  char info[256] = "info as before";
  char error[256] = "error as before";
  CUjit_option options[6] = {CU_JIT_INFO_LOG_BUFFER,  CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES,
                             CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
                             CU_JIT_WALL_TIME,        CU_JIT_OPTIMIZATION_LEVEL};
  void* values[6] = {info, value(sizeof info), error, value(sizeof error), nullptr, value(2)};
  float time() const {
    float milliseconds = -1;
    std::memcpy(&milliseconds, &values[4], sizeof milliseconds);
    return milliseconds;
  }
};

std::string writeFile(const char* name, std::string_view content) {
  const std::string path = std::string(std::getenv("MILLPOND_SOFTGPU_STATE")) + "/" + name;
  std::ofstream(path) << content;
  return path;
}

}  // namespace

TEST("a program that does not compile comes with the compiler's log, one that does with its time") {
  everywhere([] {
    begin();
    CUmodule module = nullptr;
    Logs logs;
    FAILS(CUDA_ERROR_INVALID_PTX, CU(cuModuleLoadDataEx)(&module, kBroken, 6, logs.options, logs.values));
    CHECK(std::strstr(logs.error, "nonsense") != nullptr);
    CHECK_EQ(reinterpret_cast<uintptr_t>(logs.values[3]), std::strlen(logs.error));
    CHECK_EQ(std::string(logs.info), "");
    Logs good;
    OK(CU(cuModuleLoadDataEx)(&module, kTwo, 6, good.options, good.values));
    CHECK(good.time() > 0);
    CHECK_EQ(std::string(good.error), "");
    CUlibrary library = nullptr;
    Logs third;
    FAILS(CUDA_ERROR_INVALID_PTX,
          CU(cuLibraryLoadData)(&library, kBroken, third.options, third.values, 6, nullptr, nullptr, 0));
    CHECK(std::strstr(third.error, "nonsense") != nullptr);
    FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuModuleLoadDataEx)(&module, kTwo, 1, nullptr, nullptr));
  });
}

TEST("what the driver has to say about a failure is on the program's standard error") {
  everywhere([] {
    ::setenv("MILLPOND_LOG", "warn", 1);
    begin();
    const std::string said = captured([] {
      CUmodule module = nullptr;
      FAILS(CUDA_ERROR_INVALID_PTX, CU(cuModuleLoadData)(&module, kBroken));
    });
    CHECK(said.find("nonsense") != said.npos);
    const std::string later = captured([] {
      CUmodule module = nullptr;
      OK(CU(cuModuleLoadData)(&module, kTrapping));
      CUfunction function = nullptr;
      OK(CU(cuModuleGetFunction)(&function, module, "trapping"));
      OK(CU(cuLaunchKernel)(function, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr));
      FAILS(CUDA_ERROR_LAUNCH_FAILED, CU(cuCtxSynchronize)());
    });
    CHECK(later.find("trapping") != later.npos);
    CHECK(later.find("nonsense") == later.npos);
  });
}

TEST("a module tells what is in it; a file is read by the program") {
  everywhere([] {
    begin();
    CUmodule module = nullptr;
    const std::string path = writeFile("two.ptx", kTwo);
    FAILS(CUDA_ERROR_FILE_NOT_FOUND, CU(cuModuleLoad)(&module, (path + ".not").c_str()));
    OK(CU(cuModuleLoad)(&module, path.c_str()));
    unsigned count = 0;
    OK(CU(cuModuleGetFunctionCount)(&count, module));
    CHECK_EQ(count, 2u);
    CUfunction functions[2] = {};
    OK(CU(cuModuleEnumerateFunctions)(functions, 2, module));
    std::set<std::string> names;
    for (const CUfunction function : functions) {
      const char* name = nullptr;
      OK(CU(cuFuncGetName)(&name, function));
      names.insert(name);
      CUmodule owner = nullptr;
      OK(CU(cuFuncGetModule)(&owner, function));
      CHECK(owner == module);
      OK(CU(cuFuncLoad)(function));
      CUfunctionLoadingState state{};
      OK(CU(cuFuncIsLoaded)(&state, function));
      CHECK_EQ(state, CU_FUNCTION_LOADING_STATE_LOADED);
      OK(CU(cuFuncSetCacheConfig)(function, CU_FUNC_CACHE_PREFER_L1));
    }
    CHECK(names == (std::set<std::string>{"first", "second"}));
    CUfunction first = nullptr;
    OK(CU(cuModuleGetFunction)(&first, module, "first"));
    CHECK(first == functions[0] || first == functions[1]);
    CHECK_EQ(run(first, 31), 31u);
    FAILS(CUDA_ERROR_NOT_FOUND, CU(cuModuleGetFunction)(&first, module, "third"));
    OK(CU(cuModuleUnload)(module));
    FAILS(CUDA_ERROR_INVALID_HANDLE, CU(cuModuleGetFunctionCount)(&count, module));
  });
}

TEST("a library is another module in its context after each reset") {
  everywhere([] {
    begin();
    CUlibrary library = nullptr;
    OK(CU(cuLibraryLoadFromFile)(&library, writeFile("two.ptx", kTwo).c_str(), nullptr, nullptr, 0, nullptr, nullptr,
                                 0));
    for (unsigned round = 0; round < 4; ++round) {
      CUmodule module = nullptr;
      OK(CU(cuLibraryGetModule)(&module, library));
      CUfunction first = nullptr, second = nullptr;
      OK(CU(cuModuleGetFunction)(&first, module, "first"));
      OK(CU(cuModuleGetFunction)(&second, module, "second"));
      CHECK_EQ(run(first, round + 1), round + 1);
      OK(CU(cuDevicePrimaryCtxReset_v2)(0));
      CUcontext context = nullptr;
      OK(CU(cuDevicePrimaryCtxRetain)(&context, 0));
      OK(CU(cuCtxSynchronize)());
      FAILS(CUDA_ERROR_INVALID_HANDLE, CU(cuModuleGetFunction)(&first, module, "first"));
      // Handles of the worker are free again.
      CUevent events[8] = {};
      for (CUevent& each : events) OK(CU(cuEventCreate)(&each, 0));
    }
    OK(CU(cuLibraryUnload)(library));
  });
}

TEST("a library has kernels, and is a module in each context") {
  everywhere([] {
    begin();
    CUlibrary library = nullptr;
    OK(CU(cuLibraryLoadFromFile)(&library, writeFile("two.ptx", kTwo).c_str(), nullptr, nullptr, 0, nullptr, nullptr,
                                 0));
    unsigned count = 0;
    OK(CU(cuLibraryGetKernelCount)(&count, library));
    CHECK_EQ(count, 2u);
    CUkernel kernels[2] = {};
    OK(CU(cuLibraryEnumerateKernels)(kernels, 2, library));
    CUmodule module = nullptr, again = nullptr;
    OK(CU(cuLibraryGetModule)(&module, library));
    OK(CU(cuLibraryGetModule)(&again, library));
    CHECK(module == again);
    CUfunction first = nullptr;
    OK(CU(cuModuleGetFunction)(&first, module, "first"));
    CHECK_EQ(run(first, 12), 12u);
    CUkernel kernel = nullptr;
    OK(CU(cuLibraryGetKernel)(&kernel, library, "first"));
    CHECK(kernel == kernels[0] || kernel == kernels[1]);
    CUfunction function = nullptr;
    OK(CU(cuKernelGetFunction)(&function, kernel));
    CHECK_EQ(run(function, 13), 13u);
    CUmodule ofFunction = nullptr;
    OK(CU(cuFuncGetModule)(&ofFunction, function));
    CHECK(ofFunction == module);
    CUlibrary owner = nullptr;
    OK(CU(cuKernelGetLibrary)(&owner, kernel));
    CHECK(owner == library);
    int threads = 0;
    OK(CU(cuKernelGetAttribute)(&threads, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, kernel, 0));
    CHECK(threads > 0);
    OK(CU(cuKernelSetAttribute)(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 4096, kernel, 0));
    int bytes = 0;
    OK(CU(cuKernelGetAttribute)(&bytes, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, kernel, 0));
    CHECK_EQ(bytes, 4096);
    OK(CU(cuLibraryUnload)(library));
    FAILS(CUDA_ERROR_INVALID_HANDLE, CU(cuLibraryGetKernelCount)(&count, library));
    FAILS(CUDA_ERROR_INVALID_HANDLE, CU(cuModuleGetFunction)(&first, module, "first"));
    FAILS(CUDA_ERROR_INVALID_HANDLE, CU(cuModuleGetFunction)(nullptr, nullptr, nullptr));
  });
}

TEST("a managed variable is where host code finds it, and one that is not managed is not found among those that are") {
  everywhere([] {
    begin();
    CUlibrary library = nullptr;
    OK(CU(cuLibraryLoadData)(&library, kManaged, nullptr, nullptr, 0, nullptr, nullptr, 0));
    CUdeviceptr address = 0;
    size_t bytes = 0;
    OK(CU(cuLibraryGetManaged)(&address, &bytes, library, "ours"));
    CHECK_EQ(bytes, 4u);
    auto* ours = reinterpret_cast<volatile uint32_t*>(address);
    CHECK_EQ(*ours, 5u);
    *ours = 7;
    uint32_t there = 0;
    OK(CU(cuMemcpyDtoH_v2)(&there, address, sizeof(there)));
    CHECK_EQ(there, 7u);
    OK(CU(cuMemsetD32_v2)(address, 9, 1));
    OK(CU(cuCtxSynchronize)());
    CHECK_EQ(*ours, 9u);
    OK(CU(cuLibraryUnload)(library));
  });
  everywhere([] {
    begin();
    CUlibrary library = nullptr;
    OK(CU(cuLibraryLoadData)(&library, kTwo, nullptr, nullptr, 0, nullptr, nullptr, 0));
    CUdeviceptr address = 0;
    size_t bytes = 0;
    FAILS(CUDA_ERROR_NOT_FOUND, CU(cuLibraryGetManaged)(&address, &bytes, library, "number"));
    FAILS(CUDA_ERROR_NOT_FOUND, CU(cuLibraryGetManaged)(&address, &bytes, library, "none"));
    FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuLibraryGetManaged)(&address, &bytes, library, nullptr));
    FAILS(CUDA_ERROR_INVALID_HANDLE, CU(cuLibraryGetManaged)(&address, &bytes, nullptr, "number"));
  });
}

TEST("the structure by which a compiled program names its code makes a library, and no module") {
  everywhere([] {
    begin();
    const struct {
      uint32_t magic = 0x466243b1;
      uint32_t version = 1;
      const void* code = kTwo;
      const void* aux = nullptr;
    } wrapper;
    CUmodule module = nullptr;
    FAILS(CUDA_ERROR_INVALID_IMAGE, CU(cuModuleLoadData)(&module, &wrapper));
    FAILS(CUDA_ERROR_INVALID_IMAGE, CU(cuModuleLoadDataEx)(&module, &wrapper, 0, nullptr, nullptr));
    CUlibrary library = nullptr;
    OK(CU(cuLibraryLoadData)(&library, &wrapper, nullptr, nullptr, 0, nullptr, nullptr, 0));
    OK(CU(cuLibraryUnload)(library));
  });
}

TEST("code of several texts is linked, loaded and run") {
  everywhere([] {
    begin();
    Logs logs;
    CUlinkState link = nullptr;
    OK(CU(cuLinkCreate_v2)(6, logs.options, logs.values, &link));
    OK(CU(cuLinkAddData_v2)(link, CU_JIT_INPUT_PTX, const_cast<char*>(kCaller), sizeof kCaller, "caller", 0, nullptr,
                            nullptr));
    OK(CU(cuLinkAddFile_v2)(link, CU_JIT_INPUT_PTX, writeFile("callee.ptx", kCallee).c_str(), 0, nullptr, nullptr));
    void* code = nullptr;
    size_t bytes = 0;
    OK(CU(cuLinkComplete)(link, &code, &bytes));
    CHECK(bytes > 0);
    CUmodule module = nullptr;
    OK(CU(cuModuleLoadData)(&module, code));
    OK(CU(cuLinkDestroy)(link));
    CUfunction call = nullptr;
    OK(CU(cuModuleGetFunction)(&call, module, "call"));
    CHECK_EQ(run(call, 21), 42u);
    FAILS(CUDA_ERROR_INVALID_HANDLE, CU(cuLinkComplete)(link, &code, &bytes));
    // The log size is the number of bytes just written: none, since the log has no room.
    CHECK_EQ(reinterpret_cast<uintptr_t>(logs.values[3]), 0u);
    OK(CU(cuLinkCreate_v2)(6, logs.options, logs.values, &link));
    OK(CU(cuLinkAddData_v2)(link, CU_JIT_INPUT_PTX, const_cast<char*>(kTwo), sizeof kTwo, "two", 0, nullptr, nullptr));
    OK(CU(cuLinkComplete)(link, &code, &bytes));
    OK(CU(cuLinkDestroy)(link));
  });
}

TEST("a link that lacks something says so in its log") {
  everywhere([] {
    begin();
    Logs logs;
    CUlinkState link = nullptr;
    OK(CU(cuLinkCreate_v2)(6, logs.options, logs.values, &link));
    FAILS(CUDA_ERROR_FILE_NOT_FOUND,
          CU(cuLinkAddFile_v2)(link, CU_JIT_INPUT_PTX, "/nonexistent/file.ptx", 0, nullptr, nullptr));
    OK(CU(cuLinkAddData_v2)(link, CU_JIT_INPUT_PTX, const_cast<char*>(kCaller), sizeof kCaller, nullptr, 0, nullptr,
                            nullptr));
    void* code = nullptr;
    size_t bytes = 0;
    CHECK(CU(cuLinkComplete)(link, &code, &bytes) != CUDA_SUCCESS);
    CHECK(std::strstr(logs.error, "twice") != nullptr);
    OK(CU(cuLinkDestroy)(link));
  });
}

TEST("an image that the worker's host has already is not sent again, and one that nobody knows is") {
  // Large enough to be requested by hash over TCP; the second worker uses the same cache.
  std::string text = kTwo;
  for (int i = 0; i < 2000; ++i) text += "// a line that says nothing\n";
  std::string cache = (std::filesystem::temp_directory_path() / "millpond-cache-XXXXXX").string();
  CHECK(::mkdtemp(cache.data()) != nullptr);
  const auto program = [&] {
    begin();
    CUmodule module = nullptr;
    OK(CU(cuModuleLoadData)(&module, text.c_str()));
    CUfunction first = nullptr;
    OK(CU(cuModuleGetFunction)(&first, module, "first"));
    CHECK_EQ(run(first, 7), 7u);
  };
  for (int i = 0; i < 2; ++i) {
    CHECK_EQ(runProgram(Way::kTcp, program, {"--image-cache", cache}), 0);
    size_t files = 0;
    for (const auto& entry : std::filesystem::directory_iterator(cache + "/" + std::string(64, 'a'))) {
      CHECK_EQ(entry.file_size(), text.size() + 2);  // the text, its zero, and the zero behind every image
      // A lookup that finds an image marks it as used.
      using Clock = std::filesystem::file_time_type;
      if (i > 0) CHECK(entry.last_write_time() > Clock::clock::now() - std::chrono::hours(1));
      std::filesystem::last_write_time(entry.path(), Clock::clock::now() - std::chrono::hours(24));
      ++files;
    }
    CHECK_EQ(files, size_t{1});
  }
  std::filesystem::remove_all(cache);
}
