// SPDX-License-Identifier: Apache-2.0
// The driver's side of `millpond sanitize`: programs are compiled with checks, and findings are written, one per line,
// to the file that the environment names. Otherwise none of this is active.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <vector>

#include "base/json.h"
#include "cuda/sanitizer_table.h"
#include "softgpu/driver/host/configuration.h"
#include "softgpu/driver/sanitizer/allocations.h"
#include "softgpu/ptx/engine.h"

namespace millpond::softgpu {

class AddressSpace;

class Sanitizer {
 public:
  /// Null if programs are not checked.
  static Sanitizer* instance();
  /// Creates the process's instance, which is never destroyed, if anything is to be checked. To be called once.
  static void start(const Configuration& configuration);
  Sanitizer(ptx::Checks checks, int file) : checks_(checks), file_(file) {}
  ~Sanitizer();
  Sanitizer(const Sanitizer&) = delete;
  Sanitizer& operator=(const Sanitizer&) = delete;

  const ptx::Checks& checks() const { return checks_; }
  Allocations& allocations() { return allocations_; }

  /// The process to which the following refers: without it, findings cannot be linked to its calls.
  void client(uint32_t pid);
  /// Attributes the driver's following work to this call.
  void command(Call call);
  Call currentCall() const;
  void allocated(uint64_t address, uint64_t bytes, const char* by);
  /// A command has failed for which no thread of the program waits.
  void failed(const char* name, int32_t result);
  /// Bytes were moved or filled by a copy or a fill.
  void copied(uint64_t to, uint64_t from, uint64_t bytes) {
    if (checks_.initialisation) allocations_.copied(to, from, bytes);
  }
  /// A copy or a fill by the program will access this memory.
  void checkTransfer(uint64_t address, uint64_t bytes, bool isWrite);
  void filled(uint64_t address, uint64_t bytes) {
    if (checks_.initialisation) allocations_.written(address, bytes);
  }

  /// Findings of one instruction and kind are written once, and their number is updated now and then.
  void found(const ptx::Finding& finding, const AddressSpace& space, Call launch);
  /// A fault that no check has reported before.
  void faulted(std::string_view kernel, const ptx::Fault& fault, Call launch);
  /// A kernel with inserted checks was launched.
  void launched(std::string_view kernel);
  /// An image could not be loaded, so nothing in it is checked.
  void refused(std::string_view why);
  /// The allocation ends with its context.
  void left(uint64_t address);
  /// Writes the summary: the count of each finding, and leaks.
  void end();

 private:
  using Key = std::tuple<std::string, std::string, uint32_t, uint32_t, std::string, uint32_t>;
  struct Entry {
    std::string id;
    uint64_t count = 0;
    uint64_t written = 0;
  };

  /// Increments a count; returns the entry if it is to be written, which `describe` does.
  template <typename Describe>
  void count(const Key& key, Describe describe);
  void write(Json::Object line);
  /// A call, in the form in which a finding refers to it.
  Json::Object describe(Call call) const;
  Json::Object describe(const Allocation& allocation) const;
  bool isChecked(const ptx::Finding& finding) const;
  void writeLeak(const Allocation& allocation);

  const ptx::Checks checks_;
  const int file_;
  Allocations allocations_;
  std::mutex mutex_;
  std::map<Key, Entry> entries_;
  bool hasEnded_ = false;
  std::atomic<uint32_t> client_{0};
  mutable std::mutex callMutex_;
  Call call_;
};

/// One launch, which may use memory that existed when it was made.
class LaunchInspector final : public ptx::Inspector {
 public:
  LaunchInspector(Sanitizer& sanitizer, const AddressSpace& space, int device, uint64_t time, Call launch)
      : sanitizer_(sanitizer), space_(space), device_(device), time_(time), launch_(launch) {}
  Range find(uint64_t address) const override;
  void found(const ptx::Finding& finding) override { sanitizer_.found(finding, space_, launch_); }

 private:
  Sanitizer& sanitizer_;
  const AddressSpace& space_;
  const int device_;
  const uint64_t time_;
  const Call launch_;
  mutable std::mutex mutex_;
  /// The bits that the launch uses: allocations may end while it runs.
  mutable std::vector<std::shared_ptr<ptx::WrittenBytes>> held_;
};

}  // namespace millpond::softgpu
