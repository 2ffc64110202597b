// SPDX-License-Identifier: Apache-2.0
// Copies between client memory and the device. The device reads commands straight out of the ring and writes into
// staging chunks, both registered with the driver; nothing here waits for it.
#include <sys/mman.h>

#include <algorithm>
#include <bit>

#include "worker/executor.h"

namespace millpond::worker {
namespace {

/// The driver takes copies of this size from ordinary memory at once; larger ones may wait for the stream.
constexpr size_t kInlineBytes = size_t{16} << 10;
/// Staging chunks that only a copy gets whose stream has nothing else to do: those that wait for their streams must not
/// keep the others from going on.
constexpr uint32_t kReservedChunks = 4;
constexpr size_t kMaxLandings = size_t{1} << 16;
/// Replies over TCP with at least this much data are sent from where it is, which stays until the client has it; smaller
/// ones are copied, so that what the client has not acknowledged yet never holds many chunks.
constexpr size_t kLentBytes = size_t{128} << 10;
static_assert(wire::kAcknowledgeBytes / kLentBytes < wire::kStagingChunks - kReservedChunks);

}  // namespace

CUresult Executor::pin(void* memory, uint64_t bytes, unsigned flags) {
  const uint16_t before = boundContext_;
  const uint16_t home = before ? primaryOf(before) : uint16_t{1};
  useContext(home);
  const CUresult rc = driver_.cuMemHostRegister_v2(memory, bytes, flags);
  if (!rc) pinned_[memory] = {bytes, flags, home};
  useContext(before);
  return rc;
}

void Executor::unpin(void* memory) {
  pinned_.erase(memory);
  driver_.cuMemHostUnregister(memory);
}

bool Executor::registerTransfers() {
  const auto pinRun = [&](std::span<std::byte> run) {
    return pin(run.data(), run.size(), CU_MEMHOSTREGISTER_PORTABLE) == CUDA_SUCCESS;
  };
  return pinRun(link_.memory().submitRun()) && pinRun(link_.memory().stagingRun());
}

CUresult Executor::onCopyToDevice(const cmd::Decoded<cmd::CopyToDevice>& command) {
  const auto& copy = command.fixed;
  const auto data = command.tail[0];
  Stream s;
  if (!stream(copy.stream, s)) return violation("unknown stream");
  if (copy.offset > copy.total || data.size() > copy.total - copy.offset)
    return violation("a piece of a copy lies outside of it");
  const CUdeviceptr to = copy.address + copy.offset;
  if (data.size() <= kInlineBytes) {
    small_.assign(data.begin(), data.end());
    return driver_.cuMemcpyHtoDAsync_v2(to, small_.data(), small_.size(), s.handle);
  }
  if (CUresult rc = driver_.cuMemcpyHtoDAsync_v2(to, data.data(), data.size(), s.handle)) return rc;
  Mark place;
  if (CUresult rc = mark(s, place)) return rc;
  holds_.push_back({frameStart_, place});
  return CUDA_SUCCESS;
}

CUresult Executor::onCopyHostShared(const cmd::Decoded<cmd::CopyHostShared>& command) {
  const auto& copy = command.fixed;
  Stream s;
  if (!stream(copy.stream, s)) return violation("unknown stream");
  const auto shared = hostBytesFrom(copy.hostAddress);
  if (!shared) return violation("a copy from memory that is not shared");
  if (copy.bytes > *shared) return violation("a copy reaches over the end of shared memory");
  void* host = reinterpret_cast<void*>(copy.hostAddress);
  CUresult rc;
  if (copy.direction == 1)
    rc = driver_.cuMemcpyHtoDAsync_v2(copy.deviceAddress, host, copy.bytes, s.handle);
  else if (copy.direction == 2)
    rc = driver_.cuMemcpyDtoHAsync_v2(host, copy.deviceAddress, copy.bytes, s.handle);
  else
    return violation("a copy in no direction");
  if (rc || current_.request == 0) return rc;
  Mark place;
  rc = mark(s, place);
  if (rc) return rc;
  pending_.push_back({current_, {place}, nullptr, {}});
  return kDeferred;
}

CUresult Executor::onCopyFromDevice(const cmd::Decoded<cmd::CopyFromDevice>& command) {
  const auto& copy = command.fixed;
  Stream s;
  if (!stream(copy.stream, s)) return violation("unknown stream");
  Download download;
  download.request = current_;
  download.stream = s;
  download.address = copy.address;
  download.left = copy.bytes;
  downloads_.push_back(std::move(download));
  progressDownloads();
  return kDeferred;
}

CUresult Executor::onLandFromDevice(const cmd::Decoded<cmd::LandFromDevice>& command) {
  const auto& copy = command.fixed;
  Stream s;
  if (!stream(copy.stream, s)) return violation("unknown stream");
  return startLanding(s, copy.address, copy.bytes, copy.hostAddress);
}

bool Executor::progressDownloads() {
  bool some = false;
  for (auto d = downloads_.begin(); d != downloads_.end() && !ended_;) {
    some = advance(*d) || some;
    if (!d->pieces.empty() || (d->left && !d->failure)) {
      ++d;
      continue;
    }
    some = true;
    const Download done = std::move(*d);
    d = downloads_.erase(d);
    replyBody_.clear();
    if (!done.failure) reply(cmd::CopyFromDeviceReply{done.sent});
    answer(done.request, done.failure);
  }
  return some;
}

std::optional<uint32_t> Executor::freeChunk(const Download& download) {
  const auto& busy = link_.memory().control().chunkBusy;
  std::optional<uint32_t> found;
  uint32_t free = 0;
  for (uint32_t i = 0; i < wire::kStagingChunks && free <= kReservedChunks; ++i) {
    const uint32_t chunk = (nextChunk_ + i) % wire::kStagingChunks;
    if (busy[chunk].load(std::memory_order_acquire) != 0) continue;
    if (!found) found = chunk;
    ++free;
  }
  if (!found || free > kReservedChunks) return found;
  const bool atOnce = download.pieces.empty() && driver_.cuStreamQuery(download.stream.handle) == CUDA_SUCCESS;
  return atOnce ? found : std::nullopt;
}

void Executor::detachDownloads(CUstream stream) {
  for (Download& download : downloads_) {
    if (download.stream.handle != stream || !download.left || download.failure) continue;
    // The rest of the copy goes to the default stream, behind what this one was given.
    const Stream rest{nullptr, download.stream.context};
    const uint16_t before = boundContext_;
    Mark place;
    CUresult rc = mark(download.stream, place);
    if (!rc) {
      useContext(rest.context);
      rc = driver_.cuStreamWaitEvent(nullptr, place.event, 0);
      giveBack(place);
      useContext(before);
    }
    download.failure = rc;
    download.stream = rest;
  }
}

/// Issues pieces while chunks are free, sends those that have arrived. Whether anything happened.
bool Executor::advance(Download& download) {
  auto& busy = link_.memory().control().chunkBusy;
  bool some = false;
  const uint16_t before = boundContext_;
  useContext(download.stream.context);
  while (download.left && !download.failure) {
    const auto chunk = freeChunk(download);
    if (!chunk) break;
    const uint64_t bytes = std::min<uint64_t>(download.left, wire::kChunkBytes);
    Mark place;
    CUresult rc = driver_.cuMemcpyDtoHAsync_v2(link_.memory().chunk(*chunk), download.address, bytes,
                                               download.stream.handle);
    if (!rc) rc = mark(download.stream, place);
    some = true;
    if (rc) {
      download.failure = rc;
      break;
    }
    busy[*chunk].store(1, std::memory_order_relaxed);
    nextChunk_ = (*chunk + 1) % wire::kStagingChunks;
    download.pieces.push_back({*chunk, static_cast<uint32_t>(bytes), place});
    download.address += bytes;
    download.left -= bytes;
  }
  useContext(before);
  while (!download.pieces.empty()) {
    const Download::Piece piece = download.pieces.front();
    const CUresult rc = happened(piece.mark);
    if (rc == CUDA_ERROR_NOT_READY) break;
    some = true;
    download.pieces.pop_front();
    giveBack(piece.mark);
    if (rc || download.failure) {
      download.failure = rc ? rc : download.failure;
      busy[piece.chunk].store(0, std::memory_order_relaxed);
      continue;
    }
    bool sent;
    if (link_.remote()) {
      const auto padding = static_cast<uint16_t>(wire::padded(piece.bytes) - piece.bytes);
      const std::span<const std::byte> data(link_.memory().chunk(piece.chunk), piece.bytes);
      const uint32_t request = download.request.request;
      sent = piece.bytes >= kLentBytes ? link_.replyLending(wire::ReplyKind::kData, padding, request, {}, data)
                                       : link_.reply(wire::ReplyKind::kData, padding, request, 0, data);
      if (piece.bytes >= kLentBytes)
        lentReplies_.push_back({link_.replied(), piece.chunk, {}});
      else
        busy[piece.chunk].store(0, std::memory_order_relaxed);
      progressLent();
    } else {
      const wire::ChunkReady ready{piece.chunk, piece.bytes};
      sent = link_.reply(wire::ReplyKind::kChunk, download.request.op, download.request.request, 0,
                         std::as_bytes(std::span(&ready, 1)));
    }
    if (!sent) {
      ended_ = true;
      end_ = {"the client takes no data", true};
      return true;
    }
    download.sent += piece.bytes;
  }
  return some;
}

// Copies to client memory that nobody waits for (TCP): whole in staging memory, sent when they have arrived

CUresult Executor::startLanding(const Stream& s, CUdeviceptr address, uint64_t bytes, uint64_t hostAddress) {
  if (!link_.remote()) return violation("only a remote client's memory is landed in");
  if (landings_.size() >= kMaxLandings) return CUDA_ERROR_OUT_OF_MEMORY;
  LandingCopy landing{s.handle, hostAddress, bytes, {}, {}};
  if (CUresult rc = takeHostBuffer(bytes, landing.staging)) return rc;
  CUresult rc = driver_.cuMemcpyDtoHAsync_v2(landing.staging.memory, address, bytes, s.handle);
  if (!rc) rc = mark(s, landing.mark);
  if (rc) {
    giveBack(landing.staging);
    return rc;
  }
  landings_.push_back(landing);
  return CUDA_SUCCESS;
}

CUresult Executor::takeHostBuffer(uint64_t bytes, HostBuffer& buffer) {
  const auto spare = spareHostBuffers_.lower_bound(bytes);
  if (spare != spareHostBuffers_.end() && spare->first / 2 <= bytes) {
    buffer = spare->second;
    spareHostBuffers_.erase(spare);
    return CUDA_SUCCESS;
  }
  // Above it a hostile client may ask for what has no power of two behind it.
  if (bytes > std::bit_floor(UINT64_MAX)) return CUDA_ERROR_OUT_OF_MEMORY;
  const uint64_t size = std::bit_ceil(std::max<uint64_t>(bytes, 4096));
  if (!hostHasRoom(size) && callbacksExpected_ == 0) dropSpareHostBuffers();
  if (!hostHasRoom(size)) return CUDA_ERROR_OUT_OF_MEMORY;
  // Memory of this process, which a reset of the context does not take away.
  void* memory = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  if (CUresult rc = pin(memory, size, CU_MEMHOSTREGISTER_PORTABLE)) {
    ::munmap(memory, size);
    return rc;
  }
  hostBytes_ += size;
  buffer = {static_cast<std::byte*>(memory), size};
  return CUDA_SUCCESS;
}

void Executor::dropSpareHostBuffers() {
  for (const auto& [bytes, buffer] : spareHostBuffers_) {
    unpin(buffer.memory);
    ::munmap(buffer.memory, buffer.bytes);
    hostBytes_ -= bytes;
  }
  spareHostBuffers_.clear();
}

void Executor::giveBack(const HostBuffer& buffer) { spareHostBuffers_.emplace(buffer.bytes, buffer); }

bool Executor::progressLandings() {
  bool some = false;
  std::vector<CUstream> busy;  // what comes later in these has not happened either
  for (auto l = landings_.begin(); l != landings_.end() && !ended_;) {
    const bool waits = std::find(busy.begin(), busy.end(), l->stream) != busy.end();
    const CUresult rc = waits ? CUDA_ERROR_NOT_READY : happened(l->mark);
    if (rc == CUDA_ERROR_NOT_READY) {
      if (!waits) busy.push_back(l->stream);
      ++l;
      continue;
    }
    const LandingCopy landing = *l;
    l = landings_.erase(l);
    some = true;
    giveBack(landing.mark);
    if (rc == CUDA_SUCCESS) {
      constexpr uint64_t kPiece = wire::kChunkBytes;
      for (uint64_t at = 0; at < landing.bytes && !ended_; at += kPiece) {
        const wire::Landing header{landing.hostAddress + at, std::min(kPiece, landing.bytes - at)};
        const std::span<const std::byte> data(landing.staging.memory + at, header.bytes);
        const auto body = std::as_bytes(std::span(&header, 1));
        const bool sent = landing.bytes >= kLentBytes
                              ? link_.replyLending(wire::ReplyKind::kLanding, 0, 0, body, data)
                              : link_.reply(wire::ReplyKind::kLanding, 0, 0, 0, body, data);
        if (sent) continue;
        ended_ = true;
        end_ = {"the client takes no data", true};
      }
    }
    if (landing.bytes >= kLentBytes)
      lentReplies_.push_back({link_.replied(), std::nullopt, landing.staging});
    else
      giveBack(landing.staging);
  }
  return some;
}

bool Executor::progressLent() {
  bool some = false;
  for (; !lentReplies_.empty() && lentReplies_.front().end <= link_.acknowledged(); lentReplies_.pop_front()) {
    const LentReply& lent = lentReplies_.front();
    if (lent.chunk)
      link_.memory().control().chunkBusy[*lent.chunk].store(0, std::memory_order_relaxed);
    else
      giveBack(lent.buffer);
    some = true;
  }
  return some;
}

}  // namespace millpond::worker
