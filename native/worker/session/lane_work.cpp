// SPDX-License-Identifier: Apache-2.0
#include "worker/session/lane_work.h"

#include <algorithm>
#include <cstring>

namespace millpond::worker {
namespace {

using gate::Lane;

/// Initial estimates for commands that move memory: 0.5 TB/s within a device, 20 GB/s to and from it.
constexpr int64_t kDeviceBytesPerNs = 500;
constexpr int64_t kBusBytesPerNs = 20;
constexpr int64_t kLeastGuessNs = 3'000;
/// The cost of a short row on the bus, in bytes, because a copy of thousands of them is not small.
constexpr uint64_t kLeastRowBytes = 256;

/// The fixed part of a command, which the client may be changing, so it is used only for estimates.
template <typename C>
C fixedOf(std::span<const std::byte> body) {
  C out{};
  std::memcpy(static_cast<void*>(&out), body.data(), std::min(body.size(), sizeof(out)));
  return out;
}

uint64_t mixed(std::initializer_list<uint64_t> values) {
  uint64_t out = 0;
  for (const uint64_t value : values) out = (out ^ value) * 0x9e3779b97f4a7c15 + (out >> 29);
  return out;
}

gate::Work memoryWork(cmd::Op op, uint64_t bytes, int64_t bytesPerNs) {
  const auto guess = static_cast<int64_t>(std::min(bytes, uint64_t{1} << 50)) / bytesPerNs;
  return {static_cast<uint64_t>(op), bytes, std::max<uint64_t>(bytes, 1), std::max(guess, kLeastGuessNs)};
}

/// Whether the ends of a copy are host memory; none if both are: then the copy does not use the device.
std::optional<LaneWork> copyBetween(cmd::Op op, bool toHost, bool fromHost, uint64_t bytes, uint64_t stream) {
  if (toHost && fromHost) return std::nullopt;
  if (!toHost && !fromHost) return LaneWork{Lane::kCompute, memoryWork(op, bytes, kDeviceBytesPerNs), stream};
  return LaneWork{fromHost ? Lane::kToDevice : Lane::kFromDevice, copyWork(op, bytes), stream};
}

LaneWork launchWork(const cmd::Launch& launch) {
  const uint64_t grid = uint64_t{launch.gridX} * launch.gridY * launch.gridZ;
  const uint64_t shape = mixed({launch.gridX, launch.gridY, launch.gridZ, launch.blockX, launch.blockY, launch.blockZ,
                                launch.sharedBytes, launch.flags});
  return {Lane::kCompute, {launch.function, shape, std::max<uint64_t>(grid, 1), {}}, launch.stream};
}

template <typename C>
LaneWork workWithin(std::span<const std::byte> body) {
  const C command = fixedOf<C>(body);
  uint64_t bytes = 0;
  if constexpr (requires { command.ByteCount; })
    bytes = command.ByteCount;
  else if constexpr (requires { command.Height; })
    bytes = command.Width * command.Height;
  else
    bytes = command.N;
  constexpr size_t element = requires { command.ui; }
  ? 4 : requires { command.us; }
  ? 2 : 1;
  bytes *= element;
  LaneWork out{Lane::kCompute, memoryWork(C::kOp, bytes, kDeviceBytesPerNs), 0};
  if constexpr (requires { command.hStream; })
    out.stream = command.hStream;
  else
    out.stream = command.stream;
  return out;
}

uint64_t product(uint64_t a, uint64_t b) {
  uint64_t out = 0;
  return __builtin_mul_overflow(a, b, &out) ? UINT64_MAX : out;
}

std::optional<LaneWork> boxWork(const cmd::CopyBox& box, const IsHost& isHost) {
  const bool toHost = !box.dstArray && isHost(box.dstAddress);
  const bool fromHost = !box.srcArray && isHost(box.srcAddress);
  const uint64_t row = toHost || fromHost ? std::max(box.width, kLeastRowBytes) : box.width;
  auto found =
      copyBetween(cmd::Op::kCopyBox, toHost, fromHost, product(product(row, box.height), box.depth), box.stream);
  // Boxes of few rows cost less than boxes of many rows with the same number of bytes.
  if (found) found->work.shape = mixed({box.width, box.height, box.depth});
  return found;
}

}  // namespace

gate::Work copyWork(cmd::Op op, uint64_t bytes) { return memoryWork(op, bytes, kBusBytesPerNs); }

std::optional<LaneWork> laneWorkOf(cmd::Op op, std::span<const std::byte> head, const IsHost& isHost) {
  switch (op) {
    case cmd::Op::kCopyToDevice: {
      const auto copy = fixedOf<cmd::CopyToDevice>(head);
      return copyBetween(op, isHost(copy.address), true, copy.dataBytes, copy.stream);
    }
    case cmd::Op::kCopyFromLanding: {
      const auto copy = fixedOf<cmd::CopyFromLanding>(head);
      return copyBetween(op, isHost(copy.address), true, copy.bytes, copy.stream);
    }
    case cmd::Op::kLandFromDevice: {
      const auto copy = fixedOf<cmd::LandFromDevice>(head);
      return copyBetween(op, true, isHost(copy.address), copy.bytes, copy.stream);
    }
    case cmd::Op::kCopyHostShared: {
      const auto copy = fixedOf<cmd::CopyHostShared>(head);
      const bool isDeviceHost = isHost(copy.deviceAddress);
      return copyBetween(op, copy.direction != 1 || isDeviceHost, copy.direction == 1 || isDeviceHost, copy.bytes,
                         copy.stream);
    }
    case cmd::Op::kCopyBox: return boxWork(fixedOf<cmd::CopyBox>(head), isHost);
    case cmd::Op::kLaunch: return launchWork(fixedOf<cmd::Launch>(head));
    case cmd::Op::kGraphLaunch: {
      const auto launch = fixedOf<cmd::GraphLaunch>(head);
      return LaneWork{Lane::kCompute, {launch.exec, static_cast<uint64_t>(op), 1, {}}, launch.stream};
    }
    case cmd::Op::kMemcpyDtoDV2: {
      const auto copy = fixedOf<cmd::MemcpyDtoDV2>(head);
      return copyBetween(op, isHost(copy.dstDevice), isHost(copy.srcDevice), copy.ByteCount, copy.stream);
    }
    case cmd::Op::kMemcpyDtoDAsyncV2: {
      const auto copy = fixedOf<cmd::MemcpyDtoDAsyncV2>(head);
      return copyBetween(op, isHost(copy.dstDevice), isHost(copy.srcDevice), copy.ByteCount, copy.hStream);
    }
    case cmd::Op::kMemsetD8V2: return workWithin<cmd::MemsetD8V2>(head);
    case cmd::Op::kMemsetD16V2: return workWithin<cmd::MemsetD16V2>(head);
    case cmd::Op::kMemsetD32V2: return workWithin<cmd::MemsetD32V2>(head);
    case cmd::Op::kMemsetD2D8V2: return workWithin<cmd::MemsetD2D8V2>(head);
    case cmd::Op::kMemsetD2D16V2: return workWithin<cmd::MemsetD2D16V2>(head);
    case cmd::Op::kMemsetD2D32V2: return workWithin<cmd::MemsetD2D32V2>(head);
    case cmd::Op::kMemsetD8Async: return workWithin<cmd::MemsetD8Async>(head);
    case cmd::Op::kMemsetD16Async: return workWithin<cmd::MemsetD16Async>(head);
    case cmd::Op::kMemsetD32Async: return workWithin<cmd::MemsetD32Async>(head);
    case cmd::Op::kMemsetD2D8Async: return workWithin<cmd::MemsetD2D8Async>(head);
    case cmd::Op::kMemsetD2D16Async: return workWithin<cmd::MemsetD2D16Async>(head);
    case cmd::Op::kMemsetD2D32Async: return workWithin<cmd::MemsetD2D32Async>(head);
    default: return std::nullopt;
  }
}

}  // namespace millpond::worker
