// SPDX-License-Identifier: Apache-2.0
// Reports the memory of programs to a driver that checks programs. Other drivers get no reports.
#pragma once

#include <cstdint>

#include "cuda/sanitizer_table.h"
#include "worker/device/driver.h"

namespace millpond::worker {

class Sanitizer {
 public:
  explicit Sanitizer(const Driver& driver);

  /// Whether programs are checked.
  bool isThere() const { return table_ != nullptr; }
  /// Bytes to leave unused behind each allocation.
  uint64_t redzone() const { return table_ ? table_->redzone : 0; }
  void manage(uint64_t address, uint64_t bytes) const {
    if (table_) table_->manage(address, bytes);
  }
  void allocated(uint64_t address, uint64_t bytes, const char* by) const {
    if (table_) table_->allocated(address, bytes, by);
  }
  void freed(uint64_t address, const char* by) const {
    if (table_) table_->freed(address, by);
  }
  void left(uint64_t address) const {
    if (table_) table_->left(address);
  }
  void ended() const {
    if (table_) table_->ended();
  }

 private:
  const SanitizerTable* table_ = nullptr;
};

}  // namespace millpond::worker
