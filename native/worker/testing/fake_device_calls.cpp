// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <cstring>

#include "testing/check.h"
#include "worker/testing/fake_calls.h"
#include "worker/testing/fake_driver.h"

namespace millpond::worker {

/// Devices, contexts, and calls about the driver as a whole.
struct FakeDeviceCalls : FakeCalls {
  static CUcontext contextOf(unsigned device) { return reinterpret_cast<CUcontext>(uintptr_t{0x1000} + device); }
  static CUresult driverGetVersion(int* v) { return *v = 13000, CUDA_SUCCESS; }
  static CUresult getExportTable(const void** table, const CUuuid* id) {
    const bool isKnown = std::memcmp(id->bytes, kSanitizerTableId, sizeof(id->bytes)) == 0 && d().checks_ != nullptr;
    return isKnown ? (*table = d().checks_, CUDA_SUCCESS) : CUDA_ERROR_INVALID_VALUE;
  }
  static CUresult deviceGetCount(int* n) { return *n = static_cast<int>(d().devices_), CUDA_SUCCESS; }
  static CUresult deviceGet(CUdevice* out, int ordinal) {
    if (ordinal < 0 || static_cast<unsigned>(ordinal) >= d().devices_) return CUDA_ERROR_INVALID_DEVICE;
    return *out = ordinal, CUDA_SUCCESS;
  }
  static CUresult deviceGetName(char* name, int room, CUdevice) {
    std::snprintf(name, static_cast<size_t>(room), "Fake GPU");
    return CUDA_SUCCESS;
  }
  static CUresult deviceGetUuid(CUuuid* out, CUdevice device) {
    std::memset(out, device + 1, sizeof(*out));
    return CUDA_SUCCESS;
  }
  static CUresult deviceTotalMem(size_t* bytes, CUdevice) { return *bytes = d().memoryBytes_, CUDA_SUCCESS; }
  static CUresult deviceGetAttribute(int* value, CUdevice_attribute id, CUdevice) {
    const bool isPageable = id == CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS;
    return *value = isPageable ? d().reachesPageableMemory_ : static_cast<int>(id), CUDA_SUCCESS;
  }
  static CUresult primaryCtxReset(CUdevice) { return d().failure("cuDevicePrimaryCtxReset_v2"); }
  static CUresult primaryCtxRetain(CUcontext* out, CUdevice device) {
    ++d().primaryContexts_;
    return *out = contextOf(static_cast<unsigned>(device)), CUDA_SUCCESS;
  }
  static CUresult primaryCtxRelease(CUdevice) {
    CHECK(d().primaryContexts_-- > 0);
    return CUDA_SUCCESS;
  }
  static CUresult ctxSetCurrent(CUcontext context) {
    CHECK(!d().destroyedContexts_.contains(context));
    boundDevice = context ? static_cast<unsigned>(reinterpret_cast<uintptr_t>(context) - 0x1000) % 0x100 + 1 : 0;
    return CUDA_SUCCESS;
  }
  static CUresult ctxCreate(CUcontext* out, unsigned, CUdevice device) {
    if (const CUresult rc = d().failure("cuCtxCreate_v2")) return rc;
    Lock lock(d().mutex_);
    const uintptr_t number = 0x1000 + 0x100 * ++d().createdContexts_ + static_cast<unsigned>(device);
    *out = reinterpret_cast<CUcontext>(number);
    return ctxSetCurrent(*out);
  }
  static CUresult ctxDestroy(CUcontext context) {
    CHECK(d().destroyedContexts_.insert(context).second);
    return CUDA_SUCCESS;
  }
  static CUresult streamPriorityRange(int* least, int* greatest) { return *least = 0, *greatest = -5, CUDA_SUCCESS; }
  static CUresult getErrorName(CUresult code, const char** name) {
    return *name = code == CUDA_SUCCESS ? "CUDA_SUCCESS" : "CUDA_ERROR_OF_SOME_KIND", CUDA_SUCCESS;
  }
  static CUresult getErrorString(CUresult, const char** text) { return *text = "some text", CUDA_SUCCESS; }
};

void fillDeviceCalls(Driver& t) {
  using C = FakeDeviceCalls;
  t.cuDriverGetVersion = &C::driverGetVersion;
  t.cuGetExportTable = &C::getExportTable;
  t.cuDeviceGetCount = &C::deviceGetCount;
  t.cuDeviceGet = &C::deviceGet;
  t.cuDeviceGetName = &C::deviceGetName;
  t.cuDeviceGetUuid_v2 = &C::deviceGetUuid;
  t.cuDeviceTotalMem_v2 = &C::deviceTotalMem;
  t.cuDeviceGetAttribute = &C::deviceGetAttribute;
  t.cuDevicePrimaryCtxRetain = &C::primaryCtxRetain;
  t.cuDevicePrimaryCtxRelease_v2 = &C::primaryCtxRelease;
  t.cuDevicePrimaryCtxReset_v2 = &C::primaryCtxReset;
  t.cuCtxSetCurrent = &C::ctxSetCurrent;
  t.cuCtxCreate_v2 = &C::ctxCreate;
  t.cuCtxDestroy_v2 = &C::ctxDestroy;
  t.cuCtxGetStreamPriorityRange = &C::streamPriorityRange;
  t.cuGetErrorName = &C::getErrorName;
  t.cuGetErrorString = &C::getErrorString;
}

}  // namespace millpond::worker
