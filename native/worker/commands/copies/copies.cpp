// SPDX-License-Identifier: Apache-2.0
#include "worker/commands/copies/copies.h"

#include <cstring>

namespace millpond::worker {

CUresult Copies::onCopyHostShared(const cmd::Decoded<cmd::CopyHostShared>& command) {
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
    return violation("a copy of unknown direction");
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

CUresult Copies::onSynchronousCopy(const cmd::Decoded<cmd::SynchronousCopy>& command) {
  const auto& copy = command.fixed;
  Stream s;
  if (!stream(copy.stream, s)) return violation("unknown stream");
  if (copy.isOver)
    session_.synchronousCopies().end(s, copy.copy);
  else
    session_.synchronousCopies().begin(s, copy.copy);
  return CUDA_SUCCESS;
}

CUresult Copies::onCopyBox(const cmd::Decoded<cmd::CopyBox>& command) {
  const auto& box = command.fixed;
  Stream s;
  if (!stream(box.stream, s)) return violation("unknown stream");
  if (box.width == 0 || box.height == 0 || box.depth == 0) return violation("an empty box");
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
    Box side{
        .address = address, .pitch = pitch, .rows = rows, .width = box.width, .height = box.height, .depth = box.depth};
    if (!side.fill()) return CUDA_ERROR_INVALID_VALUE;
    if (CUresult rc = addresses_.reach(side, range)) return rc;
    type = range.isHost() ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
    if (range.isHost())
      host = range.host();
    else
      device = range.device();
    pitchOut = side.pitch;
    rowsOut = side.rows;
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
        s, [copy, to = static_cast<std::byte*>(copy.dstHost), from = static_cast<const std::byte*>(copy.srcHost)] {
          for (uint64_t z = 0; z < copy.Depth; ++z)
            for (uint64_t y = 0; y < copy.Height; ++y)
              std::memmove(to + (z * copy.dstHeight + y) * copy.dstPitch,
                           from + (z * copy.srcHeight + y) * copy.srcPitch, copy.WidthInBytes);
        });
  if (fromHost)
    if (CUresult rc = hostCopies_.keepOrder(s, box.width * box.height * box.depth)) return rc;
  return driver_.cuMemcpy3DAsync_v2(&copy, s.handle);
}

}  // namespace millpond::worker
