// SPDX-License-Identifier: Apache-2.0
// The images of the program's modules, kept for a session that may be parked: its program may free its own memory of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>

namespace millpond::client {

class RetainedImages {
 public:
  /// Limit for the sum of all copied images.
  static constexpr size_t kMostCopiedBytes = size_t{256} << 20;

  /// Keeps an image for a module or library. An image in a file that the program has mapped, such as its own
  /// executable, is mapped from there again; others are copied. Returns false if these exceed the limit.
  bool keep(uint64_t handle, std::span<const std::byte> image);
  void drop(uint64_t handle);
  /// Empty when it is not kept. Valid until drop().
  std::span<const std::byte> find(uint64_t handle) const;
  size_t copiedBytes() const;

 private:
  struct Kept {
    std::unique_ptr<std::byte[]> copy;
    void* mapped = nullptr;
    size_t mappedBytes = 0;
    std::span<const std::byte> bytes;

    Kept() = default;
    Kept(const Kept&) = delete;
    Kept& operator=(const Kept&) = delete;
    ~Kept();
  };
  static bool map(std::span<const std::byte> image, Kept& kept);

  mutable std::mutex mutex_;
  std::map<uint64_t, Kept> images_;
  size_t copied_ = 0;
};

}  // namespace millpond::client
