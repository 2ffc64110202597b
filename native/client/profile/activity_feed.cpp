// SPDX-License-Identifier: Apache-2.0
#include "client/profile/activity_feed.h"

#include <atomic>

#include "base/log.h"
#include "client/profile/profile_file.h"

namespace millpond::client {
namespace {

std::atomic<ActivityFeed*> known{nullptr};

}  // namespace

ActivityFeed& ActivityFeed::instance() {
  ActivityFeed* feed = known.load(std::memory_order_acquire);
  if (feed) return *feed;
  std::unique_ptr<ActivityFeed> made(new ActivityFeed());
  if (known.compare_exchange_strong(feed, made.get(), std::memory_order_acq_rel)) return *made.release();
  return *feed;
}

void ActivityFeed::abandon() { known.store(nullptr, std::memory_order_relaxed); }

CUresult ActivityFeed::begin() {
  const std::lock_guard lock(mutex_);
  isWanted_ = true;
  return worker_ ? start() : CUDA_SUCCESS;
}

CUresult ActivityFeed::start() {
  if (isOn_) return CUDA_SUCCESS;
  if (ProfileFile::isWritten()) {
    log(LogLevel::Warn, "the program's profiler does not see the GPU: 'millpond run --profile' records it");
    return CUDA_ERROR_PROFILER_ALREADY_STARTED;
  }
  if (const CUresult begun = worker_->begin(true); begun != CUDA_SUCCESS) return begun;
  hasBegun_ = true;
  isOn_ = true;
  return CUDA_SUCCESS;
}

void ActivityFeed::end() {
  const std::lock_guard lock(mutex_);
  isWanted_ = false;
  if (!isOn_) return;
  isOn_ = false;
  if (const CUresult ended = worker_->end(); ended != CUDA_SUCCESS)
    log(LogLevel::Warn, "the worker did not end its profile: %d", static_cast<int>(ended));
}

CUresult ActivityFeed::read(Each each, void* to, int64_t& lead, uint64_t& lost) {
  const std::lock_guard lock(mutex_);
  if (!hasBegun_) return CUDA_SUCCESS;
  WorkerProfile::Page page;
  // The end of the profile includes all records before it.
  bool flush = isOn_;
  lead = worker_->lead();
  do {
    if (const CUresult result = worker_->read(flush, page); result != CUDA_SUCCESS) return result;
    flush = false;
    lost = page.lost;
    if (!page.lines.empty()) each(to, page.lines.data(), page.lines.size());
  } while (page.hasMore);
  return CUDA_SUCCESS;
}

void ActivityFeed::sessionOpened(Session& session) {
  const std::lock_guard lock(mutex_);
  worker_ = std::make_unique<WorkerProfile>(session);
  if (isWanted_) start();
}

}  // namespace millpond::client
