// SPDX-License-Identifier: Apache-2.0
// Output of kernels and of the driver, on its way into the program's streams. The thread that reads for all others takes it;
// writing it can wait, for a lock of the program's or because a pipe is full, and so is for the call that waited.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdio>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "protocol/wire.h"

namespace millpond::client {

class DeviceText {
 public:
  static DeviceText& instance() noexcept {
    static DeviceText& text = *new DeviceText();
    return text;
  }
  void add(wire::OutputStream stream, std::span<const std::byte> text) {
    const std::lock_guard lock(mutex_);
    texts_.emplace_back(stream, std::string(reinterpret_cast<const char*>(text.data()), text.size()));
    isThere_.store(true, std::memory_order_release);
  }
  /// Writes everything received so far. Called on a thread of the program, in a call that may wait.
  void write() {
    if (isThere_.load(std::memory_order_acquire)) [[unlikely]]
      writeAll();
  }

 private:
  void writeAll() {
    const std::lock_guard turn(writing_);
    std::vector<std::pair<wire::OutputStream, std::string>> texts;
    {
      const std::lock_guard lock(mutex_);
      texts.swap(texts_);
      isThere_.store(false, std::memory_order_relaxed);
    }
    // Like the driver, writes into the program's own streams, so that the order with the program's own output is kept.
    for (const auto& [stream, text] : texts)
      std::fwrite(text.data(), 1, text.size(), stream == wire::OutputStream::kError ? stderr : stdout);
  }

  std::mutex writing_;  ///< keeps the output of several threads in order
  std::mutex mutex_;
  std::vector<std::pair<wire::OutputStream, std::string>> texts_;
  std::atomic<bool> isThere_{false};
};

}  // namespace millpond::client
