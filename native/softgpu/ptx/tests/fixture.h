// SPDX-License-Identifier: Apache-2.0
// Common code of the engine's tests: device memory with bounds, programs from files or text, launches.
#pragma once

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <initializer_list>
#include <map>
#include <memory>
#include <mutex>
#include <sstream>
#include <string>
#include <type_traits>
#include <vector>

#include "softgpu/ptx/engine.h"
#include "testing/check.h"

namespace millpond::softgpu::ptx::testing {

/// Device memory of a test: allocations with guards between them, so that an address one past the end is
/// outside.
class TestMemory : public MemoryMap, public DeviceAllocator {
 public:
  uint64_t allocate(uint64_t bytes, uint64_t alignment, bool writable) override {
    std::lock_guard lock(mutex_);
    auto memory = std::make_unique<std::byte[]>(bytes + alignment + 64);
    uint64_t begin = reinterpret_cast<uint64_t>(memory.get());
    begin = (begin + 32 + alignment - 1) / alignment * alignment;
    ranges_[begin] = {{begin, begin + bytes, writable}, std::move(memory)};
    return begin;
  }
  void release(uint64_t address) override {
    std::lock_guard lock(mutex_);
    CHECK_EQ(ranges_.erase(address), size_t{1});
  }
  Range find(uint64_t address) const override {
    std::lock_guard lock(mutex_);
    auto after = ranges_.upper_bound(address);
    if (after == ranges_.begin()) return {};
    const Range& range = std::prev(after)->second.range;
    return address < range.end ? range : Range{};
  }
  size_t count() const { return ranges_.size(); }

 private:
  struct Allocation {
    Range range;
    std::unique_ptr<std::byte[]> memory;
  };
  mutable std::mutex mutex_;
  std::map<uint64_t, Allocation> ranges_;
};

/// An array in device memory.
template <typename T>
class Array {
 public:
  Array(TestMemory& memory, size_t count, T fill = T{})
      : memory_(memory), count_(count), data_(reinterpret_cast<T*>(memory.allocate(count * sizeof(T), 256, true))) {
    for (size_t i = 0; i < count; ++i) data_[i] = fill;
  }
  Array(TestMemory& memory, const std::vector<T>& values) : Array(memory, values.size()) {
    std::memcpy(data_, values.data(), values.size() * sizeof(T));
  }
  ~Array() { memory_.release(address()); }
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;

  uint64_t address() const { return reinterpret_cast<uint64_t>(data_); }
  T& operator[](size_t i) { return data_[i]; }
  const T& operator[](size_t i) const { return data_[i]; }
  size_t size() const { return count_; }
  T* begin() { return data_; }
  T* end() { return data_ + count_; }

 private:
  TestMemory& memory_;
  size_t count_;
  T* data_;
};

/// Kernel parameters, laid out as a compiler would.
class Parameters {
 public:
  template <typename... T>
  explicit Parameters(const T&... values) {
    (add(values), ...);
  }
  template <typename T>
  void add(const Array<T>& array) {
    add(array.address());
  }
  template <typename T>
  requires std::is_trivially_copyable_v<T>
  void add(const T& value) {
    size_t offset = (bytes_.size() + alignof(T) - 1) / alignof(T) * alignof(T);
    bytes_.resize(offset + sizeof(T));
    std::memcpy(bytes_.data() + offset, &value, sizeof(T));
  }
  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

/// MILLPOND_PTX_KERNELS in the environment names another folder, to test kernels built with other compiler options.
inline std::string readKernelFile(const std::string& name) {
  const char* other = std::getenv("MILLPOND_PTX_KERNELS");
  std::ifstream in(std::string(other ? other : MILLPOND_PTX_KERNELS) + "/" + name);
  if (!in) ::millpond::testing::fail(__FILE__, __LINE__, "cannot read the kernel file " + name);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

inline std::shared_ptr<const Program> compileOrFail(const std::string& text) {
  Compiled compiled = compile(text);
  if (!compiled) ::millpond::testing::fail(__FILE__, __LINE__, compiled.error.message);
  return compiled.program;
}

inline Executor& executor() {
  static Executor pool(4);
  return pool;
}

/// A module in separate memory.
class Device {
 public:
  explicit Device(const std::string& text) {
    auto module = Module::create(compileOrFail(text), memory);
    if (!module) ::millpond::testing::fail(__FILE__, __LINE__, module.error().message);
    module_ = std::move(*module);
  }

  LaunchResult tryRun(const std::string& kernel, Dim3 grid, Dim3 block, const Parameters& parameters,
                      uint32_t dynamicShared = 0) {
    const Kernel* found = module_->kernel(kernel);
    if (!found) ::millpond::testing::fail(__FILE__, __LINE__, "no kernel named " + kernel);
    Launch launch;
    launch.grid = grid;
    launch.block = block;
    launch.dynamicSharedBytes = dynamicShared;
    launch.parameters = parameters.bytes();
    launch.memory = &memory;
    return executor().run(*found, launch);
  }
  void run(const std::string& kernel, Dim3 grid, Dim3 block, const Parameters& parameters, uint32_t dynamicShared = 0) {
    LaunchResult result = tryRun(kernel, grid, block, parameters, dynamicShared);
    if (!result) ::millpond::testing::fail(__FILE__, __LINE__, kernel + ": " + result.message);
  }
  Module& module() { return *module_; }

  TestMemory memory;

 private:
  std::unique_ptr<Module> module_;
};

/// A module with one kernel `k` around `body`, which sees its first parameter as %out (address) and the
/// thread's number in %tid0; registers %r, %rd, %f, %fd, %rs, %p are declared.
inline std::string kernelAround(const std::string& body, const std::string& moduleText = "") {
  return ".version 9.0\n.target sm_75\n.address_size 64\n" + moduleText +
         "\n.visible .entry k(.param .u64 p0, .param .u64 p1, .param .u64 p2)\n{\n"
         ".reg .b64 %rd<64>;\n.reg .b32 %r<64>;\n.reg .b16 %rs<64>;\n.reg .f32 %f<64>;\n.reg .f64 %fd<64>;\n"
         ".reg .pred %p<32>;\n.reg .b64 %out;\n.reg .b64 %in;\n.reg .b32 %tid0;\n.reg .b64 %slot;\n"
         "ld.param.u64 %out, [p0];\nld.param.u64 %in, [p1];\nmov.u32 %tid0, %tid.x;\n" +
         body + "\nret;\n}\n";
}

}  // namespace millpond::softgpu::ptx::testing
