// SPDX-License-Identifier: Apache-2.0
// Memory of other processes that this one has open. Callers hold `mutex`, so that commands reach the worker in the same
// order.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <vector>

#include "cuda/gen/cuda_api.h"

namespace millpond::client {

class OpenedMemory {
 public:
  struct Entry {
    CUipcMemHandle handle;
    CUdeviceptr address = 0;
    uint16_t context = 0;  ///< the one in which it was opened
    unsigned uses = 0;     ///< how often it was opened and not closed
  };

  std::mutex mutex;

  Entry* find(const CUipcMemHandle& handle) {
    return findIf([&](const Entry& each) { return std::memcmp(&each.handle, &handle, sizeof handle) == 0; });
  }
  Entry* find(CUdeviceptr address) {
    return findIf([&](const Entry& each) { return each.address == address; });
  }
  void add(const Entry& entry) { entries_.push_back(entry); }
  void remove(CUdeviceptr address) {
    std::erase_if(entries_, [&](const Entry& each) { return each.address == address; });
  }
  /// Forgets the memory opened in a context.
  void forget(uint16_t context) {
    std::erase_if(entries_, [&](const Entry& each) { return each.context == context; });
  }

 private:
  template <typename Is>
  Entry* findIf(Is is) {
    const auto found = std::find_if(entries_.begin(), entries_.end(), is);
    return found == entries_.end() ? nullptr : &*found;
  }

  std::vector<Entry> entries_;
};

}  // namespace millpond::client
