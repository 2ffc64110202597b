// SPDX-License-Identifier: Apache-2.0
#include <cstring>
#include <map>
#include <set>
#include <thread>

#include "softgpu/driver/tests/loaded_driver.h"

namespace millpond::softgpu::testing {
namespace {

TEST("nothing works before cuInit, and the version always does") {
  int count = 0;
  FAILS(CUDA_ERROR_NOT_INITIALIZED, CU(cuDeviceGetCount)(&count));
  FAILS(CUDA_ERROR_NOT_INITIALIZED, CU(cuCtxSynchronize)());
  int version = 0;
  OK(CU(cuDriverGetVersion)(&version));
  CHECK_EQ(version, 13000);
  FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuInit)(1));
  OK(CU(cuInit)(0));
  OK(CU(cuInit)(0));
  OK(CU(cuDeviceGetCount)(&count));
  CHECK_EQ(count, 2);
}

TEST("devices have names, sizes and identities of their own") {
  OK(CU(cuInit)(0));
  std::set<std::string> uuids;
  std::set<std::string> buses;
  for (int ordinal = 0; ordinal < 2; ++ordinal) {
    CUdevice device = -1;
    OK(CU(cuDeviceGet)(&device, ordinal));
    char name[64];
    OK(CU(cuDeviceGetName)(name, sizeof(name), device));
    CHECK_EQ(std::string(name), std::string("Software GPU"));
    OK(CU(cuDeviceGetName)(name, 5, device));
    CHECK_EQ(std::string(name), std::string("Soft"));
    size_t total = 0;
    OK(CU(cuDeviceTotalMem_v2)(&total, device));
    CHECK_EQ(total, kMemoryBytes);
    CUuuid uuid;
    OK(CU(cuDeviceGetUuid_v2)(&uuid, device));
    uuids.emplace(uuid.bytes, sizeof(uuid.bytes));
    char bus[16];
    OK(CU(cuDeviceGetPCIBusId)(bus, sizeof(bus), device));
    buses.emplace(bus);
    CUdevice found = -1;
    OK(CU(cuDeviceGetByPCIBusId)(&found, bus));
    CHECK_EQ(found, device);
  }
  CHECK_EQ(uuids.size(), size_t{2});
  CHECK_EQ(buses.size(), size_t{2});
  CUdevice device = -1;
  FAILS(CUDA_ERROR_INVALID_DEVICE, CU(cuDeviceGet)(&device, 2));
  FAILS(CUDA_ERROR_INVALID_DEVICE, CU(cuDeviceGet)(&device, -1));
  FAILS(CUDA_ERROR_INVALID_DEVICE, CU(cuDeviceGetByPCIBusId)(&device, "0000:09:00.0"));
  FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuDeviceGetByPCIBusId)(&device, "nonsense"));
}

TEST("every attribute that the runtime asks for is answered, with sensible figures") {
  OK(CU(cuInit)(0));
  std::map<int, int> values;
  for (int id = 1; id < CU_DEVICE_ATTRIBUTE_MAX; ++id) {
    OK(CU(cuDeviceGetAttribute)(&values[id], static_cast<CUdevice_attribute>(id), 0));
  }
  CHECK_EQ(values[CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR], 7);
  CHECK_EQ(values[CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR], 5);
  CHECK_EQ(values[CU_DEVICE_ATTRIBUTE_WARP_SIZE], 32);
  CHECK_EQ(values[CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK], 1024);
  CHECK_EQ(values[CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK], 49152);
  CHECK_EQ(values[CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING], 1);
  CHECK_EQ(values[CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY], 0);
  CHECK_EQ(values[CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED], 1);
  CHECK(values[CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT] >= 1);
  int value = 0;
  FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuDeviceGetAttribute)(&value, CU_DEVICE_ATTRIBUTE_MAX, 0));
  FAILS(CUDA_ERROR_INVALID_DEVICE, CU(cuDeviceGetAttribute)(&value, CU_DEVICE_ATTRIBUTE_WARP_SIZE, 2));
  FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuDeviceGetAttribute)(nullptr, CU_DEVICE_ATTRIBUTE_WARP_SIZE, 0));
}

TEST("peers cannot reach each other's memory") {
  PrimaryContext context;
  int can = 1;
  OK(CU(cuDeviceCanAccessPeer)(&can, 0, 1));
  CHECK_EQ(can, 0);
  PrimaryContext other(1);
  FAILS(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED, CU(cuCtxEnablePeerAccess)(context.handle(), 0));
}

TEST("names and texts of result codes") {
  const char* text = nullptr;
  OK(CU(cuGetErrorString)(CUDA_ERROR_OUT_OF_MEMORY, &text));
  CHECK_EQ(std::string(text), std::string("out of memory"));
  OK(CU(cuGetErrorName)(CUDA_ERROR_ILLEGAL_ADDRESS, &text));
  CHECK_EQ(std::string(text), std::string("CUDA_ERROR_ILLEGAL_ADDRESS"));
  FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuGetErrorString)(static_cast<CUresult>(998), &text));
  CHECK(text == nullptr);
}

TEST("entry points are found by name and version") {
  void* function = nullptr;
  CUdriverProcAddressQueryResult status;
  OK(CU(cuGetProcAddress_v2)("cuMemAlloc", &function, 13000, 0, &status));
  CHECK(function == ::dlsym(library(), "cuMemAlloc_v2"));
  CHECK_EQ(static_cast<int>(status), static_cast<int>(CU_GET_PROC_ADDRESS_SUCCESS));
  OK(CU(cuGetProcAddress_v2)("cuCtxGetDevice", &function, 12000, 0, &status));
  CHECK(function == ::dlsym(library(), "cuCtxGetDevice"));
  OK(CU(cuGetProcAddress_v2)("cuCtxGetDevice", &function, 13000, 0, &status));
  CHECK(function == ::dlsym(library(), "cuCtxGetDevice_v2"));
  FAILS(CUDA_ERROR_NOT_FOUND, CU(cuGetProcAddress_v2)("cuNoSuchThing", &function, 13000, 0, &status));
  CHECK(function == nullptr);
  CHECK_EQ(static_cast<int>(status), static_cast<int>(CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND));
  FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuGetProcAddress_v2)("cuInit", &function, 13010, 0, &status));
  const void* table = &function;
  CUuuid id{};
  FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuGetExportTable)(&table, &id));
  CHECK(table == nullptr);
}

}  // namespace
}  // namespace millpond::softgpu::testing
