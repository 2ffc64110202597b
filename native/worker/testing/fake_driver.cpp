// SPDX-License-Identifier: Apache-2.0
#include "worker/testing/fake_driver.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <set>

#include "testing/check.h"

namespace millpond::worker {
namespace {

FakeDriver* current = nullptr;
thread_local unsigned boundDevice = 0;  // 1 + device, 0 for none

CUcontext contextOf(unsigned device) { return reinterpret_cast<CUcontext>(uintptr_t{0x1000} + device); }
std::byte* host(CUdeviceptr address) { return reinterpret_cast<std::byte*>(address); }

}  // namespace

/// The entry points. Each takes the driver's lock.
struct FakeCalls {
  using Lock = std::lock_guard<std::mutex>;
  static FakeDriver& d() {
    CHECK(current != nullptr);
    return *current;
  }

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
    return *out = contextOf(static_cast<unsigned>(device)), CUDA_SUCCESS;
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

  // Memory

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
  static CUresult arrayDestroy(CUarray array) {
    Lock lock(d().mutex_);
    const auto found = d().arrays_.find(array);
    CHECK(found != d().arrays_.end());
    for (const auto& [column, memory] : found->second->tiles) dropPhysical(memory);
    d().arrays_.erase(found);
    return CUDA_SUCCESS;
  }
  static CUresult arrayRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS* out, CUarray, CUdevice) {
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

  // Work

  static CUresult copyToDevice(CUdeviceptr to, const void* from, size_t bytes, CUstream stream) {
    if (const CUresult rc = d().failure("cuMemcpyHtoDAsync_v2")) return rc;
    Lock lock(d().mutex_);
    if (!d().isDevice(to, bytes)) return CUDA_ERROR_INVALID_VALUE;
    auto& s = d().stream(stream);
    // A real device reads registered memory when it reaches the copy; other memory is read immediately.
    if (d().isRegistered(from, bytes)) {
      d().issue(s, {{}, [=] { std::copy_n(static_cast<const std::byte*>(from), bytes, host(to)); }});
    } else {
      CHECK(bytes <= (size_t{64} << 10));
      const auto* begin = static_cast<const std::byte*>(from);
      std::vector<std::byte> taken(begin, begin + bytes);
      d().issue(s, {{}, [to, taken = std::move(taken)] { std::copy(taken.begin(), taken.end(), host(to)); }});
    }
    return CUDA_SUCCESS;
  }
  static CUresult copyFromDevice(void* to, CUdeviceptr from, size_t bytes, CUstream stream) {
    if (const CUresult rc = d().failure("cuMemcpyDtoHAsync_v2")) return rc;
    Lock lock(d().mutex_);
    if (!d().isDevice(from, bytes)) return CUDA_ERROR_INVALID_VALUE;
    d().issue(d().stream(stream), {{}, [=] { std::copy_n(host(from), bytes, static_cast<std::byte*>(to)); }});
    return CUDA_SUCCESS;
  }
  static CUresult copyOnDevice(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
    if (const CUresult rc = d().failure("cuMemcpyDtoDAsync_v2")) return rc;
    Lock lock(d().mutex_);
    if (!d().isDevice(to, bytes) || !d().isDevice(from, bytes)) return CUDA_ERROR_INVALID_VALUE;
    d().issue(d().stream(stream), {{}, [=] {
                                     if (bytes) std::memmove(host(to), host(from), bytes);
                                   }});
    return CUDA_SUCCESS;
  }
  static CUresult memset8(CUdeviceptr to, unsigned char value, size_t bytes, CUstream stream) {
    if (const CUresult rc = d().failure("cuMemsetD8Async")) return rc;
    Lock lock(d().mutex_);
    if (!d().isDevice(to, bytes)) return CUDA_ERROR_INVALID_VALUE;
    d().issue(d().stream(stream), {{}, [=] { std::fill_n(host(to), bytes, std::byte{value}); }});
    return CUDA_SUCCESS;
  }
  static CUresult streamCreate(CUstream* out, unsigned) {
    if (const CUresult rc = d().failure("cuStreamCreate")) return rc;
    Lock lock(d().mutex_);
    CHECK(boundDevice != 0);
    d().streams_.push_back(std::make_unique<FakeDriver::Stream>());
    d().streams_.back()->number = d().streams_.size();
    d().streams_.back()->device = boundDevice - 1;
    *out = reinterpret_cast<CUstream>(d().streams_.back().get());
    return CUDA_SUCCESS;
  }
  static CUresult streamDestroy(CUstream stream) {
    Lock lock(d().mutex_);
    CHECK(stream != nullptr);
    d().stream(stream).destroyed = true;  // what was issued to it still runs
    return CUDA_SUCCESS;
  }
  static CUresult launchHostFunc(CUstream, CUhostFn function, void* data) {
    d().hostFunctions_.emplace_back([driver = &d(), function, data] {
      function(data);
      ++driver->returnedHostFunctions_;
    });
    return CUDA_SUCCESS;
  }
  static CUresult streamQuery(CUstream stream) {
    if (const CUresult rc = d().failure("cuStreamQuery")) return rc;
    Lock lock(d().mutex_);
    return d().stream(stream).queue.empty() ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
  }
  static CUresult streamWaitEvent(CUstream stream, CUevent event, unsigned) {
    if (const CUresult rc = d().failure("cuStreamWaitEvent")) return rc;
    Lock lock(d().mutex_);
    auto& e = live(event);
    const uint64_t awaited = e.recorded;
    d().issue(d().stream(stream), {[&e, awaited] { return e.happened >= awaited; }, [] {}});
    return CUDA_SUCCESS;
  }
  static FakeDriver::Event& live(CUevent event) {
    auto& e = *reinterpret_cast<FakeDriver::Event*>(event);
    CHECK(!e.destroyed);
    return e;
  }
  static CUresult eventCreate(CUevent* out, unsigned) {
    if (const CUresult rc = d().failure("cuEventCreate")) return rc;
    Lock lock(d().mutex_);
    CHECK(boundDevice != 0);
    d().events_.push_back(std::make_unique<FakeDriver::Event>());
    d().events_.back()->device = boundDevice - 1;
    *out = reinterpret_cast<CUevent>(d().events_.back().get());
    return CUDA_SUCCESS;
  }
  static CUresult eventDestroy(CUevent event) {
    Lock lock(d().mutex_);
    live(event).destroyed = true;
    return CUDA_SUCCESS;
  }
  static CUresult eventRecord(CUevent event, CUstream stream) {
    if (const CUresult rc = d().failure("cuEventRecord")) return rc;
    Lock lock(d().mutex_);
    auto& e = live(event);
    auto& s = d().stream(stream);
    if (e.device != s.device) return CUDA_ERROR_INVALID_HANDLE;
    const uint64_t place = ++e.recorded;
    d().issue(s, {{}, [&e, place] { e.happened = std::max(e.happened, place); }});
    return CUDA_SUCCESS;
  }
  static CUresult eventQuery(CUevent event) {
    if (const CUresult rc = d().failure("cuEventQuery")) return rc;
    Lock lock(d().mutex_);
    const auto& e = live(event);
    return e.happened == e.recorded ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
  }

  // Modules: every image that does not begin with "bad" loads, and has a function fN with N bytes of parameters for any N.

  static FakeDriver::Module& module(void* handle) {
    auto& m = *static_cast<FakeDriver::Module*>(handle);
    CHECK(!m.unloaded);
    return m;
  }
  static CUresult load(void** out, const void* image, const char* call) {
    if (const CUresult rc = d().failure(call)) return rc;
    Lock lock(d().mutex_);
    std::string text(static_cast<const char*>(image));
    if (text.starts_with("bad")) return CUDA_ERROR_INVALID_IMAGE;
    d().modules_.push_back(std::make_unique<FakeDriver::Module>());
    d().modules_.back()->text = std::move(text);
    *out = d().modules_.back().get();
    return CUDA_SUCCESS;
  }
  static CUresult moduleLoad(CUmodule* out, const void* image, unsigned, CUjit_option*, void**) {
    return load(reinterpret_cast<void**>(out), image, "cuModuleLoadData");
  }
  static CUresult libraryLoad(CUlibrary* out, const void* image, CUjit_option*, void**, unsigned, CUlibraryOption*,
                              void**, unsigned) {
    return load(reinterpret_cast<void**>(out), image, "cuLibraryLoadData");
  }
  static CUresult unload(void* handle) {
    Lock lock(d().mutex_);
    module(handle).unloaded = true;
    return CUDA_SUCCESS;
  }
  static CUresult moduleUnload(CUmodule m) { return unload(m); }
  static CUresult libraryUnload(CUlibrary l) { return unload(l); }
  static CUresult get(void** out, void* handle, const char* name) {
    if (const CUresult rc = d().failure("cuModuleGetFunction")) return rc;
    Lock lock(d().mutex_);
    auto& m = module(handle);
    if (name[0] != 'f') return CUDA_ERROR_NOT_FOUND;
    m.functions.push_back({name, static_cast<uint32_t>(std::atoi(name + 1))});
    *out = &m.functions.back();
    return CUDA_SUCCESS;
  }
  static CUresult moduleGetFunction(CUfunction* out, CUmodule m, const char* name) {
    return get(reinterpret_cast<void**>(out), m, name);
  }
  static CUresult libraryGetKernel(CUkernel* out, CUlibrary l, const char* name) {
    return get(reinterpret_cast<void**>(out), l, name);
  }
  static CUresult kernelGetFunction(CUfunction* out, CUkernel kernel) {
    *out = reinterpret_cast<CUfunction>(kernel);
    return CUDA_SUCCESS;
  }
  static CUresult parameter(const void* function, size_t index, size_t* offset, size_t* size) {
    const auto& f = *static_cast<const FakeDriver::Function*>(function);
    if (index * 4 >= f.parameterBytes) return CUDA_ERROR_INVALID_VALUE;
    *offset = index * 4;
    *size = 4;
    return CUDA_SUCCESS;
  }
  static CUresult funcGetParamInfo(CUfunction f, size_t i, size_t* o, size_t* s) { return parameter(f, i, o, s); }
  static CUresult kernelGetParamInfo(CUkernel k, size_t i, size_t* o, size_t* s) { return parameter(k, i, o, s); }
  static CUresult record(CUfunction function, CUstream stream, unsigned attributes, void** extra) {
    if (const CUresult rc = d().failure("cuLaunchKernel")) return rc;
    Lock lock(d().mutex_);
    const auto& f = *reinterpret_cast<const FakeDriver::Function*>(function);
    FakeDriver::Launch launch{f.name, {}, d().stream(stream).number, attributes};
    if (extra) {
      CHECK(extra[0] == CU_LAUNCH_PARAM_BUFFER_POINTER && extra[2] == CU_LAUNCH_PARAM_BUFFER_SIZE);
      const auto* bytes = static_cast<const std::byte*>(extra[1]);
      launch.params.assign(bytes, bytes + *static_cast<size_t*>(extra[3]));
    }
    CHECK_EQ(launch.params.size(), f.parameterBytes);
    d().issue(d().stream(stream), {{}, [launch = std::move(launch)] { d().launches_.push_back(launch); }});
    return CUDA_SUCCESS;
  }
  static CUresult launchKernel(CUfunction f, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                               CUstream s, void**, void** extra) {
    return record(f, s, 0, extra);
  }
  static CUresult launchKernelEx(const CUlaunchConfig* config, CUfunction f, void**, void** extra) {
    return record(f, config->hStream, config->numAttrs, extra);
  }
};

FakeDriver::FakeDriver(unsigned devices, uint64_t memoryBytes) : devices_(devices), memoryBytes_(memoryBytes) {
  CHECK(current == nullptr);
  current = this;
  used_.resize(devices);
  for (unsigned i = 0; i < devices; ++i) {
    defaults_.push_back(std::make_unique<Stream>());
    defaults_.back()->device = i;
  }
}

FakeDriver::~FakeDriver() {
  for (const auto& [address, bytes] : reservations_) ::munmap(host(address), bytes);
  current = nullptr;
}

Driver FakeDriver::table() const {
  using C = FakeCalls;
  Driver t;
  t.cuDriverGetVersion = &C::driverGetVersion;
  t.cuGetExportTable = &C::getExportTable;
  t.cuDeviceGetCount = &C::deviceGetCount;
  t.cuDeviceGet = &C::deviceGet;
  t.cuDeviceGetName = &C::deviceGetName;
  t.cuDeviceGetUuid_v2 = &C::deviceGetUuid;
  t.cuDeviceTotalMem_v2 = &C::deviceTotalMem;
  t.cuDeviceGetAttribute = &C::deviceGetAttribute;
  t.cuDevicePrimaryCtxRetain = &C::primaryCtxRetain;
  t.cuDevicePrimaryCtxReset_v2 = &C::primaryCtxReset;
  t.cuCtxSetCurrent = &C::ctxSetCurrent;
  t.cuCtxCreate_v2 = &C::ctxCreate;
  t.cuCtxDestroy_v2 = &C::ctxDestroy;
  t.cuCtxGetStreamPriorityRange = &C::streamPriorityRange;
  t.cuGetErrorName = &C::getErrorName;
  t.cuGetErrorString = &C::getErrorString;
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
  t.cuMemMapArrayAsync = &C::mapArray;
  t.cuMemGetInfo_v2 = &C::memGetInfo;
  t.cuMemHostRegister_v2 = &C::hostRegister;
  t.cuMemHostUnregister = &C::hostUnregister;
  t.cuMemcpyHtoDAsync_v2 = &C::copyToDevice;
  t.cuMemcpyDtoHAsync_v2 = &C::copyFromDevice;
  t.cuMemcpyDtoDAsync_v2 = &C::copyOnDevice;
  t.cuMemsetD8Async = &C::memset8;
  t.cuStreamCreate = &C::streamCreate;
  t.cuStreamDestroy_v2 = &C::streamDestroy;
  t.cuLaunchHostFunc = &C::launchHostFunc;
  t.cuStreamQuery = &C::streamQuery;
  t.cuStreamWaitEvent = &C::streamWaitEvent;
  t.cuEventCreate = &C::eventCreate;
  t.cuEventDestroy_v2 = &C::eventDestroy;
  t.cuEventRecord = &C::eventRecord;
  t.cuEventQuery = &C::eventQuery;
  t.cuModuleLoadDataEx = &C::moduleLoad;
  t.cuLibraryLoadData = &C::libraryLoad;
  t.cuModuleUnload = &C::moduleUnload;
  t.cuLibraryUnload = &C::libraryUnload;
  t.cuModuleGetFunction = &C::moduleGetFunction;
  t.cuLibraryGetKernel = &C::libraryGetKernel;
  t.cuKernelGetFunction = &C::kernelGetFunction;
  t.cuFuncGetParamInfo = &C::funcGetParamInfo;
  t.cuKernelGetParamInfo = &C::kernelGetParamInfo;
  t.cuLaunchKernel = &C::launchKernel;
  t.cuLaunchKernelEx = &C::launchKernelEx;
  return t;
}

std::string FakeDriver::uuid(unsigned device) {
  CUuuid uuid;
  FakeCalls::deviceGetUuid(&uuid, static_cast<CUdevice>(device));
  std::string text = "GPU-";
  for (int i = 0; i < 16; ++i) {
    char hex[3];
    std::snprintf(hex, sizeof(hex), "%02x", device + 1);
    text += hex;
    if (i == 3 || i == 5 || i == 7 || i == 9) text += '-';
  }
  return text;
}

FakeDriver::Stream& FakeDriver::stream(CUstream handle) {
  if (!handle) {
    CHECK(boundDevice != 0);
    return *defaults_[boundDevice - 1];
  }
  auto& s = *reinterpret_cast<Stream*>(handle);
  CHECK(!s.destroyed);
  return s;
}

void FakeDriver::issue(Stream& stream, Op op) {
  stream.queue.push_back(std::move(op));
  if (!stream.held) pump();
}

void FakeDriver::pump() {
  for (bool some = true; some;) {
    some = false;
    const auto run = [&](Stream& s) {
      while (!s.held && !s.queue.empty() && (!s.queue.front().ready || s.queue.front().ready())) {
        s.queue.front().run();
        s.queue.pop_front();
        some = true;
      }
    };
    for (auto& s : defaults_) run(*s);
    for (auto& s : streams_) run(*s);
  }
}

bool FakeDriver::isDevice(CUdeviceptr address, uint64_t bytes) const {
  // Adjacent runs count as one for a copy.
  while (bytes) {
    auto mapping = mappings_.upper_bound(address);
    if (mapping == mappings_.begin()) return false;
    --mapping;
    const uint64_t offset = address - mapping->first;
    if (offset >= mapping->second.bytes || !mapping->second.accessible) return false;
    const uint64_t here = std::min(bytes, mapping->second.bytes - offset);
    address += here;
    bytes -= here;
  }
  return true;
}

bool FakeDriver::isRegistered(const void* p, uint64_t bytes) const {
  const auto address = reinterpret_cast<uint64_t>(p);
  auto run = registered_.upper_bound(address);
  if (run == registered_.begin()) return false;
  --run;
  return address - run->first < run->second && bytes <= run->second - (address - run->first);
}

CUresult FakeDriver::failure(const char* call) {
  std::lock_guard lock(mutex_);
  if (const auto found = next_.find(call); found != next_.end()) {
    const CUresult code = found->second.code;
    if (--found->second.times == 0) next_.erase(found);
    return code;
  }
  return always_;
}

void FakeDriver::hold(uint64_t number) {
  std::lock_guard lock(mutex_);
  (number ? *streams_.at(number - 1) : *defaults_[0]).held = true;
}

void FakeDriver::release(uint64_t number) {
  std::lock_guard lock(mutex_);
  (number ? *streams_.at(number - 1) : *defaults_[0]).held = false;
  pump();
}

void FakeDriver::step(uint64_t number, size_t n) {
  std::lock_guard lock(mutex_);
  auto& queue = (number ? *streams_.at(number - 1) : *defaults_[0]).queue;
  for (; n && !queue.empty(); --n) {
    queue.front().run();
    queue.pop_front();
  }
  pump();
}

size_t FakeDriver::waiting(uint64_t number) {
  std::lock_guard lock(mutex_);
  if (number > streams_.size()) return 0;
  return (number ? *streams_.at(number - 1) : *defaults_[0]).queue.size();
}

void FakeDriver::fail(CUresult code) {
  std::lock_guard lock(mutex_);
  always_ = code;
}

void FakeDriver::failNext(const std::string& call, CUresult code, unsigned times) {
  std::lock_guard lock(mutex_);
  next_[call] = {code, times};
}

uint64_t FakeDriver::usedBytes() {
  std::lock_guard lock(mutex_);
  uint64_t sum = 0;
  for (const uint64_t each : used_) sum += each;
  return sum;
}

size_t FakeDriver::reservations() {
  std::lock_guard lock(mutex_);
  return reservations_.size();
}
size_t FakeDriver::mappedRuns() {
  std::lock_guard lock(mutex_);
  return mappings_.size();
}

size_t FakeDriver::liveContexts() {
  std::lock_guard lock(mutex_);
  return createdContexts_ - destroyedContexts_.size();
}

size_t FakeDriver::liveEvents() {
  std::lock_guard lock(mutex_);
  return static_cast<size_t>(
      std::count_if(events_.begin(), events_.end(), [](const auto& e) { return !e->destroyed; }));
}

size_t FakeDriver::tiles() {
  std::lock_guard lock(mutex_);
  size_t sum = 0;
  for (const auto& [handle, array] : arrays_) sum += array->tiles.size();
  return sum;
}

size_t FakeDriver::registeredRuns() {
  std::lock_guard lock(mutex_);
  return registered_.size();
}

std::vector<FakeDriver::Launch> FakeDriver::launches() {
  std::lock_guard lock(mutex_);
  return launches_;
}

}  // namespace millpond::worker
