// SPDX-License-Identifier: Apache-2.0
// The library is compiled without exceptions, but the C++ library underneath would bring all of their
// machinery along (unwinder, demangler, locales: four fifths of the size) to throw exceptions that no code catches.
// These replacements log the error and end the process instead.
#include <bits/functexcept.h>
#include <sched.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <new>

#include "base/log.h"

namespace {
[[noreturn]] void die(const char* what) {
  millpond::log(millpond::LogLevel::Error, "internal error in the client library: %s", what);
  std::abort();
}
}  // namespace

namespace std {
void __throw_bad_alloc() { die("out of host memory"); }
void __throw_bad_array_new_length() { die("out of host memory"); }
void __throw_bad_function_call() { die("empty function called"); }
void __throw_length_error(const char* what) { die(what); }
void __throw_logic_error(const char* what) { die(what); }
void __throw_out_of_range(const char* what) { die(what); }
void __throw_out_of_range_fmt(const char* what, ...) { die(what); }
void __throw_system_error(int) { die("a lock was misused"); }
}  // namespace std

void* operator new(std::size_t size) {
  void* memory = std::malloc(size ? size : 1);
  if (!memory) die("out of host memory");
  return memory;
}
void* operator new(std::size_t size, std::align_val_t alignment) {
  const auto step = static_cast<std::size_t>(alignment);
  void* memory = std::aligned_alloc(step, (size + step - 1) / step * step);
  if (!memory) die("out of host memory");
  return memory;
}
void* operator new(std::size_t size, const std::nothrow_t&) noexcept { return std::malloc(size ? size : 1); }
void* operator new[](std::size_t size) { return operator new(size); }
void* operator new[](std::size_t size, std::align_val_t alignment) { return operator new(size, alignment); }
void* operator new[](std::size_t size, const std::nothrow_t&) noexcept { return std::malloc(size ? size : 1); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }

// The C++ ABI's entry points for local statics and thread-local objects with constructors. Those of the C++ library
// depend on exception handling, for constructors that throw.
extern "C" {

int __cxa_thread_atexit_impl(void (*destructor)(void*), void* object, void* library);
int __cxa_thread_atexit(void (*destructor)(void*), void* object, void* library);
int __cxa_thread_atexit(void (*destructor)(void*), void* object, void* library) {
  return __cxa_thread_atexit_impl(destructor, object, library);
}

// The first byte of a guard tells compiled code that the object exists; the rest is ours.
struct Guard {
  std::atomic<uint8_t> made;
  std::atomic<uint8_t> beingMade;
};

int __cxa_guard_acquire(Guard* guard);
int __cxa_guard_acquire(Guard* guard) {
  while (!guard->made.load(std::memory_order_acquire)) {
    uint8_t expected = 0;
    if (guard->beingMade.compare_exchange_strong(expected, 1)) {
      if (!guard->made.load(std::memory_order_acquire)) return 1;
      guard->beingMade.store(0);
      return 0;
    }
    // Another thread creates it, which takes microseconds and happens only once.
    ::sched_yield();
  }
  return 0;
}

void __cxa_guard_release(Guard* guard);
void __cxa_guard_release(Guard* guard) {
  guard->made.store(1, std::memory_order_release);
  guard->beingMade.store(0);
}

}  // extern "C"
