// SPDX-License-Identifier: Apache-2.0
#include "worker/commands/profile/profiles.h"

#include <ctime>
#include <span>
#include <utility>
#include <vector>

#include "base/log.h"

namespace millpond::worker {
namespace {

constexpr size_t kPageBytes = size_t{256} << 10;
static_assert(kPageBytes < wire::kMaxReplyBytes / 2);

}  // namespace

CUresult Profiles::onProfileBegin(const cmd::Decoded<cmd::ProfileBegin>& in) {
  auto loaded = Profiler::load(driverLibrary_, cuptiLibrary_);
  if (loaded) {
    std::vector<int> numbers;
    for (const SessionDevices::Device& each : devices_.all()) numbers.push_back(each.device);
    (*loaded)->nameDevices(std::move(numbers));
  }
  const Status begun = loaded ? (*loaded)->begin(in.fixed.commands != 0) : Status(loaded.error());
  if (!begun) {
    log(LogLevel::Warn, "no profile of this session: %s", begun.error().message.c_str());
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  profiler_ = *loaded;
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  reply(cmd::ProfileBeginReply{.now = uint64_t{1'000'000'000} * static_cast<uint64_t>(now.tv_sec) +
                                      static_cast<uint64_t>(now.tv_nsec)});
  return CUDA_SUCCESS;
}

CUresult Profiles::onProfileRead(const cmd::Decoded<cmd::ProfileRead>& in) {
  if (!profiler_) return violation("a profile that was not started is read");
  if (in.fixed.flush) profiler_->flush();
  const ProfileLines::Page page = profiler_->take(kPageBytes);
  reply(cmd::ProfileReadReply{.lost = page.lost, .more = page.hasMore}, std::as_bytes(std::span(page.lines)));
  return CUDA_SUCCESS;
}

CUresult Profiles::onProfileEnd(const cmd::Decoded<cmd::ProfileEnd>&) {
  if (!profiler_) return violation("a profile that was not started is ended");
  profiler_->end();
  return CUDA_SUCCESS;
}

}  // namespace millpond::worker
