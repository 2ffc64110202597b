// SPDX-License-Identifier: Apache-2.0
// A host's store of module images, which the workers of a tenant share: a directory of files named by their contents. Other
// tenants have other directories, whose names are secrets: an image of one tenant is not visible to another one. The workers of
// a tenant may be of several users.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/sha256.h"

namespace millpond::worker {

/// An image from the store, followed by a zero.
class StoredImage {
 public:
  StoredImage(void* place, size_t mapped) : place_(place), mapped_(mapped) {}
  StoredImage(StoredImage&& other) noexcept
      : place_(std::exchange(other.place_, nullptr)), mapped_(std::exchange(other.mapped_, 0)) {}
  StoredImage& operator=(StoredImage&& other) noexcept {
    std::swap(place_, other.place_);
    std::swap(mapped_, other.mapped_);
    return *this;
  }
  ~StoredImage();

  const std::byte* data() const { return static_cast<const std::byte*>(place_); }
  size_t bytes() const { return mapped_ - 1; }

 private:
  void* place_;
  size_t mapped_;
};

class ImageCache {
 public:
  /// `directory`: exists already and belongs to the agent; empty: nothing is ever found. `limitBytes`: for all its
  /// files together.
  ImageCache(std::string directory, uint64_t limitBytes) : directory_(std::move(directory)), limitBytes_(limitBytes) {}
  ImageCache(const ImageCache&) = delete;
  ImageCache& operator=(const ImageCache&) = delete;
  ~ImageCache();

  /// Uses the folder of a tenant from now on, created if missing; empty: images are neither found nor kept.
  void enter(const std::string& tenant);

  std::optional<StoredImage> find(const Sha256& hash, uint64_t bytes) const;
  /// Keeps an image under its own hash, in the background; the least recently used ones make room. An image larger than
  /// half of the limit is not kept, nor one whose hash is not `announced`.
  void keep(const Sha256& announced, std::vector<std::byte> image);
  /// Waits until all pending images are stored.
  void settle();
  /// Whether the image that was kept last is still being written.
  bool isStoring() const { return isStoring_.load(std::memory_order_acquire); }

 private:
  std::string path(const Sha256& hash) const { return directory_ + "/" + hex(hash); }
  void store(const Sha256& announced, std::span<const std::byte> image) const;
  void makeRoom(uint64_t bytes) const;

  std::string directory_;
  const uint64_t limitBytes_;
  std::thread storing_;
  std::atomic<bool> isStoring_{false};
};

}  // namespace millpond::worker
