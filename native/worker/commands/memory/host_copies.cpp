// SPDX-License-Identifier: Apache-2.0
#include "worker/commands/memory/host_copies.h"

#include <atomic>
#include <cstring>
#include <utility>

namespace millpond::worker {
namespace {

constexpr uint64_t kPageBytes = 4096;
/// From this size on, the source is read in stream order.
constexpr uint64_t kLongBytes = uint64_t{64} << 10;

CUdeviceptr addressOf(const uint32_t* word) { return reinterpret_cast<CUdeviceptr>(word); }

}  // namespace

bool HostCopies::isBlocking(const Stream& stream) {
  if (stream.wire == 0) return true;
  const HandleMap::Entry* entry = handles_.find(stream.wire);
  return entry && entry->isBlocking;
}

CUresult HostCopies::queryDefault(const Stream& stream) {
  const uint16_t before = contexts_.bound();
  contexts_.use(stream.context);
  const CUresult now = driver_.cuStreamQuery(nullptr);
  contexts_.use(before);
  return now;
}

bool HostCopies::isDue(const Stream& stream) {
  // When the default stream has finished, so have all streams that are in step with it. It must not be queried during a
  // capture.
  if (!isBlocking(stream)) return driver_.cuStreamQuery(stream.handle) == CUDA_SUCCESS;
  return captures_.empty() && queryDefault(stream) == CUDA_SUCCESS;
}

CUresult HostCopies::run(const Stream& stream, std::function<void()> copy) {
  if (isDue(stream)) {
    copy();
    return CUDA_SUCCESS;
  }
  Word word;
  CUresult rc = takeWord(word);
  if (rc) return rc;
  Mark reached;
  rc = marks_.mark(stream, reached);
  if (rc) {
    spare_.push_back(word);
    return rc;
  }
  const uint16_t before = contexts_.bound();
  contexts_.use(stream.context);
  rc = driver_.cuStreamWaitValue32_v2(stream.handle, addressOf(word.place), word.value, CU_STREAM_WAIT_VALUE_GEQ);
  contexts_.use(before);
  if (rc) {
    marks_.giveBack(reached);
    spare_.push_back(word);
    return rc;
  }
  all_.push_back({reached, word, std::move(copy)});
  return CUDA_SUCCESS;
}

CUresult HostCopies::copy(const Stream& stream, std::byte* to, const std::byte* from, size_t bytes) {
  return run(stream, [to, from, bytes] { std::memmove(to, from, bytes); });
}

CUresult HostCopies::copyNow(const Stream& stream, std::byte* to, std::span<const std::byte> from) {
  if (isDue(stream)) {
    std::memcpy(to, from.data(), from.size());
    return CUDA_SUCCESS;
  }
  std::shared_ptr<const HostBuffer> kept;
  if (CUresult rc = buffers_.take(from.size(), kept)) return rc;
  std::memcpy(kept->memory, from.data(), from.size());
  return run(stream, [kept, to, bytes = from.size()] { std::memcpy(to, kept->memory, bytes); });
}

CUresult HostCopies::toDevice(const Stream& stream, CUdeviceptr to, const std::byte* from, size_t bytes) {
  if (CUresult rc = keepOrder(stream, bytes)) return rc;
  return driver_.cuMemcpyHtoDAsync_v2(to, from, bytes, stream.handle);
}

std::optional<HostCopies::Ends> HostCopies::endsOf(std::span<const std::byte> command) {
  // cuMemcpyDtoD names the default stream in place of that one.
  using Command = cmd::MemcpyDtoDAsyncV2;
  static_assert(sizeof(cmd::MemcpyDtoDV2) == sizeof(Command) &&
                offsetof(cmd::MemcpyDtoDV2, stream) == offsetof(Command, hStream));
  Command copy;
  if (command.size() < sizeof(Command)) return std::nullopt;
  std::memcpy(&copy, command.data(), sizeof copy);
  Ends ends{{}, {}, copy.ByteCount, copy.hStream};
  if (addresses_.reach(copy.dstDevice, copy.ByteCount, ends.to) ||
      addresses_.reach(copy.srcDevice, copy.ByteCount, ends.from))
    return std::nullopt;
  return ends;
}

std::optional<CUresult> HostCopies::recorded(std::span<const std::byte> command) {
  const auto ends = endsOf(command);
  Stream s;
  if (!ends || ends->to.isHost() == ends->from.isHost() || !stream(ends->stream, s) ||
      captures_.status(s) != CU_STREAM_CAPTURE_STATUS_ACTIVE)
    return std::nullopt;
  return ends->to.isHost() ? driver_.cuMemcpyDtoHAsync_v2(ends->to.host(), ends->from.device(), ends->bytes, s.handle)
                           : driver_.cuMemcpyHtoDAsync_v2(ends->to.device(), ends->from.host(), ends->bytes, s.handle);
}

std::optional<CUresult> HostCopies::within(std::span<const std::byte> command) {
  const auto ends = endsOf(command);
  Stream s;
  if (!ends || !ends->from.isHost() || !stream(ends->stream, s)) return std::nullopt;
  const auto& [to, from, bytes, wire] = *ends;
  return to.isHost() ? this->copy(s, to.host(), from.host(), bytes) : toDevice(s, to.device(), from.host(), bytes);
}

CUresult HostCopies::keepOrder(const Stream& stream, uint64_t bytes) {
  // The default stream must not be queried during a capture.
  if (bytes >= kLongBytes || !captures_.empty() || !isBlocking(stream)) return CUDA_SUCCESS;
  if (queryDefault(stream) != CUDA_ERROR_NOT_READY) return CUDA_SUCCESS;
  if (!nothing_) {
    Word word;
    if (CUresult rc = takeWord(word)) return rc;
    nothing_ = word;
  }
  const uint16_t before = contexts_.bound();
  contexts_.use(stream.context);
  const CUresult rc =
      driver_.cuStreamWriteValue32_v2(stream.handle, addressOf(nothing_->place), 0, CU_STREAM_WRITE_VALUE_DEFAULT);
  contexts_.use(before);
  return rc;
}

bool HostCopies::progress() {
  bool some = false;
  for (auto each = all_.begin(); each != all_.end();) {
    const CUresult rc = marks_.happened(each->mark);
    if (rc == CUDA_ERROR_NOT_READY) {
      ++each;
      continue;
    }
    marks_.giveBack(each->mark);
    if (rc == CUDA_SUCCESS) each->copy();
    set(each->word);
    each = all_.erase(each);
    some = true;
  }
  return some;
}

void HostCopies::forgetContext(uint16_t number) {
  std::erase_if(all_, [&](const Copy& each) {
    if (each.mark.context != number) return false;
    set(each.word);
    return true;
  });
}

void HostCopies::close() {
  for (const Copy& each : all_) set(each.word);
  all_.clear();
}

CUresult HostCopies::takeWord(Word& word) {
  if (spare_.empty()) {
    std::shared_ptr<const HostBuffer> page;
    if (CUresult rc = buffers_.take(kPageBytes, page)) return rc;
    auto* words = reinterpret_cast<uint32_t*>(page->memory);
    for (uint64_t i = 0; i < kPageBytes / sizeof(uint32_t); ++i) {
      std::atomic_ref(words[i]).store(0, std::memory_order_relaxed);
      spare_.push_back({words + i, 1});
    }
    pages_.push_back(std::move(page));
  }
  word = spare_.back();
  spare_.pop_back();
  return CUDA_SUCCESS;
}

void HostCopies::set(const Word& word) {
  std::atomic_ref(*word.place).store(word.value, std::memory_order_release);
  // A stream that has not read the word yet also accepts any later value.
  spare_.push_back({word.place, word.value + 1});
}

}  // namespace millpond::worker
