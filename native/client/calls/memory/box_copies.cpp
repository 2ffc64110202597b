// SPDX-License-Identifier: Apache-2.0
// Copies in two and three dimensions, of arrays, between devices, and in batches. Ends that the worker can access go in
// one command; this process's own memory goes through device memory that holds its rows packed, or row by row.
#include <algorithm>
#include <atomic>
#include <cstring>

#include "client/call/preconditions.h"
#include "client/calls/graphs/captured_copy.h"
#include "client/calls/memory/copies.h"
#include "client/calls/memory/copy_ends.h"
#include "client/gen/api.h"
#include "client/process/client.h"
#include "client/session/callback_thread.h"
#include "client/state/arrays.h"
#include "client/state/context.h"

namespace millpond::client::api {
namespace {

/// Maximum device memory that a copy of rows takes, unless one row is longer.
constexpr size_t kTemporaryBytes = size_t{4} << 20;
/// Rows up to this size are packed if there are enough of them: the round trips would take longer than two further
/// copies.
constexpr size_t kLongestPackedRow = size_t{64} << 10;
constexpr size_t kFewestPackedRows = 4;
/// The worker has room for this many landing rows.
constexpr size_t kMostLandingRows = 8192;

CUresult postBox(Call& call, const End& to, const End& from, const Extent& extent, uint64_t stream) {
  cmd::CopyBox wire{};
  wire.srcArray = from.array;
  wire.srcAddress = from.address;
  wire.srcPitch = from.pitch;
  wire.srcRows = from.rows;
  wire.srcX = from.x;
  wire.srcY = from.y;
  wire.srcZ = from.z;
  wire.dstArray = to.array;
  wire.dstAddress = to.address;
  wire.dstPitch = to.pitch;
  wire.dstRows = to.rows;
  wire.dstX = to.x;
  wire.dstY = to.y;
  wire.dstZ = to.z;
  wire.width = extent.width;
  wire.height = extent.height;
  wire.depth = extent.depth;
  wire.stream = stream;
  return call.post(wire);
}

/// Copies between this process's own memory and an array or device memory, many rows at a time. `isTaken`: whether there was
/// device memory for the packed rows; otherwise nothing was copied.
CUresult throughTemporary(Call& call, const End& to, const End& from, const Extent& extent, uint64_t stream,
                          bool& isTaken) {
  const End& own = from.isOwn ? from : to;
  if (from.isOwn)
    if (const CUresult r = call.remote().landings.await(
            CallSink(call), own.row(0, 0), own.row(extent.height - 1, extent.depth - 1) + extent.width - own.row(0, 0));
        r != CUDA_SUCCESS)
      return r;
  const size_t rowsAtOnce = std::clamp<size_t>(kTemporaryBytes / extent.width, 1, extent.height);
  const size_t sliceBytes = rowsAtOnce * extent.width;
  // Several slices are copied together only if each of them is whole.
  const size_t slicesAtOnce =
      rowsAtOnce == extent.height ? std::clamp<size_t>(kTemporaryBytes / sliceBytes, 1, extent.depth) : 1;
  CUdeviceptr temporary = 0;
  if (const CUresult r = takeTemporary(call, slicesAtOnce * sliceBytes, stream, temporary); r != CUDA_SUCCESS) return r;
  isTaken = true;
  std::vector<std::byte> packed(slicesAtOnce * sliceBytes);
  CUresult result = CUDA_SUCCESS;
  for (size_t z = 0; z < extent.depth && result == CUDA_SUCCESS; z += slicesAtOnce)
    for (size_t y = 0; y < extent.height && result == CUDA_SUCCESS; y += rowsAtOnce) {
      const Extent part{extent.width, std::min(rowsAtOnce, extent.height - y),
                        std::min(slicesAtOnce, extent.depth - z)};
      const size_t bytes = part.width * part.height * part.depth;
      End middle;
      middle.address = temporary;
      middle.pitch = extent.width;
      middle.rows = part.height;
      const End far = (from.isOwn ? to : from).from(y, z);
      const auto eachRow = [&](auto copyRow) {
        for (size_t k = 0; k < part.depth; ++k)
          for (size_t i = 0; i < part.height; ++i)
            copyRow(packed.data() + (k * part.height + i) * extent.width,
                    reinterpret_cast<std::byte*>(own.row(y + i, z + k)));
      };
      if (from.isOwn) {
        eachRow([&](std::byte* here, const std::byte* there) { std::memcpy(here, there, extent.width); });
        result = toDevice(call, temporary, packed.data(), bytes, stream, Wait::kNo);
        if (result == CUDA_SUCCESS) result = postBox(call, far, middle, part, stream);
      } else {
        result = postBox(call, middle, far, part, stream);
        if (result == CUDA_SUCCESS) result = fromDevice(call, packed.data(), temporary, bytes, stream, Wait::kYes);
        if (result == CUDA_SUCCESS)
          eachRow([&](const std::byte* here, std::byte* there) { std::memcpy(there, here, extent.width); });
      }
    }
  const CUresult given = giveTemporary(call, temporary, stream);
  return result != CUDA_SUCCESS ? result : given;
}

/// Whether rows between this process's own memory and a device can be packed. The source must be read, and the
/// destination written, before the call returns.
CUresult canPack(Call& call, const End& to, const End& from, const Extent& extent, uint64_t stream, Wait wait,
                 bool& can) {
  can = false;
  const size_t rows = extent.height * extent.depth;
  if (to.isOwn == from.isOwn || extent.width > kLongestPackedRow || rows < kFewestPackedRows) return CUDA_SUCCESS;
  const End& own = from.isOwn ? from : to;
  const End& far = from.isOwn ? to : from;
  const uint64_t behind = far.row(extent.height - 1, extent.depth - 1) + extent.width;
  const auto run = behind > far.address ? call.remote().memory.find(far.address, behind - far.address) : std::nullopt;
  if (!run || !run->isOfWorker()) return CUDA_SUCCESS;
  if (run->context != call.context() || call.streamContext(stream) != call.context()) return CUDA_SUCCESS;
  const auto pinned = call.remote().memory.find(own.row(0, 0));
  if (from.isOwn && call.remote().landings.any()) return CUDA_SUCCESS;
  if (from.isOwn && pinned &&
      (CallbackThread::busy(call.streamContext(stream)) || call.remote().mirror.mayStreamWait()))
    return CUDA_SUCCESS;
  if (to.isOwn && pinned && wait == Wait::kNo) return CUDA_SUCCESS;
  bool isCaptured = false;
  const CUresult r = call.isCaptured(stream, isCaptured);
  can = r == CUDA_SUCCESS && !isCaptured;
  return r;
}

/// Whether an asynchronous copy between pinned memory of this process and the device is one command, for which the memory is
/// mirrored. One command is a single piece of work of its stream, and the call does not wait: streams may wait for
/// functions of the program or for words, and these for the calling thread. It is also one command if more rows would land
/// than the worker has room for.
bool isOneCommand(Call& call, const End& to, const End& from, const Extent& extent, uint64_t stream, Wait wait) {
  if (to.isOwn == from.isOwn || wait == Wait::kYes) return false;
  const End& own = from.isOwn ? from : to;
  const uint64_t first = own.row(0, 0);
  const auto run =
      call.remote().memory.find(first, own.row(extent.height - 1, extent.depth - 1) + extent.width - first);
  if (!run || run->kind != MemoryKind::kPinnedLocal) return false;
  const size_t rows = extent.height * extent.depth;
  if (to.isOwn && rows > kMostLandingRows) return true;
  const bool mayBeHeldUp = HostFunctions::anyPending() || call.remote().mirror.mayStreamWait();
  return mayBeHeldUp && (rows > 1 || to.array || from.array) && call.isDoneNow(stream);
}

/// Sends the several commands of a synchronous copy, so that work of other streams follows them as it follows one command.
template <typename Send>
CUresult asOne(Call& call, uint64_t stream, const Send& send) {
  static std::atomic<uint64_t> copies{0};
  cmd::SynchronousCopy bracket{};
  bracket.stream = stream;
  bracket.copy = ++copies;
  if (const CUresult r = call.post(bracket); r != CUDA_SUCCESS) return r;
  const CUresult sent = send();
  bracket.isOver = 1;
  const CUresult ended = call.post(bracket);
  return sent != CUDA_SUCCESS ? sent : ended;
}

CUresult copyEnds(Call& call, End to, End from, const Extent& extent, uint64_t stream, Wait wait) {
  if (!to.isOwn && !from.isOwn) {
    if (const CUresult r = postBox(call, to, from, extent, stream); r != CUDA_SUCCESS || wait == Wait::kNo) return r;
    // Host memory may be used again as soon as the call returns.
    const bool touchesHost =
        (!to.array && isSeenByHost(call, to.address)) || (!from.array && isSeenByHost(call, from.address));
    return touchesHost ? awaitStream(call, stream) : call.check();
  }
  if (isOneCommand(call, to, from, extent, stream, wait)) {
    to.isOwn = from.isOwn = false;
    return postBox(call, to, from, extent, stream);
  }
  if (to.array || from.array) {
    bool isTaken = false;
    const CUresult r = throughTemporary(call, to, from, extent, stream, isTaken);
    return r == CUDA_SUCCESS && wait == Wait::kYes ? call.check() : r;
  }
  if (isOneRun(to, from, extent))
    return unified(call, to.address, from.address, extent.width * extent.height * extent.depth, stream, wait);
  bool isPacked = false;
  if (const CUresult r = canPack(call, to, from, extent, stream, wait, isPacked); r != CUDA_SUCCESS) return r;
  if (isPacked) {
    bool isTaken = false;
    const CUresult r = throughTemporary(call, to, from, extent, stream, isTaken);
    if (isTaken && (r != CUDA_SUCCESS || wait == Wait::kNo)) return r;
    if (isTaken) return isSeenByHost(call, to.address) && !to.isOwn ? awaitStream(call, stream) : call.check();
  }
  const auto eachRow = [&](auto&& row) {
    for (size_t z = 0; z < extent.depth; ++z)
      for (size_t y = 0; y < extent.height; ++y)
        if (const CUresult r = row(y, z); r != CUDA_SUCCESS) return r;
    return CUDA_SUCCESS;
  };
  if (!onDevice(call, to.address) && !onDevice(call, from.address)) {
    // The copy of the first row waits for the stream, and fails where memory was freed.
    if (const CUresult r = unified(call, to.address, from.address, extent.width, stream, wait); r != CUDA_SUCCESS)
      return r;
    return eachRow([&](size_t y, size_t z) {
      if (y != 0 || z != 0)
        std::memmove(reinterpret_cast<void*>(to.row(y, z)), reinterpret_cast<const void*>(from.row(y, z)),
                     extent.width);
      return CUDA_SUCCESS;
    });
  }
  return eachRow(
      [&](size_t y, size_t z) { return unified(call, to.row(y, z), from.row(y, z), extent.width, stream, wait); });
}

CUresult copyBox(Call& call, const Side& dst, const Side& src, const Extent& extent, uint64_t stream, Wait wait) {
  if (extent.width == 0 || extent.height == 0 || extent.depth == 0) return CUDA_SUCCESS;
  End to, from;
  if (const CUresult r = resolveEnd(call, src, extent, from); r != CUDA_SUCCESS) return r;
  if (const CUresult r = resolveEnd(call, dst, extent, to); r != CUDA_SUCCESS) return r;
  if (to.isOwn || from.isOwn) {
    bool isCaptured = false;
    if (const CUresult r = call.isCaptured(stream, isCaptured); r != CUDA_SUCCESS) return r;
    if (isCaptured) return captureCopy(call, stream, boxOf(dst, src, extent));
  }
  // The size of the whole copy decides, not that of a row.
  const bool endsHere =
      wait == Wait::kYes && from.isOwn && endsWithCall(call, from.address, extent.width * extent.height * extent.depth);
  if (wait == Wait::kYes && from.isOwn && !to.isOwn && !endsHere && !isOneRun(to, from, extent))
    return asOne(call, stream, [&] { return copyEnds(call, to, from, extent, stream, wait); });
  const CUresult r = copyEnds(call, to, from, extent, stream, endsHere ? Wait::kNo : wait);
  return r == CUDA_SUCCESS && endsHere ? awaitStream(call, stream) : r;
}

CUresult copy2D(const char* name, Flavour flavour, const CUDA_MEMCPY2D* c, CUstream hStream, Wait wait) {
  Call call(name, Needs::kAny);
  uint64_t stream = 0;
  if (const CUresult r = call.stream(hStream, flavour, stream); r != CUDA_SUCCESS) return r;
  if (c == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Side src{c->srcMemoryType, c->srcHost, c->srcDevice, c->srcArray, c->srcXInBytes,
                 c->srcY,          0,          c->srcPitch,  0,           0};
  const Side dst{c->dstMemoryType, c->dstHost, c->dstDevice, c->dstArray, c->dstXInBytes,
                 c->dstY,          0,          c->dstPitch,  0,           0};
  return copyBox(call, dst, src, {c->WidthInBytes, c->Height, 1}, stream, wait);
}

template <typename T>
CUresult copy3D(const char* name, Flavour flavour, const T* c, CUstream hStream, Wait wait) {
  Call call(name, Needs::kAny);
  uint64_t stream = 0;
  if (const CUresult r = call.stream(hStream, flavour, stream); r != CUDA_SUCCESS) return r;
  if (c == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return copyBox(call, destinationOf(*c), sourceOf(*c), {c->WidthInBytes, c->Height, c->Depth}, stream, wait);
}

/// A part of a one-dimensional array, from a byte on.
Side rowOf(CUarray array, size_t offset) { return {CU_MEMORYTYPE_ARRAY, nullptr, 0, array, offset, 0, 0, 0, 0, 0}; }
Side rowOf(const void* host) { return {CU_MEMORYTYPE_HOST, host, 0, nullptr, 0, 0, 0, 0, 0, 0}; }
Side rowOf(CUdeviceptr device) { return {CU_MEMORYTYPE_DEVICE, nullptr, device, nullptr, 0, 0, 0, 0, 0, 0}; }

CUresult copyRow(const char* name, Flavour flavour, const Side& dst, const Side& src, size_t bytes, CUstream hStream,
                 Wait wait) {
  Call call(name, Needs::kAny);
  uint64_t stream = 0;
  if (const CUresult r = call.stream(hStream, flavour, stream); r != CUDA_SUCCESS) return r;
  return copyBox(call, dst, src, {bytes, 1, 1}, stream, wait);
}

bool isContext(CUcontext context);

CUresult peer(const char* name, Flavour flavour, CUdeviceptr dst, CUcontext dstContext, CUdeviceptr src,
              CUcontext srcContext, size_t bytes, CUstream hStream) {
  Call call(name, Needs::kAny);
  uint64_t stream = 0;
  if (const CUresult r = call.stream(hStream, flavour, stream); r != CUDA_SUCCESS) return r;
  if (!isContext(dstContext) || !isContext(srcContext)) return CUDA_ERROR_INVALID_CONTEXT;
  if (bytes == 0) return CUDA_SUCCESS;
  cmd::MemcpyDtoDAsyncV2 wire{};
  wire.dstDevice = dst;
  wire.srcDevice = src;
  wire.ByteCount = bytes;
  wire.hStream = stream;
  if (const auto done = instead::copyOfOwn(call, wire)) return *done;
  return call.post(wire);
}

/// The stream of a batch, which must not be a default stream of the legacy kind.
CUresult batchStream(Call& call, CUstream hStream, Flavour flavour, uint64_t& stream) {
  if (const CUresult r = call.stream(hStream, flavour, stream); r != CUDA_SUCCESS) return r;
  return stream == 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

bool isOrder(CUmemcpySrcAccessOrder order) {
  return order >= CU_MEMCPY_SRC_ACCESS_ORDER_STREAM && order <= CU_MEMCPY_SRC_ACCESS_ORDER_ANY;
}

CUresult batch(const char* name, Flavour flavour, CUdeviceptr* dsts, CUdeviceptr* srcs, size_t* sizes, size_t count,
               CUmemcpyAttributes* attrs, size_t* attrsIdxs, size_t numAttrs, CUstream hStream) {
  Call call(name, Needs::kAny);
  uint64_t stream = 0;
  if (const CUresult r = batchStream(call, hStream, flavour, stream); r != CUDA_SUCCESS) return r;
  if (dsts == nullptr || srcs == nullptr || sizes == nullptr || count == 0 || attrs == nullptr ||
      attrsIdxs == nullptr || numAttrs == 0 || numAttrs > count || attrsIdxs[0] != 0)
    return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < numAttrs; ++i)
    if (!isOrder(attrs[i].srcAccessOrder) || (i > 0 && (attrsIdxs[i] <= attrsIdxs[i - 1] || attrsIdxs[i] >= count)))
      return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < count; ++i)
    if (dsts[i] == 0 || srcs[i] == 0 || sizes[i] == 0) return CUDA_ERROR_INVALID_VALUE;
  size_t attribute = 0;
  for (size_t i = 0; i < count; ++i) {
    while (attribute + 1 < numAttrs && attrsIdxs[attribute + 1] <= i) ++attribute;
    if (const CUresult r = awaitSource(call, attrs[attribute].srcAccessOrder, srcs[i], stream); r != CUDA_SUCCESS)
      return r;
    if (const CUresult r = unified(call, dsts[i], srcs[i], sizes[i], stream, Wait::kNo); r != CUDA_SUCCESS) return r;
  }
  return CUDA_SUCCESS;
}

/// An end of a copy of a batch; lengths there count elements.
CUresult sideOf(Call& call, const CUmemcpy3DOperand& operand, uint32_t element, Side& side) {
  if (operand.type == CU_MEMCPY_OPERAND_TYPE_POINTER) {
    const auto& p = operand.op.ptr;
    side = {CU_MEMORYTYPE_UNIFIED, nullptr, p.ptr, nullptr, 0, 0, 0, p.rowLength * element, p.layerHeight, 0};
    return CUDA_SUCCESS;
  }
  if (operand.type != CU_MEMCPY_OPERAND_TYPE_ARRAY) return CUDA_ERROR_INVALID_VALUE;
  const auto& a = operand.op.array;
  if (!call.remote().arrays.find(a.array)) return CUDA_ERROR_INVALID_HANDLE;
  side = {CU_MEMORYTYPE_ARRAY, nullptr, 0, a.array, a.offset.x * element, a.offset.y, a.offset.z, 0, 0, 0};
  return CUDA_SUCCESS;
}

CUresult batch3D(const char* name, Flavour flavour, size_t numOps, CUDA_MEMCPY3D_BATCH_OP* opList,
                 unsigned long long flags, CUstream hStream) {
  Call call(name, Needs::kAny);
  uint64_t stream = 0;
  if (const CUresult r = batchStream(call, hStream, flavour, stream); r != CUDA_SUCCESS) return r;
  if (numOps == 0 || opList == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < numOps; ++i) {
    const CUDA_MEMCPY3D_BATCH_OP& op = opList[i];
    if (!isOrder(op.srcAccessOrder)) return CUDA_ERROR_INVALID_VALUE;
    uint32_t element = 1;
    for (const CUmemcpy3DOperand* operand : {&op.src, &op.dst})
      if (operand->type == CU_MEMCPY_OPERAND_TYPE_ARRAY)
        if (const auto info = call.remote().arrays.find(operand->op.array.array)) element = info->elementBytes;
    Side src, dst;
    if (const CUresult r = sideOf(call, op.src, element, src); r != CUDA_SUCCESS) return r;
    if (const CUresult r = sideOf(call, op.dst, element, dst); r != CUDA_SUCCESS) return r;
    if (src.type == CU_MEMORYTYPE_UNIFIED)
      if (const CUresult r = awaitSource(call, op.srcAccessOrder, src.device, stream); r != CUDA_SUCCESS) return r;
    const Extent extent{op.extent.width * element, op.extent.height, op.extent.depth};
    if (const CUresult r = copyBox(call, dst, src, extent, stream, Wait::kNo); r != CUDA_SUCCESS) return r;
  }
  return CUDA_SUCCESS;
}

bool isContext(CUcontext context) { return Client::instance().contexts().find(context) != nullptr; }

}  // namespace

CUresult cuMemcpy2D_v2(Flavour flavour, const CUDA_MEMCPY2D* pCopy) noexcept {
  return copy2D("cuMemcpy2D_v2", flavour, pCopy, nullptr, Wait::kYes);
}
CUresult cuMemcpy2DUnaligned_v2(Flavour flavour, const CUDA_MEMCPY2D* pCopy) noexcept {
  return copy2D("cuMemcpy2DUnaligned_v2", flavour, pCopy, nullptr, Wait::kYes);
}
CUresult cuMemcpy2DAsync_v2(Flavour flavour, const CUDA_MEMCPY2D* pCopy, CUstream hStream) noexcept {
  return copy2D("cuMemcpy2DAsync_v2", flavour, pCopy, hStream, Wait::kNo);
}
CUresult cuMemcpy3D_v2(Flavour flavour, const CUDA_MEMCPY3D* pCopy) noexcept {
  return copy3D("cuMemcpy3D_v2", flavour, pCopy, nullptr, Wait::kYes);
}
CUresult cuMemcpy3DAsync_v2(Flavour flavour, const CUDA_MEMCPY3D* pCopy, CUstream hStream) noexcept {
  return copy3D("cuMemcpy3DAsync_v2", flavour, pCopy, hStream, Wait::kNo);
}
CUresult cuMemcpy3DPeer(Flavour flavour, const CUDA_MEMCPY3D_PEER* pCopy) noexcept {
  return copy3D("cuMemcpy3DPeer", flavour, pCopy, nullptr, Wait::kYes);
}
CUresult cuMemcpy3DPeerAsync(Flavour flavour, const CUDA_MEMCPY3D_PEER* pCopy, CUstream hStream) noexcept {
  return copy3D("cuMemcpy3DPeerAsync", flavour, pCopy, hStream, Wait::kNo);
}

CUresult cuMemcpyPeer(Flavour flavour, CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice,
                      CUcontext srcContext, size_t ByteCount) noexcept {
  return peer("cuMemcpyPeer", flavour, dstDevice, dstContext, srcDevice, srcContext, ByteCount, nullptr);
}
CUresult cuMemcpyPeerAsync(Flavour flavour, CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice,
                           CUcontext srcContext, size_t ByteCount, CUstream hStream) noexcept {
  return peer("cuMemcpyPeerAsync", flavour, dstDevice, dstContext, srcDevice, srcContext, ByteCount, hStream);
}

CUresult cuMemcpyBatchAsync(Flavour flavour, CUdeviceptr* dsts, CUdeviceptr* srcs, size_t* sizes, size_t count,
                            CUmemcpyAttributes* attrs, size_t* attrsIdxs, size_t numAttrs, size_t* failIdx,
                            CUstream hStream) noexcept {
  const CUresult result =
      batch("cuMemcpyBatchAsync", flavour, dsts, srcs, sizes, count, attrs, attrsIdxs, numAttrs, hStream);
  // The failure is not that of a single copy.
  if (result != CUDA_SUCCESS && failIdx) *failIdx = SIZE_MAX;
  return result;
}
CUresult cuMemcpyBatchAsync_v2(Flavour flavour, CUdeviceptr* dsts, CUdeviceptr* srcs, size_t* sizes, size_t count,
                               CUmemcpyAttributes* attrs, size_t* attrsIdxs, size_t numAttrs,
                               CUstream hStream) noexcept {
  return batch("cuMemcpyBatchAsync_v2", flavour, dsts, srcs, sizes, count, attrs, attrsIdxs, numAttrs, hStream);
}
CUresult cuMemcpy3DBatchAsync(Flavour flavour, size_t numOps, CUDA_MEMCPY3D_BATCH_OP* opList, size_t* failIdx,
                              unsigned long long flags, CUstream hStream) noexcept {
  const CUresult result = batch3D("cuMemcpy3DBatchAsync", flavour, numOps, opList, flags, hStream);
  if (result != CUDA_SUCCESS && failIdx) *failIdx = SIZE_MAX;
  return result;
}
CUresult cuMemcpy3DBatchAsync_v2(Flavour flavour, size_t numOps, CUDA_MEMCPY3D_BATCH_OP* opList,
                                 unsigned long long flags, CUstream hStream) noexcept {
  return batch3D("cuMemcpy3DBatchAsync_v2", flavour, numOps, opList, flags, hStream);
}

CUresult cuMemcpyAtoA_v2(Flavour flavour, CUarray dstArray, size_t dstOffset, CUarray srcArray, size_t srcOffset,
                         size_t ByteCount) noexcept {
  return copyRow("cuMemcpyAtoA_v2", flavour, rowOf(dstArray, dstOffset), rowOf(srcArray, srcOffset), ByteCount, nullptr,
                 Wait::kYes);
}
CUresult cuMemcpyAtoD_v2(Flavour flavour, CUdeviceptr dstDevice, CUarray srcArray, size_t srcOffset,
                         size_t ByteCount) noexcept {
  return copyRow("cuMemcpyAtoD_v2", flavour, rowOf(dstDevice), rowOf(srcArray, srcOffset), ByteCount, nullptr,
                 Wait::kYes);
}
CUresult cuMemcpyAtoH_v2(Flavour flavour, void* dstHost, CUarray srcArray, size_t srcOffset,
                         size_t ByteCount) noexcept {
  return copyRow("cuMemcpyAtoH_v2", flavour, rowOf(dstHost), rowOf(srcArray, srcOffset), ByteCount, nullptr,
                 Wait::kYes);
}
CUresult cuMemcpyAtoHAsync_v2(Flavour flavour, void* dstHost, CUarray srcArray, size_t srcOffset, size_t ByteCount,
                              CUstream hStream) noexcept {
  return copyRow("cuMemcpyAtoHAsync_v2", flavour, rowOf(dstHost), rowOf(srcArray, srcOffset), ByteCount, hStream,
                 Wait::kNo);
}
CUresult cuMemcpyDtoA_v2(Flavour flavour, CUarray dstArray, size_t dstOffset, CUdeviceptr srcDevice,
                         size_t ByteCount) noexcept {
  return copyRow("cuMemcpyDtoA_v2", flavour, rowOf(dstArray, dstOffset), rowOf(srcDevice), ByteCount, nullptr,
                 Wait::kYes);
}
CUresult cuMemcpyHtoA_v2(Flavour flavour, CUarray dstArray, size_t dstOffset, const void* srcHost,
                         size_t ByteCount) noexcept {
  return copyRow("cuMemcpyHtoA_v2", flavour, rowOf(dstArray, dstOffset), rowOf(srcHost), ByteCount, nullptr,
                 Wait::kYes);
}
CUresult cuMemcpyHtoAAsync_v2(Flavour flavour, CUarray dstArray, size_t dstOffset, const void* srcHost,
                              size_t ByteCount, CUstream hStream) noexcept {
  return copyRow("cuMemcpyHtoAAsync_v2", flavour, rowOf(dstArray, dstOffset), rowOf(srcHost), ByteCount, hStream,
                 Wait::kNo);
}

}  // namespace millpond::client::api
