// SPDX-License-Identifier: Apache-2.0
#include "client/state/context.h"

#include <thread>

#include "testing/check.h"

using namespace millpond::client;

namespace {
void* pointer(uintptr_t n) { return reinterpret_cast<void*>(n); }

struct Destroyed {
  CUcontext context;
  void* key;
  void* value;
};
std::vector<Destroyed> destroyed;
void remember(CUcontext context, void* key, void* value) { destroyed.push_back({context, key, value}); }
}  // namespace

TEST("handles exist before anybody retains them, and are found without being followed") {
  ContextTable table({3, 1}, nullptr);
  CHECK_EQ(table.primary(0)->sessionDevice(), 3);
  CHECK_EQ(table.primary(1)->wireContext(), 2);
  CHECK_EQ(table.primary(1)->device(), 1);
  CHECK(table.primary(2) == nullptr);
  CHECK(table.primary(-1) == nullptr);
  CHECK(table.find(table.primary(1)->handle()) == table.primary(1));
  CHECK(table.find(nullptr) == nullptr);
  CHECK(table.find(reinterpret_cast<CUcontext>(uintptr_t{1})) == nullptr);
  CHECK(!table.primary(0)->active());
}

TEST("a primary context is active from the first retain to the last release, or to a reset") {
  std::vector<CUdevice> ended;
  ContextTable table({0, 1}, [&](const Context& context) { ended.push_back(context.device()); });
  Context& one = *table.primary(1);
  CHECK_EQ(table.release(one), CUDA_ERROR_INVALID_CONTEXT);
  table.retain(one);
  const uint64_t id = one.id();
  CHECK_EQ(id, 1u);
  table.retain(one);
  CHECK_EQ(one.id(), id);
  CHECK_EQ(table.release(one), CUDA_SUCCESS);
  CHECK(one.active());
  CHECK_EQ(table.release(one), CUDA_SUCCESS);
  CHECK(!one.active());
  CHECK_EQ(ended.size(), 1u);

  table.retain(one);
  CHECK_EQ(one.id(), 2u);
  table.reset(one);
  CHECK(!one.active());
  CHECK_EQ(ended.size(), 2u);
  table.reset(one);  // nothing left to end
  CHECK_EQ(ended.size(), 2u);
  table.retain(one);  // two holders now, the first of which never released
  CHECK_EQ(one.id(), 3u);
  CHECK_EQ(table.release(one), CUDA_SUCCESS);
  CHECK(one.active());
  CHECK_EQ(table.release(one), CUDA_SUCCESS);
  CHECK(!one.active());
}

TEST("flags outlive the context, preferences do not") {
  ContextTable table({0}, nullptr);
  Context& context = *table.primary(0);
  context.setFlags(CU_CTX_SCHED_BLOCKING_SYNC);
  table.retain(context);
  context.cacheConfig = CU_FUNC_CACHE_PREFER_L1;
  table.release(context);
  CHECK_EQ(context.flags(), unsigned{CU_CTX_SCHED_BLOCKING_SYNC});
  CHECK_EQ(context.cacheConfig.load(), CU_FUNC_CACHE_PREFER_NONE);
}

TEST("each thread has its own stack") {
  ContextTable table({0, 1}, nullptr);
  Context* a = table.primary(0);
  Context* b = table.primary(1);
  CHECK(CurrentContext::get() == nullptr);
  CHECK(CurrentContext::pop() == nullptr);
  CurrentContext::set(nullptr);
  CurrentContext::set(a);
  CurrentContext::push(*b);
  CurrentContext::push(*b);
  std::thread([&] {
    CHECK(CurrentContext::get() == nullptr);
    CurrentContext::push(*a);
    CurrentContext::push(*b);
    CHECK(CurrentContext::get() == b);
  }).join();
  CurrentContext::set(a);  // replaces the top only
  CHECK(CurrentContext::pop() == a);
  CHECK(CurrentContext::get() == b);
  CurrentContext::set(nullptr);  // pops
  CHECK(CurrentContext::get() == a);
  CHECK(CurrentContext::pop() == a);
  CHECK(CurrentContext::get() == nullptr);
  CurrentContext::push(*a);
  CurrentContext::push(*b);
  CurrentContext::forget();
  CHECK(CurrentContext::get() == nullptr);
  CHECK(CurrentContext::pop() == nullptr);
}

TEST("storage: put, get, replace, remove, beyond the first chunk") {
  LocalStorage storage;
  void* value = nullptr;
  for (uintptr_t i = 1; i <= 100; ++i) storage.put(pointer(i), pointer(i * 2), nullptr);
  for (uintptr_t i = 1; i <= 100; ++i) {
    CHECK(storage.get(pointer(i), value));
    CHECK(value == pointer(i * 2));
  }
  CHECK(!storage.get(pointer(101), value));
  storage.put(pointer(50), pointer(7), nullptr);
  CHECK(storage.get(pointer(50), value) && value == pointer(7));
  CHECK(storage.remove(pointer(50)));
  CHECK(!storage.remove(pointer(50)));
  CHECK(!storage.get(pointer(50), value));
  CHECK_EQ(storage.takeAll().size(), 99u);
  CHECK(!storage.get(pointer(1), value));
}

TEST("the end of a context calls the destructors of what hangs on it") {
  ContextTable table({0}, nullptr);
  Context& context = *table.primary(0);
  table.retain(context);
  context.storage.put(pointer(1), pointer(10), &remember);
  context.storage.put(pointer(2), pointer(20), nullptr);
  context.storage.put(pointer(3), pointer(30), &remember);
  context.storage.remove(pointer(3));
  destroyed.clear();
  table.reset(context);
  CHECK_EQ(destroyed.size(), 1u);
  CHECK(destroyed[0].context == context.handle());
  CHECK(destroyed[0].key == pointer(1));
  CHECK(destroyed[0].value == pointer(10));
}

TEST("a reader sees a value only under its own key, whatever writers do") {
  LocalStorage storage;
  // The value of a key is always key * 1000 + something below 1000; slots change hands all the time.
  std::atomic<bool> stop{false};
  std::thread writer([&] {
    for (uintptr_t round = 0; !stop.load(); ++round) {
      const uintptr_t key = 1 + round % 5;
      storage.put(pointer(key), pointer(key * 1000 + round % 1000), nullptr);
      storage.remove(pointer(1 + (round * 3) % 5));
    }
  });
  for (uintptr_t i = 0, found = 0; found < 100000; ++i) {
    const uintptr_t key = 1 + i % 5;
    void* value = nullptr;
    if (!storage.get(pointer(key), value)) continue;
    ++found;
    CHECK_EQ(reinterpret_cast<uintptr_t>(value) / 1000, key);
  }
  stop = true;
  writer.join();
}
