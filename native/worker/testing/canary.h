// SPDX-License-Identifier: Apache-2.0
// Pages of this process, as a worker has them, that no client may read or change.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <span>

#include "testing/check.h"
#include "worker/testing/driver_guard.h"

namespace millpond::worker {

class Canary {
 public:
  static constexpr size_t kBytes = 8192;

  Canary() {
    void* place = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(place != MAP_FAILED);
    bytes_ = static_cast<std::byte*>(place);
    for (size_t at = 0; at < kBytes; at += sizeof(kWord)) std::memcpy(bytes_ + at, &kWord, sizeof(kWord));
    DriverGuard::setCanary(bytes_, kBytes);
  }
  ~Canary() {
    DriverGuard::setCanary(nullptr, 0);
    ::munmap(bytes_, kBytes);
  }
  Canary(const Canary&) = delete;
  Canary& operator=(const Canary&) = delete;

  /// An address in the middle of it.
  uint64_t address() const { return reinterpret_cast<uint64_t>(bytes_) + kBytes / 2; }
  bool isUnchanged() const {
    for (size_t at = 0; at < kBytes; at += sizeof(kWord))
      if (std::memcmp(bytes_ + at, &kWord, sizeof(kWord)) != 0) return false;
    return true;
  }
  /// Whether any part of it has been copied there.
  static bool isIn(std::span<const std::byte> bytes) {
    const auto word = std::as_bytes(std::span(&kWord, 1));
    return std::search(bytes.begin(), bytes.end(), word.begin(), word.end()) != bytes.end();
  }

 private:
  /// A pattern that no other memory contains.
  static constexpr uint64_t kWord = 0xc0'ffee'ca'4a'12'99'5d;

  std::byte* bytes_;
};

}  // namespace millpond::worker
