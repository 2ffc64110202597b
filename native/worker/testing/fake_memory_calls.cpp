// SPDX-License-Identifier: Apache-2.0
#include <sys/mman.h>
#include <unistd.h>

#include <memory>

#include "testing/check.h"
#include "worker/testing/fake_calls.h"
#include "worker/testing/fake_driver.h"

namespace millpond::worker {

/// Device memory, its mappings, arrays and registered memory of the host.
struct FakeMemoryCalls : FakeCalls {
  static CUresult granularity(size_t* out, const CUmemAllocationProp*, CUmemAllocationGranularity_flags) {
    return *out = kGranule, CUDA_SUCCESS;
  }
  static CUresult addressReserve(CUdeviceptr* out, size_t bytes, size_t, CUdeviceptr hint, unsigned long long) {
    if (const CUresult rc = d().failure("cuMemAddressReserve")) return rc;
    void* place = ::mmap(host(hint), bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (place == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
    Lock lock(d().mutex_);
    *out = reinterpret_cast<CUdeviceptr>(place);
    d().reservations_[*out] = bytes;
    return CUDA_SUCCESS;
  }
  static CUresult create(CUmemGenericAllocationHandle* out, size_t bytes, const CUmemAllocationProp* prop,
                         unsigned long long) {
    if (const CUresult rc = d().failure("cuMemCreate")) return rc;
    Lock lock(d().mutex_);
    const auto device = static_cast<unsigned>(prop->location.id);
    if (bytes == 0 || bytes % kGranule || device >= d().devices_) return CUDA_ERROR_INVALID_VALUE;
    const bool isForTiles = (prop->allocFlags.usage & CU_MEM_CREATE_USAGE_TILE_POOL) != 0;
    if (isForTiles && prop->requestedHandleTypes) return CUDA_ERROR_INVALID_VALUE;
    if (bytes > d().memoryBytes_ - d().used_[device]) return CUDA_ERROR_OUT_OF_MEMORY;
    d().used_[device] += bytes;
    *out = d().nextPhysical_++;
    d().physical_[*out] = {device, bytes, 1};
    return CUDA_SUCCESS;
  }
  static void dropPhysical(CUmemGenericAllocationHandle memory) {
    const auto found = d().physical_.find(memory);
    CHECK(found != d().physical_.end());
    if (--found->second.references) return;
    d().used_[found->second.device] -= found->second.bytes;
    d().physical_.erase(found);
  }
  static CUresult release(CUmemGenericAllocationHandle memory) {
    Lock lock(d().mutex_);
    dropPhysical(memory);
    return CUDA_SUCCESS;
  }
  /// A file that names its memory.
  static CUresult exportFile(void* out, CUmemGenericAllocationHandle memory, CUmemAllocationHandleType,
                             unsigned long long) {
    const int file = ::memfd_create("fake-memory", MFD_CLOEXEC);
    CHECK(file >= 0);
    CHECK_EQ(::pwrite(file, &memory, sizeof memory, 0), static_cast<ssize_t>(sizeof memory));
    return *static_cast<int*>(out) = file, CUDA_SUCCESS;
  }
  static CUresult importFile(CUmemGenericAllocationHandle* out, void* file, CUmemAllocationHandleType) {
    if (const CUresult rc = d().failure("cuMemImportFromShareableHandle")) return rc;
    Lock lock(d().mutex_);
    CHECK_EQ(::pread(static_cast<int>(reinterpret_cast<intptr_t>(file)), out, sizeof *out, 0),
             static_cast<ssize_t>(sizeof *out));
    const auto physical = d().physical_.find(*out);
    if (physical == d().physical_.end()) return CUDA_ERROR_INVALID_VALUE;
    ++physical->second.references;
    return CUDA_SUCCESS;
  }
  static CUresult retain(CUmemGenericAllocationHandle* out, void* address) {
    Lock lock(d().mutex_);
    const auto mapping = d().mappings_.find(reinterpret_cast<CUdeviceptr>(address));
    CHECK(mapping != d().mappings_.end());
    *out = mapping->second.memory;
    ++d().physical_.find(*out)->second.references;
    return CUDA_SUCCESS;
  }
  static CUresult map(CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle memory,
                      unsigned long long) {
    if (const CUresult rc = d().failure("cuMemMap")) return rc;
    Lock lock(d().mutex_);
    auto reserved = d().reservations_.upper_bound(address);
    CHECK(reserved != d().reservations_.begin());
    --reserved;
    CHECK(address % kGranule == 0 || address % 4096 == 0);
    CHECK(address + bytes <= reserved->first + reserved->second);
    const auto physical = d().physical_.find(memory);
    CHECK(physical != d().physical_.end() && physical->second.bytes == bytes && offset == 0);
    // Nothing may be mapped there.
    const auto next = d().mappings_.lower_bound(address);
    CHECK(next == d().mappings_.end() || next->first >= address + bytes);
    if (next != d().mappings_.begin()) CHECK(std::prev(next)->first + std::prev(next)->second.bytes <= address);
    ++physical->second.references;
    d().mappings_[address] = {bytes, memory, false};
    return CUDA_SUCCESS;
  }
  static CUresult addressFree(CUdeviceptr address, size_t bytes) {
    Lock lock(d().mutex_);
    const auto reserved = d().reservations_.find(address);
    CHECK(reserved != d().reservations_.end() && reserved->second == bytes);
    const auto inside = d().mappings_.lower_bound(address);
    CHECK(inside == d().mappings_.end() || inside->first >= address + bytes);
    d().reservations_.erase(reserved);
    CHECK_EQ(::munmap(host(address), bytes), 0);
    return CUDA_SUCCESS;
  }
  /// Calls `visit` for each of the mappings that make up the range.
  template <typename Visit>
  static void eachMapping(CUdeviceptr address, size_t bytes, Visit visit) {
    for (const CUdeviceptr end = address + bytes; address < end;) {
      const auto mapping = d().mappings_.find(address);
      CHECK(mapping != d().mappings_.end() && mapping->second.bytes <= end - address);
      address += mapping->second.bytes;
      visit(mapping);
    }
  }
  static CUresult setAccess(CUdeviceptr address, size_t bytes, const CUmemAccessDesc*, size_t) {
    if (const CUresult rc = d().failure("cuMemSetAccess")) return rc;
    Lock lock(d().mutex_);
    eachMapping(address, bytes, [](auto mapping) { mapping->second.accessible = true; });
    CHECK_EQ(::mprotect(host(address), bytes, PROT_READ | PROT_WRITE), 0);
    return CUDA_SUCCESS;
  }
  static CUresult unmap(CUdeviceptr address, size_t bytes) {
    if (const CUresult rc = d().failure("cuMemUnmap")) return rc;
    Lock lock(d().mutex_);
    eachMapping(address, bytes, [](auto mapping) {
      dropPhysical(mapping->second.memory);
      d().mappings_.erase(mapping);
    });
    void* again =
        ::mmap(host(address), bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    CHECK(again == host(address));
    return CUDA_SUCCESS;
  }
  static CUresult arrayCreate(CUarray* out, const CUDA_ARRAY3D_DESCRIPTOR* wanted) {
    if (const CUresult rc = d().failure("cuArray3DCreate_v2")) return rc;
    Lock lock(d().mutex_);
    auto array = std::make_unique<FakeDriver::Array>();
    array->flags = wanted->Flags;
    *out = reinterpret_cast<CUarray>(array.get());
    d().arrays_.emplace(*out, std::move(array));
    return CUDA_SUCCESS;
  }
  static CUresult mipmappedCreate(CUmipmappedArray* out, const CUDA_ARRAY3D_DESCRIPTOR* wanted, unsigned) {
    return arrayCreate(reinterpret_cast<CUarray*>(out), wanted);
  }
  static CUresult mipmappedDestroy(CUmipmappedArray array) { return arrayDestroy(reinterpret_cast<CUarray>(array)); }
  static CUresult mipmappedRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS* out, CUmipmappedArray array, CUdevice device) {
    return arrayRequirements(out, reinterpret_cast<CUarray>(array), device);
  }
  static CUresult arrayDestroy(CUarray array) {
    Lock lock(d().mutex_);
    const auto found = d().arrays_.find(array);
    CHECK(found != d().arrays_.end());
    for (const auto& [column, memory] : found->second->tiles) dropPhysical(memory);
    d().arrays_.erase(found);
    return CUDA_SUCCESS;
  }
  static CUresult arrayRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS* out, CUarray, CUdevice) {
    if (const CUresult rc = d().failure("cuArrayGetMemoryRequirements")) return rc;
    *out = {};
    out->size = kMi;
    return CUDA_SUCCESS;
  }
  static void mapTile(FakeDriver::Array& array, const CUarrayMapInfo& entry) {
    const unsigned column = entry.subresource.sparseLevel.offsetX;
    if (const auto before = array.tiles.find(column); before != array.tiles.end()) {
      dropPhysical(before->second);
      array.tiles.erase(before);
    }
    if (entry.memOperationType != CU_MEM_OPERATION_TYPE_MAP) return;
    array.tiles.emplace(column, entry.memHandle.memHandle);
  }
  static CUresult mapArray(CUarrayMapInfo* entries, unsigned count, CUstream stream) {
    if (const CUresult rc = d().failure("cuMemMapArrayAsync")) return rc;
    Lock lock(d().mutex_);
    for (unsigned i = 0; i < count; ++i) {
      const auto array = d().arrays_.find(entries[i].resource.array);
      CHECK(array != d().arrays_.end());
      if (!(array->second->flags & CUDA_ARRAY3D_SPARSE)) return CUDA_ERROR_INVALID_VALUE;
      if (entries[i].memOperationType == CU_MEM_OPERATION_TYPE_MAP) {
        const auto physical = d().physical_.find(entries[i].memHandle.memHandle);
        CHECK(physical != d().physical_.end() && entries[i].deviceBitMask == 1u << physical->second.device);
        ++physical->second.references;
      }
      FakeDriver::Array* const target = array->second.get();
      d().issue(d().stream(stream), {{}, [target, entry = entries[i]] { mapTile(*target, entry); }});
    }
    return CUDA_SUCCESS;
  }
  static CUresult memGetInfo(size_t* available, size_t* total) {
    Lock lock(d().mutex_);
    CHECK(boundDevice != 0);
    *total = d().memoryBytes_;
    *available = d().memoryBytes_ - d().used_[boundDevice - 1];
    return CUDA_SUCCESS;
  }
  static CUresult hostRegister(void* p, size_t bytes, unsigned) {
    if (const CUresult rc = d().failure("cuMemHostRegister_v2")) return rc;
    Lock lock(d().mutex_);
    d().registered_[reinterpret_cast<uint64_t>(p)] = bytes;
    return CUDA_SUCCESS;
  }
  static CUresult hostUnregister(void* p) {
    Lock lock(d().mutex_);
    CHECK_EQ(d().registered_.erase(reinterpret_cast<uint64_t>(p)), 1u);
    return CUDA_SUCCESS;
  }
};

void fillMemoryCalls(Driver& t) {
  using C = FakeMemoryCalls;
  t.cuMemGetAllocationGranularity = &C::granularity;
  t.cuMemAddressReserve = &C::addressReserve;
  t.cuMemAddressFree = &C::addressFree;
  t.cuMemCreate = &C::create;
  t.cuMemRelease = &C::release;
  t.cuMemExportToShareableHandle = &C::exportFile;
  t.cuMemImportFromShareableHandle = &C::importFile;
  t.cuMemRetainAllocationHandle = &C::retain;
  t.cuMemMap = &C::map;
  t.cuMemSetAccess = &C::setAccess;
  t.cuMemUnmap = &C::unmap;
  t.cuArray3DCreate_v2 = &C::arrayCreate;
  t.cuArrayDestroy = &C::arrayDestroy;
  t.cuArrayGetMemoryRequirements = &C::arrayRequirements;
  t.cuMipmappedArrayCreate = &C::mipmappedCreate;
  t.cuMipmappedArrayDestroy = &C::mipmappedDestroy;
  t.cuMipmappedArrayGetMemoryRequirements = &C::mipmappedRequirements;
  t.cuMemMapArrayAsync = &C::mapArray;
  t.cuMemGetInfo_v2 = &C::memGetInfo;
  t.cuMemHostRegister_v2 = &C::hostRegister;
  t.cuMemHostUnregister = &C::hostUnregister;
}

}  // namespace millpond::worker
