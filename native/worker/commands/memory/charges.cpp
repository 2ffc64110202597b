// SPDX-License-Identifier: Apache-2.0
#include "worker/commands/memory/charges.h"

#include <algorithm>

#include "base/log.h"
#include "base/size_text.h"

namespace millpond::worker {
namespace {

/// A driver rounds its heaps up.
constexpr uint64_t kHeapMargin = uint64_t{2} << 20;

uint64_t beyond(uint64_t value, uint64_t usual) {
  const uint64_t more = value > usual ? value - usual : 0;
  return more == 0 ? 0 : more > UINT64_MAX - kHeapMargin ? UINT64_MAX : more + kHeapMargin;
}

}  // namespace

Charges::Charges(SessionCore& session, Budgets& budgets, ClaimCounts& counts)
    : SessionPart(session), budgets_(budgets), counts_(counts), charged_(budgets.all()) {
  for (const auto& device : devices_.all()) costs_.push_back(device.costs);
}

void Charges::drop(Of what, uint64_t number) {
  charged_.drop(what, number);
  budgets_.publish();
}

bool Charges::charge(Of what, uint64_t number, uint16_t context, uint64_t bytes, const char* why) {
  const size_t device = contexts_.deviceOf(context);
  const bool fits = charged_.set(what, number, device, bytes);
  if (!fits)
    log(LogLevel::Info, "%s need %s of device %zu, and the claim has %s left: out of memory", why,
        sizeText(bytes, Rounding::kUp).c_str(), device, sizeText(budgets_.at(device).left()).c_str());
  budgets_.publish(device);
  return fits;
}

CUresult Charges::context(uint32_t number, uint16_t device) {
  const uint64_t bytes = costs_[device].context + libraryBytes_;
  ImageMemory libraries;
  for (const auto& [wire, memory] : libraries_) libraries.cover(memory);
  if (charge(Of::kContext, number, static_cast<uint16_t>(device + 1), bytes, "contexts") &&
      runtime(number, device, libraries))
    return CUDA_SUCCESS;
  dropContext(number);
  budgets_.publish(device);
  return CUDA_ERROR_OUT_OF_MEMORY;
}

uint64_t Charges::retireContext(uint64_t number, uint64_t ending) {
  for (const Of what : {Of::kContext, Of::kStreams, Of::kStacks, Of::kHeap, Of::kOutput})
    charged_.retire(what, number, ending);
  // A primary context restarts, with the libraries that were in it.
  if (number > devices_.all().size())
    for (const Of what : {Of::kPrints, Of::kAllocates}) charged_.retire(what, number, ending);
  return ending;
}

void Charges::ended(uint64_t ending) {
  charged_.drop(Of::kEnding, ending);
  budgets_.publish();
}

bool Charges::runtime(uint32_t number, uint16_t device, const ImageMemory& memory) {
  const auto primary = static_cast<uint16_t>(device + 1);
  const DriverCosts& costs = costs_[device];
  return (!memory.prints || charge(Of::kPrints, number, primary, costs.prints, "kernels that print")) &&
         (!memory.allocates ||
          charge(Of::kAllocates, number, primary, costs.allocates, "kernels that allocate memory"));
}

CUresult Charges::stream() {
  const uint16_t number = session_.current().context;
  if (number == 0 || !costs_[contexts_.deviceOf(number)].any()) return CUDA_SUCCESS;
  Context& context = contexts_.at(number);
  if (context.streams < context.mostStreams) return CUDA_SUCCESS;
  const uint32_t most = context.streams + 1;
  if (!charge(Of::kStreams, number, number, most * costs_[contexts_.deviceOf(number)].stream, "streams"))
    return CUDA_ERROR_OUT_OF_MEMORY;
  context.mostStreams = most;
  return CUDA_SUCCESS;
}

CUresult Charges::stacks(uint16_t number, uint64_t bytesOfEach, const char* why) {
  const uint64_t threads = costs_[contexts_.deviceOf(number)].residentThreads;
  uint64_t bytes = 0;
  if (bytesOfEach > kUsualStack && __builtin_mul_overflow(bytesOfEach - kUsualStack, threads, &bytes))
    bytes = UINT64_MAX;
  return charge(Of::kStacks, number, number, bytes, why) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult Charges::localMemory(HandleKind kind, void* function) {
  if (contexts_.bound() == 0 || !costs_[contexts_.deviceOf(contexts_.bound())].any()) return CUDA_SUCCESS;
  int local = 0;
  const CUresult asked =
      kind == HandleKind::kFunction
          ? driver_.cuFuncGetAttribute(&local, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, static_cast<CUfunction>(function))
          : driver_.cuKernelGetAttribute(&local, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, static_cast<CUkernel>(function),
                                         devices_.all()[contexts_.deviceOf(contexts_.bound())].device);
  if (asked || local <= 0) return CUDA_SUCCESS;
  const auto localBytes = static_cast<uint64_t>(local);
  Context& context = contexts_.at(contexts_.homeOf(contexts_.bound()));
  if (localBytes <= context.localBytes) return CUDA_SUCCESS;
  if (CUresult rc = stacks(contexts_.homeOf(contexts_.bound()), std::max(localBytes, context.stackBytes),
                           "kernels with local memory"))
    return rc;
  context.localBytes = localBytes;
  return CUDA_SUCCESS;
}

CUresult Charges::setLimit(CUlimit limit, uint64_t value) {
  const uint16_t number = contexts_.homeOf(session_.current().context);
  if (number == 0 || !costs_[contexts_.deviceOf(number)].any()) return driver_.cuCtxSetLimit(limit, value);
  Context& context = contexts_.at(number);
  if (limit == CU_LIMIT_STACK_SIZE) {
    if (CUresult rc = stacks(number, std::max(value, context.localBytes), "stacks")) return rc;
    const CUresult rc = driver_.cuCtxSetLimit(limit, value);
    if (rc)
      stacks(number, std::max(context.stackBytes, context.localBytes), "stacks");
    else
      context.stackBytes = value;
    return rc;
  }
  if (limit != CU_LIMIT_MALLOC_HEAP_SIZE && limit != CU_LIMIT_PRINTF_FIFO_SIZE)
    return driver_.cuCtxSetLimit(limit, value);
  const bool isHeap = limit == CU_LIMIT_MALLOC_HEAP_SIZE;
  const Of what = isHeap ? Of::kHeap : Of::kOutput;
  size_t before = 0;
  if (CUresult rc = driver_.cuCtxGetLimit(&before, limit)) return rc;
  const uint64_t usual = isHeap ? kUsualHeap : kUsualOutput;
  const char* const why = isHeap ? "heaps of kernels" : "buffers of what kernels print";
  if (!charge(what, number, number, beyond(std::max<uint64_t>(value, before), usual), why))
    return CUDA_ERROR_OUT_OF_MEMORY;
  const CUresult rc = driver_.cuCtxSetLimit(limit, value);
  charge(what, number, number, beyond(rc ? before : value, usual), why);
  return rc;
}

CUresult Charges::measured(Of what, uint64_t number, uint16_t context, uint64_t most,
                           const std::function<CUresult()>& make, const std::function<void()>& unmake) {
  size_t before = 0, after = 0, total = 0;
  if (CUresult rc = driver_.cuMemGetInfo_v2(&before, &total)) return rc;
  if (CUresult rc = make()) return rc;
  if (CUresult rc = driver_.cuMemGetInfo_v2(&after, &total)) return rc;
  // Other sessions use the device too: a difference that is impossible for this session is due to them.
  const uint64_t less = before > after ? std::min<uint64_t>(before - after, most) : 0;
  if (charge(what, number, context, less, "objects of the driver")) return CUDA_SUCCESS;
  unmake();
  return CUDA_ERROR_OUT_OF_MEMORY;
}

// Modules

CUresult Charges::module(uint64_t wire, const ImageMemory& memory) {
  const bool isLibrary = handle::kind(wire) == HandleKind::kLibrary;
  bool fits = true;
  for (uint16_t primary = 1; fits && memory.variables != 0 && primary <= devices_.all().size(); ++primary) {
    if (!isLibrary && primary != contexts_.primaryOf(contexts_.bound())) continue;
    // A library is loaded into every context that uses it.
    const auto contexts =
        static_cast<uint64_t>(std::count_if(contexts_.all().begin(), contexts_.all().end(), [&](const Context& each) {
          return each.handle && !each.green && each.device + 1 == primary;
        }));
    uint64_t all = memory.variables;
    if (isLibrary && __builtin_mul_overflow(memory.variables, contexts, &all)) all = UINT64_MAX;
    fits = charge(Of::kModule, wire, primary, all, "variables of modules");
  }
  for (uint16_t number = 1; fits && number <= contexts_.size(); ++number) {
    const Context& context = contexts_.at(number);
    const bool isIts = isLibrary ? !context.green : number == contexts_.homeOf(contexts_.bound());
    if (context.handle && isIts) fits = runtime(number, context.device, memory);
  }
  if (fits && isLibrary) {
    libraryBytes_ += memory.variables;
    libraries_[wire] = memory;
  }
  if (!fits) charged_.drop(Of::kModule, wire);
  budgets_.publish();
  return fits ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult Charges::image(uint64_t wire, uint64_t bytes) {
  HostCharge copy(counts_);
  if (!copy.set(bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  code_[wire] = std::move(copy);
  return CUDA_SUCCESS;
}

void Charges::dropModule(uint64_t wire) {
  const uint64_t ending = newEnding();
  retireModule(wire, ending);
  ended(ending);
}

void Charges::retireModule(uint64_t wire, uint64_t ending) {
  code_.erase(wire);
  charged_.retire(Of::kModule, wire, ending);
  if (const auto library = libraries_.extract(wire)) libraryBytes_ -= library.mapped().variables;
}

}  // namespace millpond::worker
