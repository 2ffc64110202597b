// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <set>

#include "softgpu/driver/tests/kernels.h"

namespace millpond::softgpu::testing {
namespace {

TEST("a module gives its functions and variables by name") {
  PrimaryContext context;
  const size_t before = freeBytes();
  {
    KernelModule module;
    CHECK(freeBytes() < before);
    CUfunction add = module.function("add");
    CHECK(add == module.function("add"));
    const char* name = nullptr;
    OK(CU(cuFuncGetName)(&name, add));
    CHECK_EQ(std::string(name), std::string("add"));
    CUmodule owner = nullptr;
    OK(CU(cuFuncGetModule)(&owner, add));
    CHECK(owner == module.handle());
    CUfunction missing = nullptr;
    FAILS(CUDA_ERROR_NOT_FOUND, CU(cuModuleGetFunction)(&missing, module.handle(), "subtract"));

    unsigned count = 0;
    OK(CU(cuModuleGetFunctionCount)(&count, module.handle()));
    std::vector<CUfunction> functions(count);
    OK(CU(cuModuleEnumerateFunctions)(functions.data(), count, module.handle()));
    CHECK_EQ(std::set<CUfunction>(functions.begin(), functions.end()).size(), size_t{count});
    CHECK(std::find(functions.begin(), functions.end(), add) != functions.end());

    CUdeviceptr address = 0;
    size_t bytes = 0;
    OK(CU(cuModuleGetGlobal_v2)(&address, &bytes, module.handle(), "counter"));
    CHECK_EQ(bytes, size_t{4});
    int value = 0;
    OK(CU(cuMemcpyDtoH_v2)(&value, address, 4));
    CHECK_EQ(value, 41);
    OK(CU(cuModuleGetGlobal_v2)(&address, nullptr, module.handle(), "factor"));
    float factor = 0;
    OK(CU(cuMemcpyDtoH_v2)(&factor, address, 4));
    CHECK_EQ(factor, 2.0f);
    FAILS(CUDA_ERROR_NOT_FOUND, CU(cuModuleGetGlobal_v2)(&address, &bytes, module.handle(), "nowhere"));
    FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuMemFree_v2)(address));
  }
  CHECK_EQ(freeBytes(), before);
}

TEST("a module that is unloaded is gone with all of it") {
  PrimaryContext context;
  auto module = std::make_unique<KernelModule>();
  const CUmodule handle = module->handle();
  CUfunction nothing = module->function("nothing");
  OK(launch(nothing, 1, 1, nullptr));
  CUdeviceptr counter = 0;
  OK(CU(cuModuleGetGlobal_v2)(&counter, nullptr, handle, "counter"));
  module.reset();
  FAILS(CUDA_ERROR_INVALID_HANDLE, CU(cuModuleUnload)(handle));
  FAILS(CUDA_ERROR_INVALID_HANDLE, launch(nothing, 1, 1, nullptr));
  int value = 0;
  FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuMemcpyDtoH_v2)(&value, counter, 4));
  OK(CU(cuCtxSynchronize)());
}

TEST("attributes and parameters of functions") {
  PrimaryContext context;
  KernelModule module;
  const auto get = [&](const char* name, CUfunction_attribute attribute) {
    int value = -99;
    OK(CU(cuFuncGetAttribute)(&value, attribute, module.function(name)));
    return value;
  };
  CHECK_EQ(get("add", CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK), 1024);
  CHECK_EQ(get("bounded", CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK), 128);
  CHECK_EQ(get("staticShared", CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES), 4096);
  CHECK_EQ(get("add", CU_FUNC_ATTRIBUTE_PTX_VERSION), 75);
  CHECK_EQ(get("add", CU_FUNC_ATTRIBUTE_BINARY_VERSION), 75);
  CHECK(get("add", CU_FUNC_ATTRIBUTE_NUM_REGS) > 0);
  CHECK_EQ(get("reverse", CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES), 48 * 1024);
  CUfunction reverse = module.function("reverse");
  OK(CU(cuFuncSetAttribute)(reverse, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 64 * 1024));
  CHECK_EQ(get("reverse", CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES), 64 * 1024);
  FAILS(CUDA_ERROR_INVALID_VALUE,
        CU(cuFuncSetAttribute)(reverse, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 64 * 1024 + 1));
  FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuFuncSetAttribute)(reverse, CU_FUNC_ATTRIBUTE_NUM_REGS, 3));

  // mixed(char, struct { char; double; }, short, double*)
  const size_t expected[4][2] = {{0, 1}, {8, 16}, {24, 2}, {32, 8}};
  CUfunction mixed = module.function("mixed");
  size_t offset = 0;
  size_t size = 0;
  for (size_t i = 0; i < 4; ++i) {
    OK(CU(cuFuncGetParamInfo)(mixed, i, &offset, &size));
    CHECK_EQ(offset, expected[i][0]);
    CHECK_EQ(size, expected[i][1]);
  }
  FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuFuncGetParamInfo)(mixed, 4, &offset, &size));
}

TEST("images of every kind are loaded or refused with the driver's codes") {
  PrimaryContext context;
  CUmodule module = nullptr;
  const std::string fatbin = testData("kernels.fatbin");
  OK(CU(cuModuleLoadData)(&module, fatbin.data()));
  OK(CU(cuModuleUnload)(module));
  OK(CU(cuModuleLoadFatBinary)(&module, fatbin.data()));
  OK(CU(cuModuleUnload)(module));
  OK(CU(cuModuleLoad)(&module, MILLPOND_SOFTGPU_TESTDATA "/kernels.ptx"));
  OK(CU(cuModuleUnload)(module));
  FAILS(CUDA_ERROR_FILE_NOT_FOUND, CU(cuModuleLoad)(&module, "/nonexistent"));
  FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuModuleLoadData)(&module, nullptr));
  FAILS(CUDA_ERROR_INVALID_IMAGE, CU(cuModuleLoadData)(&module, "this is no PTX"));
  FAILS(CUDA_ERROR_UNSUPPORTED_PTX_VERSION,
        CU(cuModuleLoadData)(&module, ".version 99.9\n.target sm_75\n.address_size 64\n"));
  FAILS(CUDA_ERROR_INVALID_PTX, CU(cuModuleLoadData)(&module, ".version 7.0\n.target sm_999\n.address_size 64\n"));

  std::string damaged = fatbin;
  damaged[4] = 9;
  FAILS(CUDA_ERROR_INVALID_IMAGE, CU(cuModuleLoadData)(&module, damaged.data()));
  const std::string cubin = testData("../../../../image/testdata/scale.cubin");
  FAILS(CUDA_ERROR_NO_BINARY_FOR_GPU, CU(cuModuleLoadData)(&module, cubin.data()));
  // A device of capability 7.5, which runs as much as it can of later PTX.
  const char* newer = ".version 9.0\n.target sm_90\n.address_size 64\n.visible .entry k() { ret; }\n";
  OK(CU(cuModuleLoadData)(&module, newer));
  CUfunction function = nullptr;
  OK(CU(cuModuleGetFunction)(&function, module, "k"));
  int version = 0;
  OK(CU(cuFuncGetAttribute)(&version, CU_FUNC_ATTRIBUTE_PTX_VERSION, function));
  CHECK_EQ(version, 90);
  OK(CU(cuModuleUnload)(module));
  const char* tooNew =
      ".version 9.0\n.target sm_90\n.address_size 64\n.visible .entry k() { wgmma.fence.sync.aligned; ret; }\n";
  FAILS(CUDA_ERROR_NOT_SUPPORTED, CU(cuModuleLoadData)(&module, tooNew));
  const char* unknown = ".version 9.0\n.target sm_75\n.address_size 64\n.visible .entry k() { frobnicate.u32; ret; }\n";
  FAILS(CUDA_ERROR_INVALID_PTX, CU(cuModuleLoadData)(&module, unknown));
  const char* unsupported =
      ".version 9.0\n.target sm_75\n.address_size 64\n.visible .entry k() { istypep.texref 0, 0; ret; }\n";
  FAILS(CUDA_ERROR_NOT_SUPPORTED, CU(cuModuleLoadData)(&module, unsupported));
}

TEST("a library of what is no image says so to those who use it") {
  PrimaryContext context;
  CUlibrary library = nullptr;
  OK(CU(cuLibraryLoadData)(&library, "this is no PTX", nullptr, nullptr, 0, nullptr, nullptr, 0));
  CUkernel kernel = nullptr;
  CUmodule module = nullptr;
  unsigned count = 0;
  FAILS(CUDA_ERROR_INVALID_IMAGE, CU(cuLibraryGetKernel)(&kernel, library, "k"));
  OK(CU(cuLibraryGetKernelCount)(&count, library));
  CHECK_EQ(count, 0u);
  FAILS(CUDA_ERROR_INVALID_IMAGE, CU(cuLibraryGetModule)(&module, library));
  OK(CU(cuLibraryUnload)(library));
  const char* broken = ".version 7.0\n.target sm_75\n.address_size 64\n.visible .entry k() { no such; }\n";
  OK(CU(cuLibraryLoadData)(&library, broken, nullptr, nullptr, 0, nullptr, nullptr, 0));
  FAILS(CUDA_ERROR_INVALID_PTX, CU(cuLibraryGetKernel)(&kernel, library, "k"));
  OK(CU(cuLibraryUnload)(library));
}

TEST("the just-in-time compiler's log says what is wrong") {
  PrimaryContext context;
  CUmodule module = nullptr;
  char errors[300];
  std::memset(errors, 'x', sizeof(errors));
  CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, CU_JIT_OPTIMIZATION_LEVEL};
  void* values[] = {errors, reinterpret_cast<void*>(sizeof(errors)), reinterpret_cast<void*>(3)};
  const char* bad = ".version 9.0\n.target sm_75\n.address_size 64\n.visible .entry k() { mov.u32 %r1, 5; ret; }\n";
  FAILS(CUDA_ERROR_INVALID_PTX, CU(cuModuleLoadDataEx)(&module, bad, 3, options, values));
  CHECK(std::memchr(errors, '\0', sizeof(errors)) != nullptr);
  CHECK(std::string(errors).find("%r1") != std::string::npos);
  CHECK_EQ(reinterpret_cast<size_t>(values[1]), std::strlen(errors));
  // Whatever the size of the buffer.
  std::memset(errors, 'x', sizeof(errors));
  values[1] = reinterpret_cast<void*>(5);
  FAILS(CUDA_ERROR_INVALID_PTX, CU(cuModuleLoadDataEx)(&module, bad, 3, options, values));
  CHECK_EQ(std::strlen(errors), size_t{4});
  CHECK_EQ(errors[5], 'x');
  FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuModuleLoadDataEx)(&module, bad, 3, nullptr, values));
}

TEST("a library belongs to no context and is loaded into each that uses it") {
  OK(CU(cuInit)(0));
  const std::string fatbin = testData("kernels.fatbin");
  struct {
    uint32_t magic = 0x466243B1, version = 1;
    const void* data;
    const void* auxiliary = nullptr;
  } wrapper{.data = fatbin.data()};
  CUlibraryOption option = CU_LIBRARY_BINARY_IS_PRESERVED;
  void* value = reinterpret_cast<void*>(1);
  CUlibrary library = nullptr;
  OK(CU(cuLibraryLoadData)(&library, &wrapper, nullptr, nullptr, 0, &option, &value, 1));
  CUkernel kernel = nullptr;
  OK(CU(cuLibraryGetKernel)(&kernel, library, "count"));
  FAILS(CUDA_ERROR_NOT_FOUND, CU(cuLibraryGetKernel)(&kernel, library, "nowhere"));
  OK(CU(cuLibraryGetKernel)(&kernel, library, "count"));
  const char* name = nullptr;
  OK(CU(cuKernelGetName)(&name, kernel));
  CHECK_EQ(std::string(name), std::string("count"));
  unsigned count = 0;
  OK(CU(cuLibraryGetKernelCount)(&count, library));
  std::vector<CUkernel> kernels(count);
  OK(CU(cuLibraryEnumerateKernels)(kernels.data(), count, library));
  CHECK(std::find(kernels.begin(), kernels.end(), kernel) != kernels.end());
  CUlibrary owner = nullptr;
  OK(CU(cuKernelGetLibrary)(&owner, kernel));
  CHECK(owner == library);
  size_t offset = 99;
  size_t size = 0;
  OK(CU(cuKernelGetParamInfo)(kernel, 0, &offset, &size));
  CHECK_EQ(size, size_t{4});

  // Each context has variables of its own.
  for (int device = 0; device < 2; ++device) {
    PrimaryContext context(device);
    CUdeviceptr address = 0;
    OK(CU(cuLibraryGetGlobal)(&address, nullptr, library, "counter"));
    OK(launch(reinterpret_cast<CUfunction>(kernel), 1, 1, nullptr, device + 1));
    CUfunction function = nullptr;
    OK(CU(cuKernelGetFunction)(&function, kernel));
    OK(launch(function, 1, 1, nullptr, 10));
    int counted = 0;
    OK(CU(cuMemcpyDtoH_v2)(&counted, address, 4));
    CHECK_EQ(counted, 41 + device + 1 + 10);
    CUmodule module = nullptr;
    OK(CU(cuLibraryGetModule)(&module, library));
    CUfunction same = nullptr;
    OK(CU(cuModuleGetFunction)(&same, module, "count"));
    CHECK(same == function);
  }
  OK(CU(cuLibraryUnload)(library));
  FAILS(CUDA_ERROR_INVALID_HANDLE, CU(cuLibraryUnload)(library));
  FAILS(CUDA_ERROR_INVALID_HANDLE, CU(cuKernelGetName)(&name, kernel));
  PrimaryContext context;
  CHECK_EQ(freeBytes(), kMemoryBytes);
}

TEST("attributes of a kernel are set per device and hold for its functions") {
  OK(CU(cuInit)(0));
  const std::string ptx = testData("kernels.ptx");
  CUlibrary library = nullptr;
  OK(CU(cuLibraryLoadData)(&library, ptx.c_str(), nullptr, nullptr, 0, nullptr, nullptr, 0));
  CUkernel kernel = nullptr;
  OK(CU(cuLibraryGetKernel)(&kernel, library, "reverse"));
  const auto attribute = CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
  OK(CU(cuKernelSetAttribute)(attribute, 50000, kernel, 0));
  int value = 0;
  OK(CU(cuKernelGetAttribute)(&value, attribute, kernel, 0));
  CHECK_EQ(value, 50000);
  OK(CU(cuKernelGetAttribute)(&value, attribute, kernel, 1));
  CHECK_EQ(value, 48 * 1024);
  {
    PrimaryContext context;
    CUfunction function = nullptr;
    OK(CU(cuKernelGetFunction)(&function, kernel));
    OK(CU(cuFuncGetAttribute)(&value, attribute, function));
    CHECK_EQ(value, 50000);
    OK(CU(cuKernelSetAttribute)(attribute, 60000, kernel, 0));
    OK(CU(cuFuncGetAttribute)(&value, attribute, function));
    CHECK_EQ(value, 60000);
  }
  FAILS(CUDA_ERROR_INVALID_DEVICE, CU(cuKernelGetAttribute)(&value, attribute, kernel, 5));
  OK(CU(cuLibraryUnload)(library));
}

}  // namespace
}  // namespace millpond::softgpu::testing
