// SPDX-License-Identifier: Apache-2.0
// Device memory without an address: what cuMemCreate makes and cuMemMap maps, perhaps at several places.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>

#include "base/result.h"
#include "base/unique_fd.h"
#include "softgpu/driver/model/device.h"

namespace millpond::softgpu {

/// A file in memory, cut into extents. One per device, since a process has a limited number of file
/// descriptors.
class PhysicalStore {
 public:
  explicit PhysicalStore(Device& device) : device_(device) {}

  /// An offset in the file with room for `bytes`, which are charged to the device. Zeroed. `bytes` is a multiple of the
  /// allocation granularity. None if the device has no memory left.
  std::optional<uint64_t> allocate(uint64_t bytes);
  void release(uint64_t offset, uint64_t bytes);
  /// The same for an extent that other processes may map: it is never reused.
  void abandon(uint64_t bytes) { device_.release(bytes); }
  int fd() const { return file_.get(); }

 private:
  bool open();

  Device& device_;
  std::mutex mutex_;
  UniqueFd file_;
  uint64_t size_ = 0;
  std::map<uint64_t, uint64_t> free_;  // offset to length, never adjacent
};

/// An extent of a store, freed at the end of its life, or one that belongs to another process.
class PhysicalMemory {
 public:
  PhysicalMemory(PhysicalStore& store, Device& device, uint64_t offset, uint64_t bytes, bool isShareable)
      : store_(&store), device_(device), offset_(offset), bytes_(bytes), isShareable_(isShareable) {}
  PhysicalMemory(UniqueFd file, Device& device, uint64_t offset, uint64_t bytes)
      : file_(std::move(file)), device_(device), offset_(offset), bytes_(bytes) {}
  ~PhysicalMemory();
  PhysicalMemory(const PhysicalMemory&) = delete;
  PhysicalMemory& operator=(const PhysicalMemory&) = delete;

  Device& device() const { return device_; }
  int fd() const { return store_ ? store_->fd() : file_.get(); }
  uint64_t offset() const { return offset_; }
  uint64_t bytes() const { return bytes_; }
  /// Whether it was created for other processes, too.
  bool isShareable() const { return isShareable_; }

  /// A file through which another process finds the extent; none if the system has no descriptors left.
  UniqueFd share();
  /// The extent behind such a file; null for any other file. `device`: finds one by its ordinal.
  static std::shared_ptr<PhysicalMemory> open(int file, const std::function<Device*(int)>& device);

 private:
  PhysicalStore* const store_ = nullptr;
  const UniqueFd file_;  ///< instead of the store
  Device& device_;
  const uint64_t offset_;
  const uint64_t bytes_;
  const bool isShareable_ = false;
  std::atomic<bool> wasShared_ = false;
};

}  // namespace millpond::softgpu
