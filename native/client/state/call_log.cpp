// SPDX-License-Identifier: Apache-2.0
#include "client/state/call_log.h"

#include <pthread.h>
#include <sys/time.h>

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <memory>

#include "cuda/known_error.h"

namespace millpond::client {
namespace {

/// As many as the driver keeps.
constexpr size_t kMostLines = 100;
constexpr const char* kRolledOver =
    "Log buffer has rolled over since the previous dump. The oldest messages will be missing\n";
constexpr const char* kTruncated = "Log buffer is too small for all messages. The oldest messages will be missing\n";

/// A message in the driver's format.
std::string lineOf(const std::string& message) {
  timeval now{};
  ::gettimeofday(&now, nullptr);
  tm local{};
  ::localtime_r(&now.tv_sec, &local);
  char head[64];
  std::snprintf(head, sizeof head, "[%02d:%02d:%02d.%03d][%llu][CUDA][E] ", local.tm_hour, local.tm_min, local.tm_sec,
                static_cast<int>(now.tv_usec / 1000), static_cast<unsigned long long>(::pthread_self()));
  return head + message + "\n";
}

}  // namespace

CallLog& CallLog::instance() noexcept {
  if (CallLog* known = current_.load(std::memory_order_acquire)) return *known;
  auto made = std::make_unique<CallLog>();
  CallLog* expected = nullptr;
  if (current_.compare_exchange_strong(expected, made.get(), std::memory_order_acq_rel)) return *made.release();
  return *expected;
}

void CallLog::abandon() noexcept { current_.store(std::make_unique<CallLog>().release(), std::memory_order_release); }

CUresult CallLog::note(const char* symbol, CUresult result) noexcept {
  const KnownError* known = findKnownError(result);
  const std::string message = "Returning " + std::to_string(static_cast<int>(result)) + " (" +
                              (known ? known->name : "unknown") + ") from " + symbol;
  std::vector<Listener> listeners;
  {
    const std::lock_guard lock(mutex_);
    lines_.push_back(lineOf(message));
    if (lines_.size() > kMostLines) lines_.pop_front();
    ++end_;
    listeners = listeners_;
  }
  // In the meantime a program may register other callbacks, and may change the text.
  for (const Listener& each : listeners) {
    std::string own = message;
    each.function(each.data, CU_LOG_LEVEL_ERROR, own.data(), own.size());
  }
  return result;
}

CUlogsCallbackHandle CallLog::add(CUlogsCallback function, void* data) {
  const std::lock_guard lock(mutex_);
  const auto handle = reinterpret_cast<CUlogsCallbackHandle>(++lastHandle_);
  listeners_.push_back({handle, function, data});
  return handle;
}

bool CallLog::remove(CUlogsCallbackHandle handle) {
  const std::lock_guard lock(mutex_);
  return std::erase_if(listeners_, [&](const Listener& each) { return each.handle == handle; }) != 0;
}

CUlogIterator CallLog::end() {
  const std::lock_guard lock(mutex_);
  return end_;
}

bool CallLog::read(CUlogIterator& from, size_t room, std::string& text) {
  const std::lock_guard lock(mutex_);
  // Iterators wrap around, and so do differences between them.
  const auto wanted = static_cast<CUlogIterator>(end_ - from);
  const size_t kept = std::min<size_t>(wanted, lines_.size());
  from = end_;
  text.clear();
  if (wanted == 0) return true;
  const std::string note = kept < wanted ? kRolledOver : "";
  size_t bytes = note.size();
  for (size_t i = lines_.size() - kept; i < lines_.size(); ++i) bytes += lines_[i].size();
  text = bytes <= room ? note : kTruncated;
  size_t first = lines_.size() - kept;
  if (bytes > room) {
    bytes = text.size();
    for (first = lines_.size(); first > lines_.size() - kept && bytes + lines_[first - 1].size() <= room; --first)
      bytes += lines_[first - 1].size();
  }
  if (first == lines_.size()) {
    text.clear();
    return false;
  }
  for (size_t i = first; i < lines_.size(); ++i) text += lines_[i];
  return true;
}

}  // namespace millpond::client
