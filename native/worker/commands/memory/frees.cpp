// SPDX-License-Identifier: Apache-2.0
#include "worker/commands/memory/frees.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace millpond::worker {
namespace {

constexpr size_t kFreesPerFence = 64;

}  // namespace

Frees::Frees(SessionCore& session, Budgets& budgets, DeviceMemory& memory, FunctionOrder& functions)
    : SessionPart(session), budgets_(budgets), memory_(memory), functions_(functions) {
  freed_.resize(devices_.all().size());
}

// Allocations

void Frees::later(size_t device, CUdeviceptr address) {
  freed_[device].push_back(address);
  if (freed_[device].size() >= kFreesPerFence) retire(device);
}

bool Frees::isFreed(size_t device, CUdeviceptr address) const {
  const auto has = [address](const std::vector<CUdeviceptr>& addresses) {
    return std::find(addresses.begin(), addresses.end(), address) != addresses.end();
  };
  return has(freed_[device]) ||
         std::any_of(retired_.begin(), retired_.end(), [&](const Retired& batch) { return has(batch.addresses); });
}

void Frees::retire(size_t device) {
  auto& freed = freed_[device];
  // Fences would disturb a capture.
  if (!captures_.empty() || freed.empty() || !contexts_.use(static_cast<uint16_t>(device + 1))) return;
  Retired batch{++last_, device, std::move(freed), {}};
  freed.clear();
  // After a sticky failure nothing can be recorded and nothing runs any more.
  if (marks_.fence(0, batch.fence) != CUDA_SUCCESS) batch.fence.clear();
  retired_.push_back(std::move(batch));
}

void Frees::retire() {
  for (size_t device = 0; device < freed_.size(); ++device) retire(device);
}

bool Frees::progressRetired() {
  bool some = false;
  for (auto r = retired_.begin(); r != retired_.end();) {
    if (marks_.state(r->fence) == CUDA_ERROR_NOT_READY) {
      ++r;
      continue;
    }
    const Retired batch = std::move(*r);
    r = retired_.erase(r);
    marks_.giveBack(batch.fence);
    some = true;
    if (!contexts_.use(static_cast<uint16_t>(batch.device + 1))) continue;
    for (const CUdeviceptr address : batch.addresses) memory_.free(batch.device, address);
    budgets_.publish(batch.device);
  }
  return some;
}

// Other things

void Frees::end(Ending ending) {
  std::vector<Mark> fence;
  // After a sticky failure nothing can be recorded and nothing runs any more.
  if (marks_.fence(0, fence) != CUDA_SUCCESS) fence.clear();
  end(std::move(ending), std::move(fence));
}

void Frees::end(Ending ending, std::vector<Mark> fence) {
  endings_.push_back({++last_, std::move(ending), std::move(fence)});
  progressEndings();
}

void Frees::finishFirst() {
  const NumberedEnding first = std::move(endings_.front());
  endings_.pop_front();
  marks_.giveBack(first.fence);
  first.ending.finish(first.ending.context);
}

bool Frees::progressEndings() {
  bool some = false;
  while (!endings_.empty() && marks_.state(endings_.front().fence) != CUDA_ERROR_NOT_READY) {
    if (functions_.expected() > 0 && endings_.front().ending.mayWait) break;
    finishFirst();
    some = true;
  }
  return some;
}

void Frees::settle(uint64_t address, uint64_t bytes) {
  const auto last = std::find_if(endings_.rbegin(), endings_.rend(), [&](const NumberedEnding& each) {
    return each.ending.bytes != 0 && each.ending.address < address + bytes &&
           address < each.ending.address + each.ending.bytes;
  });
  for (auto left = std::distance(last, endings_.rend()); left > 0; --left) finishFirst();
}

// Blocks of pools

bool Frees::progressBlocks() {
  std::vector<MemoryPools::Block> released;
  bool some = false;
  for (auto each = blocks_.begin(); each != blocks_.end();) {
    if (marks_.happened(each->mark) == CUDA_ERROR_NOT_READY) {
      ++each;
      continue;
    }
    marks_.giveBack(each->mark);
    memory_.pools().happened(each->number, released);
    each = blocks_.erase(each);
    some = true;
  }
  memory_.giveBack(released);
  return some;
}

void Frees::synchronisePools() {
  std::vector<MemoryPools::Block> released;
  memory_.pools().synchronise(last_, released);
  memory_.giveBack(released);
}

// Commands that wait

bool Frees::isPending(size_t device, uint64_t number, Which which) const {
  if (which == Which::kOfPoolsToo && !blocks_.empty() && blocks_.front().number <= number) return true;
  // Objects end in their order.
  return (!endings_.empty() && endings_.front().number <= number) ||
         std::any_of(retired_.begin(), retired_.end(),
                     [&](const Retired& r) { return r.device == device && r.number <= number; });
}

CUresult Frees::after(std::function<CUresult()> command, Which which) {
  const uint16_t context = session_.current().context;
  if (context == 0) return command();  // which waits for no frees
  const size_t device = contexts_.deviceOf(context);
  retire(device);
  progressRetired();
  progressEndings();
  contexts_.use(context);
  if (!isPending(device, last_, which)) return command();
  after_.push_back({session_.current(), last_, which, std::move(command)});
  return kDeferred;
}

bool Frees::progressWaiting() {
  bool some = false;
  for (auto a = after_.begin(); a != after_.end() && !session_.hasEnded();) {
    if (isPending(contexts_.deviceOf(a->request.context), a->number, a->which)) {
      ++a;
      continue;
    }
    const After due = std::move(*a);
    a = after_.erase(a);
    some = true;
    contexts_.use(due.request.context);
    session_.resume(due.request);
    session_.answer(due.request, due.run());
  }
  return some;
}

bool Frees::progress() {
  bool some = progressRetired();
  some = progressEndings() || some;
  some = progressBlocks() || some;
  some = progressWaiting() || some;
  return some;
}

void Frees::forgetContext(uint16_t number) {
  const auto forget = [number](std::vector<Mark>& fence) {
    for (Mark& mark : fence) mark.forgetContext(number);
  };
  for (Retired& each : retired_) forget(each.fence);
  for (NumberedEnding& each : endings_) {
    forget(each.fence);
    if (each.ending.context == number) each.ending.context = 0;  // its object has already ended
  }
  for (Block& each : blocks_) each.mark.forgetContext(number);
}

}  // namespace millpond::worker
