// SPDX-License-Identifier: Apache-2.0
#include "worker/commands/copies/uploads.h"

#include <cstring>

#include "protocol/completion.h"

namespace millpond::worker {
namespace {

/// The driver reads ordinary memory immediately for copies of this size; larger ones may wait for the stream.
constexpr size_t kInlineBytes = size_t{16} << 10;

}  // namespace

CUresult Uploads::onCopyToDevice(const cmd::Decoded<cmd::CopyToDevice>& command) {
  const auto& copy = command.fixed;
  const auto data = command.tail[0];
  Stream s;
  if (!stream(copy.stream, s)) return violation("unknown stream");
  if (copy.offset > copy.total || data.size() > copy.total - copy.offset)
    return violation("a piece of a copy lies outside of it");
  if (CUresult rc = captures_.refuse(s)) return rc;
  const bool orders = copy.completion == cmd::kBeforeOtherStreams && session_.synchronousCopies().orders(s, 1);
  if (CUresult rc = this->copy(copy, data, s)) return rc;
  if (orders) session_.synchronousCopies().issued(s);
  if (copy.completion != cmd::kBeforeLaterCommands || awaited_) return CUDA_SUCCESS;
  Mark place;
  if (CUresult rc = marks_.mark(s, place)) return rc;
  awaited_ = place;
  return CUDA_SUCCESS;
}

CUresult Uploads::copy(const cmd::CopyToDevice& copy, std::span<const std::byte> data, const Stream& s) {
  SessionRange range;
  // Copies the piece after the preceding work of the stream.
  if (CUresult rc = addresses_.reach(Box{.address = copy.address, .x = copy.offset, .width = data.size()}, range))
    return data.empty() ? CUDA_SUCCESS : rc;
  if (range.isHost()) return hostCopies_.copyNow(s, range.host(), data);
  const CUdeviceptr to = range.device();
  if (data.size() <= kInlineBytes) {
    small_.assign(data.begin(), data.end());
    return driver_.cuMemcpyHtoDAsync_v2(to, small_.data(), small_.size(), s.handle);
  }
  Mark place;
  // Behind a function of the client, or other work for which the stream waits, the ring and the lanes would fill up, and no
  // later command would arrive, not even the return of that function.
  const auto keeper = session_.frame().keeper ? *session_.frame().keeper : nullptr;
  const bool isLong =
      keeper ? areLanesLow() : !holds_.empty() && link_.position() - holds_.front().start > wire::kSubmitBytes / 2;
  const bool isHeldUp = order_.expected() > 0 && driver_.cuStreamQuery(s.handle) == CUDA_ERROR_NOT_READY;
  std::shared_ptr<const HostBuffer> aside;
  // Without one the copy reads from the ring.
  if ((isLong || isHeldUp) && buffers_.take(data.size(), aside) == CUDA_SUCCESS)
    std::memcpy(aside->memory, data.data(), data.size());
  const std::byte* from = aside ? aside->memory : data.data();
  if (CUresult rc = driver_.cuMemcpyHtoDAsync_v2(to, from, data.size(), s.handle)) return rc;
  if (CUresult rc = marks_.mark(s, place)) return rc;
  if (aside)
    reads_.add(place, aside);
  else if (keeper)
    reads_.add(place, keeper);
  else
    hold({session_.frame().start, place});
  return CUDA_SUCCESS;
}

bool Uploads::areLanesLow() {
  if (!link_.areLanesLow()) return false;
  reads_.progress();
  return link_.areLanesLow();
}

void Uploads::hold(const Hold& hold) {
  // Copies of callback threads overtake others.
  const auto isBefore = [](const Hold& a, const Hold& b) { return a.start < b.start; };
  holds_.insert(std::upper_bound(holds_.begin(), holds_.end(), hold, isBefore), hold);
}

}  // namespace millpond::worker
