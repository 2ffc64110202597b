// SPDX-License-Identifier: Apache-2.0
// Host memory known to devices: pinned by the driver, or registered by the program.
#include "client/calls/memory/host_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>

#include "base/log.h"
#include "client/addresses/own_address.h"
#include "client/call/call.h"
#include "client/gen/api.h"
#include "client/process/client.h"
#include "client/session/restoration.h"
#include "client/state/context.h"

namespace millpond::client {
namespace {

constexpr size_t kPage = 4096;
constexpr unsigned kHostFlags = CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED;
/// Number of attempts to find an address that the worker can map. Each is this much further from the first one, whose
/// place there may be occupied by the memory of a whole device.
constexpr int kAddressAttempts = 16;
constexpr uint64_t kAddressStep = uint64_t{1} << 36;

constexpr unsigned kRegisterFlags = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP |
                                    CU_MEMHOSTREGISTER_IOMEMORY | CU_MEMHOSTREGISTER_READ_ONLY;

constexpr size_t roundUp(size_t n, size_t unit) { return (n + unit - 1) / unit * unit; }

bool isMapped(uint64_t address, uint64_t bytes) {
  const uint64_t start = address / kPage * kPage;
  return ::msync(reinterpret_cast<void*>(start), address + bytes - start, MS_ASYNC) == 0;
}

}  // namespace

CUresult awaitLandings(Call& call) {
  // Then nothing is in transit.
  if (call.session().parks() && call.session().isParked()) return CUDA_SUCCESS;
  CUresult result = CUDA_SUCCESS;
  const uint16_t before = call.context();
  Client::instance().contexts().each([&](const Context& context) {
    call.useContext(context.wireContext());
    cmd::ContextSyncReply reply{};
    const CUresult r = call.wait(cmd::ContextSync{}, reply);
    if (result == CUDA_SUCCESS) result = r;
  });
  call.useContext(before);
  return result;
}

namespace {

/// Notifies the worker that this process keeps the file, so that the session may be parked.
void keepShared(Call& call, const cmd::HostAlloc& memory) {
  cmd::HostKeep keep{};
  keep.address = memory.address;
  keep.bytes = memory.bytes;
  call.post(keep);
}

/// `bytes`, whole pages that this process and the worker map at the same address, pinned. `flags`: for the memory map.
CUresult allocateShared(Call& call, size_t bytes, unsigned flags, void** out) {
  void* failed[kAddressAttempts];
  int failures = 0;
  CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
  while (failures < kAddressAttempts) {
    // The next worker maps it at the same address, so nothing else may be there.
    void* hint = failures == 0 ? call.remote().mapped.nextPlace(bytes)
                               : static_cast<std::byte*>(failed[0]) - kAddressStep * static_cast<unsigned>(failures);
    void* place = ::mmap(hint, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (place == MAP_FAILED) break;
    cmd::HostAllocReply reply{};
    cmd::HostAlloc wire{};
    wire.bytes = bytes;
    wire.address = reinterpret_cast<uint64_t>(place);
    wire.flags = flags;
    // Files arrive consecutively on the same socket, so only one allocation at a time.
    std::lock_guard lock(call.remote().hostAllocation);
    result = call.wait(wire, reply);
    if (result == CUDA_SUCCESS) {
      auto file = call.session().receiveFile();
      if (file && ::mmap(place, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file->get(), 0) == place) {
        call.remote().memory.add(
            {OwnAddress::of(wire.address), bytes, MemoryKind::kPinnedShared, call.context(), flags, 0});
        *out = place;
        if (call.session().parks() && call.remote().files.keep(OwnAddress::of(wire.address), std::move(*file)))
          keepShared(call, wire);
        break;
      }
      log(LogLevel::Error, "pinned memory of %zu bytes could not be mapped: %s", bytes,
          file ? std::strerror(errno) : file.error().message.c_str());
      result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    failed[failures++] = place;
    if (result != CUDA_ERROR_ALREADY_MAPPED) break;
  }
  for (int i = 0; i < failures; ++i) ::munmap(failed[i], bytes);
  return result == CUDA_ERROR_ALREADY_MAPPED ? CUDA_ERROR_OUT_OF_MEMORY : result;
}

CUresult freeShared(Call& call, const MemoryRun& run) {
  if (!call.remote().memory.take(run.address)) return CUDA_ERROR_INVALID_VALUE;
  const Subject subject{Subject::Kind::kHostMemory, run.address};
  CUresult result = CUDA_SUCCESS;
  if (!endWhileParked(call.session(), std::span(&subject, 1))) {
    call.useContext(run.context);
    cmd::HostFree wire{};
    wire.address = run.address;
    cmd::HostFreeReply reply{};
    result = call.wait(wire, reply);
  }
  // After the reply, because until then the session may be parked with the memory in its journal.
  call.remote().files.drop(run.address);
  ::munmap(reinterpret_cast<void*>(run.address), run.bytes);
  return result;
}

}  // namespace

namespace api {

CUresult cuMemHostAlloc(void** pp, size_t bytesize, unsigned int Flags) noexcept {
  Call call("cuMemHostAlloc", Needs::kCurrent);
  if (const CUresult r = call.entry(); r != CUDA_SUCCESS) return r;
  if (pp == nullptr || (Flags & ~kHostFlags) != 0) return CUDA_ERROR_INVALID_VALUE;
  if (bytesize == 0) {
    *pp = nullptr;
    return CUDA_SUCCESS;
  }
  if (bytesize > SIZE_MAX - kPage) return CUDA_ERROR_OUT_OF_MEMORY;
  const size_t bytes = roundUp(bytesize, kPage);
  if (!call.session().remote()) return allocateShared(call, bytes, Flags, pp);
  void* place = call.remote().mapped.allocate(bytes);
  if (!place) return CUDA_ERROR_OUT_OF_MEMORY;
  call.remote().memory.add(
      {reinterpret_cast<uint64_t>(place), bytes, MemoryKind::kPinnedLocal, call.context(), Flags, 0});
  *pp = place;
  return CUDA_SUCCESS;
}

CUresult cuMemAllocHost_v2(void** pp, size_t bytesize) noexcept { return cuMemHostAlloc(pp, bytesize, 0); }

CUresult cuMemFreeHost(void* p) noexcept {
  Call call("cuMemFreeHost", Needs::kNothing);
  if (const CUresult r = call.entry(); r != CUDA_SUCCESS) return r;
  if (p == nullptr) return CUDA_SUCCESS;
  const auto address = reinterpret_cast<uint64_t>(p);
  const auto run = call.remote().memory.find(address);
  if (!run || run->kind == MemoryKind::kDevice || run->address != address ||
      (run->flags & (MemoryRun::kManaged | MemoryRun::kRegistered)))
    return CUDA_ERROR_INVALID_VALUE;
  if (run->kind == MemoryKind::kPinnedShared) return freeShared(call, *run);
  // Until the landings are complete, the memory must be known as a valid destination.
  const bool isMirrored = run->kind == MemoryKind::kMirrored;
  const CUresult result = isMirrored ? CUDA_SUCCESS : awaitLandings(call);
  if (!call.remote().memory.take(address)) return CUDA_ERROR_INVALID_VALUE;
  if (isMirrored) return call.remote().mapped.leave(CallSink(call), *run);
  call.remote().mapped.free(address, run->bytes);
  return result;
}

CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr* pdptr, void* p, unsigned int Flags) noexcept {
  Call call("cuMemHostGetDevicePointer_v2", Needs::kCurrent);
  if (const CUresult r = call.entry(); r != CUDA_SUCCESS) return r;
  if (pdptr == nullptr || Flags != 0) return CUDA_ERROR_INVALID_VALUE;
  const auto run = call.remote().memory.find(reinterpret_cast<uint64_t>(p));
  if (!run || run->kind == MemoryKind::kDevice) return CUDA_ERROR_INVALID_VALUE;
  if (run->kind == MemoryKind::kPinnedLocal)
    if (const CUresult r = call.remote().mapped.reach(CallSink(call), *run); r != CUDA_SUCCESS) return r;
  *pdptr = reinterpret_cast<CUdeviceptr>(p);
  return CUDA_SUCCESS;
}

CUresult cuMemHostGetFlags(unsigned int* pFlags, void* p) noexcept {
  Call call("cuMemHostGetFlags", Needs::kCurrent);
  if (const CUresult r = call.entry(); r != CUDA_SUCCESS) return r;
  const auto run = call.remote().memory.find(reinterpret_cast<uint64_t>(p));
  if (pFlags == nullptr || !run || run->kind == MemoryKind::kDevice) return CUDA_ERROR_INVALID_VALUE;
  *pFlags = (run->flags & MemoryRun::kOfProgram) | CU_MEMHOSTALLOC_DEVICEMAP;
  return CUDA_SUCCESS;
}

CUresult cuMemHostRegister_v2(void* p, size_t bytesize, unsigned int Flags) noexcept {
  Call call("cuMemHostRegister_v2", Needs::kCurrent);
  if (const CUresult r = call.entry(); r != CUDA_SUCCESS) return r;
  const auto address = reinterpret_cast<uint64_t>(p);
  if (p == nullptr || bytesize == 0 || bytesize > UINT64_MAX - address) return CUDA_ERROR_INVALID_VALUE;
  if (Flags & ~kRegisterFlags) return CUDA_ERROR_INVALID_VALUE;
  if (Flags & CU_MEMHOSTREGISTER_IOMEMORY) {
    static std::atomic<bool> said{false};
    logOnce(said, LogLevel::Warn, "cuMemHostRegister: the memory of another device of this host cannot be reached");
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  if (!isMapped(address, bytesize)) return CUDA_ERROR_INVALID_VALUE;
  const MemoryRun run{address, bytesize, MemoryKind::kPinnedLocal, call.context(), Flags | MemoryRun::kRegistered, 0};
  return call.remote().memory.addApart(run) ? CUDA_SUCCESS : CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
}

CUresult cuMemHostUnregister(void* p) noexcept {
  Call call("cuMemHostUnregister", Needs::kNothing);
  if (const CUresult r = call.entry(); r != CUDA_SUCCESS) return r;
  if (p == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto address = reinterpret_cast<uint64_t>(p);
  const auto run = call.remote().memory.find(address);
  if (!run || run->address != address || !(run->flags & MemoryRun::kRegistered))
    return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
  // Until the landings are complete, the memory must be known as a valid destination.
  const bool isMirrored = run->kind == MemoryKind::kMirrored;
  const CUresult result = isMirrored || !call.remote().landings.any() ? CUDA_SUCCESS : awaitLandings(call);
  if (!call.remote().memory.take(address)) return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
  return isMirrored ? call.remote().mapped.leave(CallSink(call), *run) : result;
}

}  // namespace api
}  // namespace millpond::client
