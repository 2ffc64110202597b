// SPDX-License-Identifier: Apache-2.0
#include "worker/commands/copies/downloads.h"

#include <algorithm>
#include <utility>

namespace millpond::worker {
namespace {

/// Staging chunks reserved for copies in otherwise idle streams: copies that wait for their streams must not block the
/// others.
constexpr uint32_t kReservedChunks = 4;
/// Pieces in buffers that the client has not acknowledged.
constexpr size_t kMostBuffers = 32;
static_assert(wire::kAcknowledgeBytes / kLentBytes < wire::kStagingChunks - kReservedChunks);

}  // namespace

CUresult Downloads::onCopyFromDevice(const cmd::Decoded<cmd::CopyFromDevice>& command) {
  const auto& copy = command.fixed;
  Stream s;
  if (!stream(copy.stream, s)) return violation("unknown stream");
  if (CUresult rc = captures_.refuse(s)) return rc;
  SessionRange range;
  if (CUresult rc = addresses_.reach(copy.address, copy.bytes, range)) return rc;
  Download download;
  download.request = session_.current();
  download.stream = s;
  download.works = session_.synchronousCopies().worksOf(s);
  download.from = range;
  download.left = copy.bytes;
  all_.push_back(std::move(download));
  progress();
  return kDeferred;
}

bool Downloads::progress() {
  bool some = false;
  for (auto d = all_.begin(); d != all_.end() && !session_.hasEnded();) {
    some = advance(*d) || some;
    if (!d->pieces.empty() || (d->left && !d->failure)) {
      ++d;
      continue;
    }
    some = true;
    const Download done = std::move(*d);
    d = all_.erase(d);
    session_.clearReply();
    if (!done.failure) {
      session_.synchronousCopies().settle(done.stream, done.works);
      reply(cmd::CopyFromDeviceReply{done.sent});
    }
    session_.answer(done.request, done.failure);
  }
  return some;
}

std::optional<uint32_t> Downloads::freeChunk(const Download& download) {
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

std::optional<Downloads::Place> Downloads::freePlace(const Download& download) {
  if (const auto chunk = freeChunk(download)) return Place{*chunk, nullptr};
  Place place;
  const size_t used = download.pieces.size() + lent_.size();
  if (!link_.usesLanes() || used >= wire::kStagingChunks + kMostBuffers) return std::nullopt;
  if (buffers_.take(wire::kChunkBytes, place.buffer) != CUDA_SUCCESS) return std::nullopt;
  return place;
}

void Downloads::release(const Place& place) {
  if (!place.buffer) link_.memory().control().chunkBusy[place.chunk].store(0, std::memory_order_relaxed);
}

void Downloads::detach(CUstream stream) {
  for (Download& download : all_) {
    if (download.stream.handle != stream || !download.left || download.failure) continue;
    // The rest of the copy is issued to the default stream, after the work of this one.
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
    download.works = {};
  }
}

bool Downloads::advance(Download& download) {
  bool some = false;
  const uint16_t before = contexts_.bound();
  contexts_.use(download.stream.context);
  while (download.left && !download.failure) {
    auto place = freePlace(download);
    if (!place) break;
    const uint64_t bytes = std::min<uint64_t>(download.left, wire::kChunkBytes);
    Mark mark;
    std::byte* to = memoryOf(*place);
    const SessionRange& from = download.from;
    // Not the part of `left` beyond the range: the range of a null address, which the driver refuses, has no bytes.
    const uint64_t done = download.done;
    const auto issued =
        from.isHost() ? hostCopies_.copy(download.stream, to, from.host() + done, bytes)
                      : issue_(download.stream, bytes, [&] {
                          return driver_.cuMemcpyDtoHAsync_v2(to, from.device() + done, bytes, download.stream.handle);
                        });
    if (!issued) break;
    CUresult rc = *issued;
    if (!rc) rc = marks_.mark(download.stream, mark);
    some = true;
    if (rc) {
      download.failure = rc;
      break;
    }
    if (!place->buffer) {
      link_.memory().control().chunkBusy[place->chunk].store(1, std::memory_order_relaxed);
      nextChunk_ = (place->chunk + 1) % wire::kStagingChunks;
    }
    download.pieces.push_back({std::move(*place), static_cast<uint32_t>(bytes), mark});
    download.left -= bytes;
    download.done += bytes;
  }
  contexts_.use(before);
  while (!download.pieces.empty()) {
    const CUresult rc = marks_.happened(download.pieces.front().mark);
    if (rc == CUDA_ERROR_NOT_READY) break;
    const Download::Piece piece = std::move(download.pieces.front());
    some = true;
    download.pieces.pop_front();
    marks_.giveBack(piece.mark);
    if (rc || download.failure) {
      download.failure = rc ? rc : download.failure;
      release(piece.place);
      continue;
    }
    // Bytes of an earlier copy must land before, or they would overwrite these.
    if (!landings_.empty()) landings_.progress();
    if (!send(download, piece)) {
      session_.end({"the client reads no data", true});
      return true;
    }
    download.sent += piece.bytes;
  }
  return some;
}

bool Downloads::send(const Download& download, const Download::Piece& piece) {
  const uint32_t request = download.request.request;
  if (!link_.remote()) {
    const wire::ChunkReady ready{piece.place.chunk, piece.bytes};
    return link_.reply(wire::ReplyKind::kChunk, download.request.op, request, 0, std::as_bytes(std::span(&ready, 1)));
  }
  const auto padding = static_cast<uint16_t>(wire::padded(piece.bytes) - piece.bytes);
  const std::span<const std::byte> data(memoryOf(piece.place), piece.bytes);
  const bool lends = piece.bytes >= kLentBytes;
  const bool isSent = lends ? link_.replyLending(wire::ReplyKind::kData, padding, request, {}, data)
                            : link_.reply(wire::ReplyKind::kData, padding, request, 0, data);
  if (!lends)
    release(piece.place);
  else if (piece.place.buffer)
    lent_.add(piece.place.buffer);
  else
    lent_.add(piece.place.chunk);
  lent_.progress();
  return isSent;
}

void Downloads::forgetContext(uint16_t number) {
  for (Download& each : all_) {
    for (Download::Piece& piece : each.pieces) piece.mark.forgetContext(number);
    if (each.stream.context == number && each.left && !each.failure) each.failure = CUDA_ERROR_CONTEXT_IS_DESTROYED;
  }
}

}  // namespace millpond::worker
