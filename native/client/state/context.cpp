// SPDX-License-Identifier: Apache-2.0
#include "client/state/context.h"

#include "base/thread_owned.h"

namespace millpond::client {

namespace {
// Records whether `below` exists, so that ordinary threads, which never push, do not create it.
[[gnu::tls_model("initial-exec")]] thread_local constinit bool hasBelow = false;

struct Stack {
  std::vector<Context*> contexts;
  ~Stack() { hasBelow = false; }
};
// The entries below the top. Created at a thread's first push onto another entry.
std::vector<Context*>& below() {
  hasBelow = true;
  return threadOwned<Stack>().contexts;
}
}  // namespace

bool isSticky(CUresult failure) {
  switch (failure) {
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_LAUNCH_TIMEOUT:
    case CUDA_ERROR_ASSERT:
    case CUDA_ERROR_HARDWARE_STACK_ERROR:
    case CUDA_ERROR_ILLEGAL_INSTRUCTION:
    case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_INVALID_ADDRESS_SPACE:
    case CUDA_ERROR_INVALID_PC:
    case CUDA_ERROR_LAUNCH_FAILED:
    case CUDA_ERROR_TENSOR_MEMORY_LEAK:
    case CUDA_ERROR_MPS_CLIENT_TERMINATED: return true;
    default: return false;
  }
}

void Context::fail(CUresult failure) {
  int32_t known = failure_.load(std::memory_order_relaxed);
  do {
    if (known != 0 && (isSticky(static_cast<CUresult>(known)) || !isSticky(failure))) return;
  } while (!failure_.compare_exchange_weak(known, failure, std::memory_order_relaxed));
}

CUresult Context::takeFailureSlowly() {
  int32_t failure = failure_.load(std::memory_order_relaxed);
  while (failure != 0 && !isSticky(static_cast<CUresult>(failure)))
    if (failure_.compare_exchange_weak(failure, 0, std::memory_order_relaxed)) break;
  return static_cast<CUresult>(failure);
}

ContextTable::ContextTable(const std::vector<uint16_t>& sessionDevices, OnEnd onEnd, uint16_t firstNumber)
    : firstNumber_(firstNumber), end_(firstNumber), onEnd_(std::move(onEnd)) {
  CUdevice device = 0;
  for (const uint16_t sessionDevice : sessionDevices) {
    const auto number = static_cast<uint16_t>(sessionDevice + 1);
    contexts_.push_back(std::make_unique<Context>(Context::Kind::kPrimary, device++, sessionDevice, number));
    byNumber_[number].store(contexts_.back().get(), std::memory_order_release);
  }
}

Context* ContextTable::create(const Context& primary, unsigned flags, bool isGreen) {
  const std::lock_guard lock(mutex_);
  uint16_t number = end_.load(std::memory_order_relaxed);
  if (number < wire::kContextLimit) {
    end_.store(static_cast<uint16_t>(number + 1), std::memory_order_release);
  } else if (!freeNumbers_.empty()) {
    number = freeNumbers_.front();
    freeNumbers_.pop_front();
  } else {
    return nullptr;
  }
  created_.push_back(
      std::make_unique<Context>(Context::Kind::kCreated, primary.device(), primary.sessionDevice(), number, isGreen));
  created_.back()->setFlags(flags);
  return created_.back().get();
}

void ContextTable::activate(Context& context) {
  const std::lock_guard lock(mutex_);
  context.retained_ = 1;
  context.id_.store(++lastId_, std::memory_order_release);
  byNumber_[context.number_].store(&context, std::memory_order_release);
}

void ContextTable::discard(Context& context) {
  const std::lock_guard lock(mutex_);
  freeNumbers_.push_back(context.number_);
}

CUresult ContextTable::attach(Context& context) {
  const std::lock_guard lock(mutex_);
  if (!context.active()) return CUDA_ERROR_INVALID_CONTEXT;
  ++context.retained_;
  return CUDA_SUCCESS;
}

CUresult ContextTable::detach(Context& context) {
  std::unique_lock lock(mutex_);
  if (!context.active() || context.retained_ == 0) return CUDA_ERROR_INVALID_CONTEXT;
  if (--context.retained_ == 0) end(context, lock);
  return CUDA_SUCCESS;
}

CUresult ContextTable::destroy(Context& context) {
  std::unique_lock lock(mutex_);
  if (context.kind() != Context::Kind::kCreated || !context.active()) return CUDA_ERROR_INVALID_CONTEXT;
  context.retained_ = 0;
  end(context, lock);
  return CUDA_SUCCESS;
}

void ContextTable::retain(Context& context) {
  const std::lock_guard lock(mutex_);
  ++context.retained_;
  if (!context.active()) context.id_.store(++lastId_, std::memory_order_release);
}

CUresult ContextTable::release(Context& context) {
  std::unique_lock lock(mutex_);
  if (context.retained_ == 0) return CUDA_ERROR_INVALID_CONTEXT;
  if (--context.retained_ == 0) end(context, lock);
  return CUDA_SUCCESS;
}

void ContextTable::reset(Context& context) {
  std::unique_lock lock(mutex_);
  end(context, lock);
}

void ContextTable::end(Context& context, std::unique_lock<std::mutex>& lock) {
  if (!context.active()) return;
  context.id_.store(0, std::memory_order_release);
  context.cacheConfig = CU_FUNC_CACHE_PREFER_NONE;
  const std::vector<LocalStorage::Entry> entries = context.storage.takeAll();
  if (onEnd_) onEnd_(context);
  context.forgetFailure();
  if (context.kind() == Context::Kind::kCreated) {
    byNumber_[context.number_].store(nullptr, std::memory_order_release);
    freeNumbers_.push_back(context.number_);
  }
  lock.unlock();
  // Destructors of other libraries, which may call the driver.
  for (const LocalStorage::Entry& entry : entries) {
    if (entry.destructor) entry.destructor(context.handle(), entry.key, entry.value);
  }
}

void CurrentContext::set(Context* context) {
  if (context) {
    top_ = context;
  } else {
    pop();
  }
}

void CurrentContext::push(Context& context) {
  if (top_) below().push_back(top_);
  top_ = &context;
}

Context* CurrentContext::pop() {
  Context* popped = top_;
  top_ = nullptr;
  if (hasBelow && !below().empty()) {
    top_ = below().back();
    below().pop_back();
  }
  return popped;
}

void CurrentContext::forget() {
  top_ = nullptr;
  if (hasBelow) below().clear();
}

}  // namespace millpond::client
