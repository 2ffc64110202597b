// SPDX-License-Identifier: Apache-2.0
// The log of failed calls that programs read with cuLogs*: the last ones of the process, and the callbacks for each.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <vector>

#include "cuda/gen/cuda_api.h"

namespace millpond::client {

class CallLog {
 public:
  /// One for the process, never destroyed.
  static CallLog& instance() noexcept;
  /// In a forked child another thread of the parent may have been writing, so a new log replaces it.
  static void abandon() noexcept;

  /// Records the result of a call, calls the registered callbacks, and returns it.
  CUresult note(const char* symbol, CUresult result) noexcept;

  CUlogsCallbackHandle add(CUlogsCallback function, void* data);
  bool remove(CUlogsCallbackHandle handle);

  /// The position of the next message.
  CUlogIterator end();
  /// The messages from `from` on, one per line; the oldest are left out if there is no room for all. False if there is
  /// not even room for one. Afterwards `from` is the end.
  bool read(CUlogIterator& from, size_t room, std::string& text);

 private:
  static inline std::atomic<CallLog*> current_{nullptr};

  struct Listener {
    CUlogsCallbackHandle handle;
    CUlogsCallback function;
    void* data;
  };

  std::mutex mutex_;
  std::deque<std::string> lines_;
  CUlogIterator end_ = 0;
  std::vector<Listener> listeners_;
  uintptr_t lastHandle_ = 0;
};

/// Processes the result of every exported call.
inline CUresult told(const char* symbol, CUresult result) noexcept {
  // A query whose result is not ready is not a failure.
  if (result == CUDA_SUCCESS || result == CUDA_ERROR_NOT_READY) [[likely]]
    return result;
  return CallLog::instance().note(symbol, result);
}

}  // namespace millpond::client
