// SPDX-License-Identifier: Apache-2.0
// Device memory that the driver allocates for a session is charged to its claim: before the call where the size is known;
// otherwise afterwards, by the difference in free memory, and the object is destroyed again if that exceeds the limit.
#include <algorithm>

#include "base/log.h"
#include "base/size_text.h"
#include "worker/images/image_memory.h"
#include "worker/session/executor.h"

namespace millpond::worker {
namespace {

using Of = DriverMemory::Of;

/// A driver rounds its heaps up.
constexpr uint64_t kHeapMargin = uint64_t{2} << 20;

uint64_t beyond(uint64_t value, uint64_t usual) {
  const uint64_t more = value > usual ? value - usual : 0;
  return more == 0 ? 0 : more > UINT64_MAX - kHeapMargin ? UINT64_MAX : more + kHeapMargin;
}

}  // namespace

bool Executor::charge(Of what, uint64_t number, uint16_t context, uint64_t bytes, const char* why) {
  const size_t device = deviceOf(context);
  const bool fits = driverMemory_.set(what, number, device, bytes);
  if (!fits)
    log(LogLevel::Info, "%s need %s of device %zu, and the claim has %s left: out of memory", why,
        sizeText(bytes, Rounding::kUp).c_str(), device, sizeText(budgets_[device].left()).c_str());
  updateMemoryCounter(context);
  return fits;
}

CUresult Executor::chargeContext(uint32_t number, uint16_t device) {
  const uint64_t bytes = costs_[device].context + libraryBytes_;
  return charge(Of::kContext, number, static_cast<uint16_t>(device + 1), bytes, "contexts") ? CUDA_SUCCESS
                                                                                          : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult Executor::chargeStream() {
  const uint16_t number = current_.context;
  if (number == 0 || !costs_[deviceOf(number)].any()) return CUDA_SUCCESS;
  Context& context = contexts_[number - 1u];
  if (context.streams < context.mostStreams) return CUDA_SUCCESS;
  const uint32_t most = context.streams + 1;
  if (!charge(Of::kStreams, number, number, most * costs_[deviceOf(number)].stream, "streams")) return CUDA_ERROR_OUT_OF_MEMORY;
  context.mostStreams = most;
  return CUDA_SUCCESS;
}

CUresult Executor::chargeStacks(uint16_t number, uint64_t bytesOfEach, const char* why) {
  const uint64_t threads = costs_[deviceOf(number)].residentThreads;
  uint64_t bytes = 0;
  if (bytesOfEach > kUsualStack && __builtin_mul_overflow(bytesOfEach - kUsualStack, threads, &bytes)) bytes = UINT64_MAX;
  return charge(Of::kStacks, number, number, bytes, why) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult Executor::chargeLocal(HandleKind kind, void* function) {
  if (boundContext_ == 0 || !costs_[deviceOf(boundContext_)].any()) return CUDA_SUCCESS;
  int local = 0;
  const CUresult asked =
      kind == HandleKind::kFunction
          ? driver_.cuFuncGetAttribute(&local, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, static_cast<CUfunction>(function))
          : driver_.cuKernelGetAttribute(&local, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, static_cast<CUkernel>(function),
                                         devices_.all()[deviceOf(boundContext_)].device);
  if (asked || local <= 0) return CUDA_SUCCESS;
  const auto localBytes = static_cast<uint64_t>(local);
  Context& context = contexts_[homeOf(boundContext_) - 1u];
  if (localBytes <= context.localBytes) return CUDA_SUCCESS;
  if (CUresult rc = chargeStacks(homeOf(boundContext_), std::max(localBytes, context.stackBytes), "kernels with local memory"))
    return rc;
  context.localBytes = localBytes;
  return CUDA_SUCCESS;
}

CUresult Executor::setLimit(CUlimit limit, uint64_t value) {
  const uint16_t number = homeOf(current_.context);
  if (number == 0 || !costs_[deviceOf(number)].any()) return driver_.cuCtxSetLimit(limit, value);
  Context& context = contexts_[number - 1u];
  if (limit == CU_LIMIT_STACK_SIZE) {
    if (CUresult rc = chargeStacks(number, std::max(value, context.localBytes), "stacks")) return rc;
    const CUresult rc = driver_.cuCtxSetLimit(limit, value);
    if (rc)
      chargeStacks(number, std::max(context.stackBytes, context.localBytes), "stacks");
    else
      context.stackBytes = value;
    return rc;
  }
  if (limit != CU_LIMIT_MALLOC_HEAP_SIZE && limit != CU_LIMIT_PRINTF_FIFO_SIZE) return driver_.cuCtxSetLimit(limit, value);
  const bool isHeap = limit == CU_LIMIT_MALLOC_HEAP_SIZE;
  const Of what = isHeap ? Of::kHeap : Of::kOutput;
  size_t before = 0;
  if (CUresult rc = driver_.cuCtxGetLimit(&before, limit)) return rc;
  const uint64_t usual = isHeap ? kUsualHeap : kUsualOutput;
  const char* const why = isHeap ? "heaps of kernels" : "buffers of what kernels print";
  if (!charge(what, number, number, beyond(std::max<uint64_t>(value, before), usual), why)) return CUDA_ERROR_OUT_OF_MEMORY;
  const CUresult rc = driver_.cuCtxSetLimit(limit, value);
  charge(what, number, number, beyond(rc ? before : value, usual), why);
  return rc;
}

CUresult Executor::measured(Of what, uint64_t number, uint16_t context, uint64_t most,
                            const std::function<CUresult()>& make, const std::function<void()>& unmake) {
  size_t before = 0, after = 0, total = 0;
  if (CUresult rc = driver_.cuMemGetInfo_v2(&before, &total)) return rc;
  if (CUresult rc = make()) return rc;
  if (CUresult rc = driver_.cuMemGetInfo_v2(&after, &total)) return rc;
  // Others use the device too: what is not possible is not theirs.
  const uint64_t less = before > after ? std::min<uint64_t>(before - after, most) : 0;
  if (charge(what, number, context, less, "objects of the driver")) return CUDA_SUCCESS;
  unmake();
  return CUDA_ERROR_OUT_OF_MEMORY;
}

// Modules

std::optional<uint64_t> Executor::memoryOf(const Image& image, const LinkedFatbins& fatbins) {
  std::vector<unsigned> archs;
  for (const auto& device : devices_.all()) {
    int major = 0, minor = 0;
    driver_.cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device.device);
    driver_.cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device.device);
    archs.push_back(static_cast<unsigned>(major * 10 + minor));
  }
  if (fatbins.parts().empty()) return imageMemory(std::span(image.data(), image.total), archs);
  uint64_t all = 0;
  for (const std::span<const std::byte> part : fatbins.parts()) {
    const auto bytes = imageMemory(part, archs);
    if (!bytes) return std::nullopt;
    if (__builtin_add_overflow(all, *bytes, &all)) all = UINT64_MAX;
  }
  return all;
}

CUresult Executor::chargeModule(uint64_t wire, uint64_t bytes) {
  if (bytes == 0) return CUDA_SUCCESS;
  const bool isLibrary = handle::kind(wire) == HandleKind::kLibrary;
  bool fits = true;
  for (uint16_t primary = 1; fits && primary <= devices_.all().size(); ++primary) {
    if (!isLibrary && primary != primaryOf(boundContext_)) continue;
    // A library is loaded into every context that comes to use it.
    const auto contexts = static_cast<uint64_t>(std::count_if(contexts_.begin(), contexts_.end(), [&](const Context& each) {
      return each.handle && !each.green && each.device + 1 == primary;
    }));
    uint64_t all = bytes;
    if (isLibrary && __builtin_mul_overflow(bytes, contexts, &all)) all = UINT64_MAX;
    fits = charge(Of::kModule, wire, primary, all, "variables of modules");
  }
  if (fits && isLibrary) {
    libraryBytes_ += bytes;
    libraries_[wire] = bytes;
  }
  if (!fits) driverMemory_.drop(Of::kModule, wire);
  updateMemoryCounters();
  return fits ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

void Executor::dropModuleCharge(uint64_t wire) {
  driverMemory_.drop(Of::kModule, wire);
  if (const auto library = libraries_.extract(wire)) libraryBytes_ -= library.mapped();
  updateMemoryCounters();
}

}  // namespace millpond::worker
