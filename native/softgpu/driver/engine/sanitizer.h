// SPDX-License-Identifier: Apache-2.0
// What `millpond sanitize` asks of the driver: programs are compiled with checks, and what these find is written, line by
// line, where the environment says. Without that nothing of this exists.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>

#include "base/json.h"
#include "cuda/sanitizer_table.h"
#include "softgpu/driver/memory/allocations.h"
#include "softgpu/driver/model/configuration.h"
#include "softgpu/ptx/engine.h"

namespace millpond::softgpu {

class AddressSpace;

class Sanitizer {
 public:
  /// Null where nothing is to be checked.
  static std::unique_ptr<Sanitizer> make(const Configuration& configuration);
  Sanitizer(ptx::Checks checks, int file) : checks_(checks), file_(file) {}
  ~Sanitizer();
  Sanitizer(const Sanitizer&) = delete;
  Sanitizer& operator=(const Sanitizer&) = delete;

  const ptx::Checks& checks() const { return checks_; }
  Allocations& allocations() { return allocations_; }

  /// Findings of one instruction and kind are written once, and how many they were now and then.
  void found(const ptx::Finding& finding, const AddressSpace& space);
  /// A fault that no check has told before it.
  void faulted(std::string_view kernel, const ptx::Fault& fault);
  /// A kernel was launched with the checks in it.
  void launched(std::string_view kernel);
  /// An image could not be loaded, so that nothing of it is checked.
  void refused(std::string_view why);
  /// The allocation ends with its context.
  void left(uint64_t address);
  /// Writes what is left to say: how often each was found, what was not freed.
  void end();

 private:
  using Key = std::tuple<std::string, std::string, uint32_t, uint32_t, std::string, uint32_t>;
  struct Entry {
    std::string id;
    uint64_t count = 0;
    uint64_t written = 0;
  };

  /// Counts; the entry where it is to be written, which `describe` does.
  template <typename Describe>
  void count(const Key& key, Describe describe);
  void write(Json::Object line);
  void writeLeak(const Allocation& allocation);

  const ptx::Checks checks_;
  const int file_;
  Allocations allocations_;
  std::mutex mutex_;
  std::map<Key, Entry> entries_;
  bool hasEnded_ = false;
};

/// One launch: it may use what was there when it was made.
class LaunchInspector final : public ptx::Inspector {
 public:
  LaunchInspector(Sanitizer& sanitizer, const AddressSpace& space, int device, uint64_t time)
      : sanitizer_(sanitizer), space_(space), device_(device), time_(time) {}
  Range find(uint64_t address) const override;
  void found(const ptx::Finding& finding) override { sanitizer_.found(finding, space_); }

 private:
  Sanitizer& sanitizer_;
  const AddressSpace& space_;
  const int device_;
  const uint64_t time_;
};

}  // namespace millpond::softgpu
