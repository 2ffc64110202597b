// SPDX-License-Identifier: Apache-2.0
// Copies between client memory and the device. The device reads commands directly from the ring and writes into staging
// chunks, both registered with the driver; nothing here waits for it.
#include <algorithm>
#include <cstring>

#include "worker/session/executor.h"

namespace millpond::worker {
namespace {

/// The driver reads ordinary memory immediately for copies of this size; larger ones may wait for the stream.
constexpr size_t kInlineBytes = size_t{16} << 10;
/// Staging chunks reserved for copies in otherwise idle streams: copies that wait for their streams must not block the
/// others.
constexpr uint32_t kReservedChunks = 4;
static_assert(wire::kAcknowledgeBytes / kLentBytes < wire::kStagingChunks - kReservedChunks);

}  // namespace

bool Executor::registerTransfers() {
  const auto pinRun = [&](std::span<std::byte> run) {
    return pinned_.pin(run.data(), run.size(), CU_MEMHOSTREGISTER_PORTABLE) == CUDA_SUCCESS;
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
  if (CUresult rc = refuseRecording(s)) return rc;
  SessionRange range;
  // The piece, after the preceding work.
  if (CUresult rc = addresses_.reach(Box{.address = copy.address, .x = copy.offset, .width = data.size()}, range))
    return data.empty() ? CUDA_SUCCESS : rc;
  if (range.isHost()) return hostCopies_.copyNow(s, range.host(), data);
  const CUdeviceptr to = range.device();
  if (data.size() <= kInlineBytes) {
    small_.assign(data.begin(), data.end());
    return driver_.cuMemcpyHtoDAsync_v2(to, small_.data(), small_.size(), s.handle);
  }
  Mark place;
  // Behind a function of the client, or other work for which the stream waits, the ring would fill up, and no later
  // command would arrive, not even the return of that function.
  const bool isLong = !holds_.empty() && link_.position() - holds_.front().start > wire::kSubmitBytes / 2;
  const bool isHeldUp = order_.expected() > 0 && driver_.cuStreamQuery(s.handle) == CUDA_ERROR_NOT_READY;
  const auto aside = isLong || isHeldUp ? buffers_.take(data.size()) : nullptr;
  if (aside) std::memcpy(aside->memory, data.data(), data.size());
  const std::byte* from = aside ? aside->memory : data.data();
  if (CUresult rc = driver_.cuMemcpyHtoDAsync_v2(to, from, data.size(), s.handle)) return rc;
  if (CUresult rc = marks_.mark(s, place)) return rc;
  if (aside)
    readMemory_.push_back({place, aside});
  else
    holds_.push_back({session_.frameStart(), place});
  return CUDA_SUCCESS;
}

CUresult Executor::onCopyHostShared(const cmd::Decoded<cmd::CopyHostShared>& command) {
  const auto& copy = command.fixed;
  Stream s;
  if (!stream(copy.stream, s)) return violation("unknown stream");
  SessionRange host, device;
  if (addresses_.host(copy.hostAddress, copy.bytes, host))
    return violation(addresses_.host(copy.hostAddress, 1, host) ? "a copy from memory that is not shared"
                                                                : "a copy reaches over the end of shared memory");
  CUresult rc = addresses_.reach(copy.deviceAddress, copy.bytes, device);
  if (rc) return rc;
  if (copy.bytes == 0)
    rc = CUDA_SUCCESS;
  else if (copy.direction != 1 && copy.direction != 2)
    return violation("a copy in no direction");
  else if (device.isHost() && captures_.empty())
    rc = hostCopies_.copy(s, copy.direction == 1 ? device.host() : host.host(),
                          copy.direction == 1 ? host.host() : device.host(), copy.bytes);
  else if (copy.direction == 1)
    rc = hostCopies_.toDevice(s, device.device(), host.host(), copy.bytes);
  else
    rc = driver_.cuMemcpyDtoHAsync_v2(host.host(), device.device(), copy.bytes, s.handle);
  if (rc || session_.current().request == 0) return rc;
  Mark place;
  rc = marks_.mark(s, place);
  if (rc) return rc;
  return waits_.until({place});
}

CUresult Executor::onCopyFromDevice(const cmd::Decoded<cmd::CopyFromDevice>& command) {
  const auto& copy = command.fixed;
  Stream s;
  if (!stream(copy.stream, s)) return violation("unknown stream");
  if (CUresult rc = refuseRecording(s)) return rc;
  SessionRange range;
  if (CUresult rc = addresses_.reach(copy.address, copy.bytes, range)) return rc;
  Download download;
  download.request = session_.current();
  download.stream = s;
  download.from = range;
  download.left = copy.bytes;
  downloads_.push_back(std::move(download));
  progressDownloads();
  return kDeferred;
}

CUresult Executor::refuseRecording(const Stream& s) {
  return captures_.status(s) == CU_STREAM_CAPTURE_STATUS_NONE ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

bool Executor::progressDownloads() {
  bool some = false;
  for (auto d = downloads_.begin(); d != downloads_.end() && !session_.hasEnded();) {
    some = advance(*d) || some;
    if (!d->pieces.empty() || (d->left && !d->failure)) {
      ++d;
      continue;
    }
    some = true;
    const Download done = std::move(*d);
    d = downloads_.erase(d);
    session_.clearReply();
    if (!done.failure) reply(cmd::CopyFromDeviceReply{done.sent});
    session_.answer(done.request, done.failure);
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
    // The rest of the copy goes to the default stream, after the work of this one.
    const Stream rest{nullptr, download.stream.context, 0};
    const uint16_t before = contexts_.bound();
    Mark place;
    CUresult rc = marks_.mark(download.stream, place);
    if (!rc) {
      contexts_.use(rest.context);
      rc = driver_.cuStreamWaitEvent(nullptr, place.event, 0);
      marks_.giveBack(place);
      contexts_.use(before);
    }
    download.failure = rc;
    download.stream = rest;
  }
}

/// Issues pieces while chunks are free, sends those that have arrived. Returns whether anything happened.
bool Executor::advance(Download& download) {
  auto& busy = link_.memory().control().chunkBusy;
  bool some = false;
  const uint16_t before = contexts_.bound();
  contexts_.use(download.stream.context);
  while (download.left && !download.failure) {
    const auto chunk = freeChunk(download);
    if (!chunk) break;
    const uint64_t bytes = std::min<uint64_t>(download.left, wire::kChunkBytes);
    Mark place;
    std::byte* to = link_.memory().chunk(*chunk);
    const SessionRange& from = download.from;
    // Without the part of `left` beyond the range: the range of a null address, which the driver refuses, has no bytes.
    const uint64_t done = download.done;
    CUresult rc = from.isHost() ? hostCopies_.copy(download.stream, to, from.host() + done, bytes)
                                : driver_.cuMemcpyDtoHAsync_v2(to, from.device() + done, bytes, download.stream.handle);
    if (!rc) rc = marks_.mark(download.stream, place);
    some = true;
    if (rc) {
      download.failure = rc;
      break;
    }
    busy[*chunk].store(1, std::memory_order_relaxed);
    nextChunk_ = (*chunk + 1) % wire::kStagingChunks;
    download.pieces.push_back({*chunk, static_cast<uint32_t>(bytes), place});
    download.left -= bytes;
    download.done += bytes;
  }
  contexts_.use(before);
  while (!download.pieces.empty()) {
    const Download::Piece piece = download.pieces.front();
    const CUresult rc = marks_.happened(piece.mark);
    if (rc == CUDA_ERROR_NOT_READY) break;
    some = true;
    download.pieces.pop_front();
    marks_.giveBack(piece.mark);
    if (rc || download.failure) {
      download.failure = rc ? rc : download.failure;
      busy[piece.chunk].store(0, std::memory_order_relaxed);
      continue;
    }
    // Bytes of an earlier copy that land later must not overwrite it.
    if (!landings_.empty()) progressLandings();
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
      session_.end({"the client takes no data", true});
      return true;
    }
    download.sent += piece.bytes;
  }
  return some;
}

bool Executor::progressLent() {
  bool some = false;
  for (; !lentReplies_.empty() && lentReplies_.front().end <= link_.acknowledged(); lentReplies_.pop_front()) {
    const LentReply& lent = lentReplies_.front();
    if (lent.chunk) link_.memory().control().chunkBusy[*lent.chunk].store(0, std::memory_order_relaxed);
    some = true;
  }
  return some;
}

CUresult Executor::onCopyBox(const cmd::Decoded<cmd::CopyBox>& command) {
  const auto& box = command.fixed;
  Stream s;
  if (!stream(box.stream, s)) return violation("unknown stream");
  if (box.width == 0 || box.height == 0 || box.depth == 0) return violation("a box of nothing");
  CUDA_MEMCPY3D copy{};
  const auto end = [&](uint64_t array, wire::Address address, uint64_t pitch, uint64_t rows, CUmemorytype& type,
                       CUarray& handleOut, CUdeviceptr& device, auto& host, size_t& pitchOut,
                       size_t& rowsOut) -> CUresult {
    if (array) {
      type = CU_MEMORYTYPE_ARRAY;
      if (!handle(HandleKind::kArray, array, handleOut)) return violation("unknown array");
      return handleOut ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
    }
    SessionRange range;
    if (CUresult rc = addresses_.reach(Box{.address = address,
                                           .pitch = pitch,
                                           .rows = rows,
                                           .width = box.width,
                                           .height = box.height,
                                           .depth = box.depth},
                                       range))
      return rc;
    type = range.isHost() ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
    if (range.isHost())
      host = range.host();
    else
      device = range.device();
    pitchOut = pitch;
    rowsOut = rows;
    return CUDA_SUCCESS;
  };
  if (CUresult rc = end(box.srcArray, box.srcAddress, box.srcPitch, box.srcRows, copy.srcMemoryType, copy.srcArray,
                        copy.srcDevice, copy.srcHost, copy.srcPitch, copy.srcHeight))
    return rc;
  if (CUresult rc = end(box.dstArray, box.dstAddress, box.dstPitch, box.dstRows, copy.dstMemoryType, copy.dstArray,
                        copy.dstDevice, copy.dstHost, copy.dstPitch, copy.dstHeight))
    return rc;
  if (box.srcArray) {
    copy.srcXInBytes = box.srcX;
    copy.srcY = box.srcY;
    copy.srcZ = box.srcZ;
  }
  if (box.dstArray) {
    copy.dstXInBytes = box.dstX;
    copy.dstY = box.dstY;
    copy.dstZ = box.dstZ;
  }
  copy.WidthInBytes = box.width;
  copy.Height = box.height;
  copy.Depth = box.depth;
  if (!driver_.cuMemcpy3DAsync_v2) return CUDA_ERROR_NOT_SUPPORTED;
  const bool fromHost = copy.srcMemoryType == CU_MEMORYTYPE_HOST;
  if (fromHost && copy.dstMemoryType == CU_MEMORYTYPE_HOST && captures_.empty())
    return hostCopies_.run(
        s, [box, to = static_cast<std::byte*>(copy.dstHost), from = static_cast<const std::byte*>(copy.srcHost)] {
          for (uint64_t z = 0; z < box.depth; ++z)
            for (uint64_t y = 0; y < box.height; ++y)
              std::memmove(to + (z * box.dstRows + y) * box.dstPitch, from + (z * box.srcRows + y) * box.srcPitch,
                           box.width);
        });
  if (fromHost)
    if (CUresult rc = hostCopies_.keepOrder(s, box.width * box.height * box.depth)) return rc;
  return driver_.cuMemcpy3DAsync_v2(&copy, s.handle);
}

}  // namespace millpond::worker
