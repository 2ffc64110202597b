// SPDX-License-Identifier: Apache-2.0
// Entry points: copies and fills.
#include "softgpu/driver/api/memory/copy.h"

#include "softgpu/driver/api/api.h"
#include "softgpu/driver/graphs/capture.h"
#include "softgpu/driver/streams/transfers.h"

using namespace millpond::softgpu;
using namespace millpond::softgpu::api;

namespace {

uint64_t addressOf(const void* pointer) { return reinterpret_cast<uint64_t>(pointer); }

CUresult copyLine(CUstream stream, CopyEnd to, CopyEnd from, size_t bytes, Return when) {
  return withStream(stream, [&](Driver&, const StreamTarget& target) -> CUresult {
    return enqueueCopy(target, Copy{from, to, Extent{bytes}}, when);
  });
}

CopyEnd device(CUdeviceptr address) { return {Place::device, address}; }
CopyEnd host(const void* address) { return {Place::host, addressOf(address)}; }
CopyEnd unified(CUdeviceptr address) { return {Place::unified, address}; }

/// One end in the driver's structures for two- and three-dimensional copies.
struct Side {
  size_t x, y, z;
  CUmemorytype type;
  const void* host;
  CUdeviceptr device;
  size_t pitch, height;
  CUarray array = nullptr;
};

/// The device memory of an array; CUDA_ERROR_INVALID_VALUE if the copy would exceed it.
CUresult inMemory(const Side& side, const Extent& extent, Side* flat) {
  const auto array = Driver::instance().arrays().find(side.array);
  if (!array) return CUDA_ERROR_INVALID_HANDLE;
  const auto reaches = [](uint64_t from, uint64_t count, uint64_t end) { return count > end || from > end - count; };
  if (reaches(side.x, extent.width, array->rowBytes()) || reaches(side.y, extent.height, array->rows()) ||
      reaches(side.z, extent.depth, array->slices()))
    return CUDA_ERROR_INVALID_VALUE;
  *flat = side;
  flat->type = CU_MEMORYTYPE_DEVICE;
  flat->device = array->base;
  flat->pitch = array->rowBytes();
  flat->height = array->rows();
  return CUDA_SUCCESS;
}

CUresult resolveSide(const Side& given, const Extent& extent, CopyEnd* end) {
  Side side = given;
  if (given.type == CU_MEMORYTYPE_ARRAY)
    if (CUresult result = inMemory(given, extent, &side)) return result;
  switch (side.type) {
    case CU_MEMORYTYPE_HOST: *end = host(side.host); break;
    case CU_MEMORYTYPE_DEVICE: *end = device(side.device); break;
    case CU_MEMORYTYPE_UNIFIED: *end = unified(side.device); break;
    default: return CUDA_ERROR_INVALID_VALUE;
  }
  if (end->address == 0 || side.pitch > kMaxPitch) return CUDA_ERROR_INVALID_VALUE;
  const bool hasRows = extent.height > 1 || side.y > 0 || extent.depth > 1 || side.z > 0;
  const bool hasSlices = extent.depth > 1 || side.z > 0;
  uint64_t rowEnd;
  if (__builtin_add_overflow(uint64_t{side.x}, extent.width, &rowEnd)) return CUDA_ERROR_INVALID_VALUE;
  if (hasRows && side.pitch < rowEnd) return CUDA_ERROR_INVALID_VALUE;
  if (hasSlices && (side.height < extent.height || side.y > side.height - extent.height)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  end->rowStride = side.pitch;
  uint64_t offset = side.x;
  uint64_t rows;
  uint64_t rowBytes;
  if (__builtin_mul_overflow(uint64_t{side.pitch}, uint64_t{side.height}, &end->sliceStride) ||
      __builtin_mul_overflow(uint64_t{side.z}, uint64_t{side.height}, &rows) ||
      __builtin_add_overflow(rows, uint64_t{side.y}, &rows) ||
      __builtin_mul_overflow(rows, uint64_t{side.pitch}, &rowBytes) ||
      __builtin_add_overflow(offset, rowBytes, &offset) ||
      __builtin_add_overflow(end->address, offset, &end->address)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

CUresult resolveSides(const Side& to, const Side& from, const Extent& extent, Copy* copy) {
  copy->extent = extent;
  if (CUresult result = resolveSide(from, extent, &copy->from)) return result;
  return resolveSide(to, extent, &copy->to);
}

CUresult copyBox(CUstream stream, const Side& to, const Side& from, const Extent& extent, Return when) {
  return withStream(stream, [&](Driver&, const StreamTarget& target) -> CUresult {
    if (extent.isEmpty()) return CUDA_SUCCESS;
    Copy copy;
    if (CUresult result = resolveSides(to, from, extent, &copy)) return result;
    return enqueueCopy(target, copy, when);
  });
}

CUresult copy2D(CUstream stream, const CUDA_MEMCPY2D* c, Return when) {
  if (!c) return CUDA_ERROR_INVALID_VALUE;
  const Side from{c->srcXInBytes, c->srcY, 0, c->srcMemoryType, c->srcHost, c->srcDevice, c->srcPitch, 0, c->srcArray};
  const Side to{c->dstXInBytes, c->dstY, 0, c->dstMemoryType, c->dstHost, c->dstDevice, c->dstPitch, 0, c->dstArray};
  return copyBox(stream, to, from, {c->WidthInBytes, c->Height, 1}, when);
}

// The structures of the plain and the peer call have the same member names.
template <typename T>
CUresult copy3D(CUstream stream, const T* c, Return when) {
  if (!c) return CUDA_ERROR_INVALID_VALUE;
  if (c->srcLOD != 0 || c->dstLOD != 0) return CUDA_ERROR_INVALID_VALUE;
  const Side from{c->srcXInBytes, c->srcY,     c->srcZ,      c->srcMemoryType, c->srcHost,
                  c->srcDevice,   c->srcPitch, c->srcHeight, c->srcArray};
  const Side to{c->dstXInBytes, c->dstY,     c->dstZ,      c->dstMemoryType, c->dstHost,
                c->dstDevice,   c->dstPitch, c->dstHeight, c->dstArray};
  return copyBox(stream, to, from, {c->WidthInBytes, c->Height, c->Depth}, when);
}

// Addresses are unified, so the contexts of a peer copy have no effect; they must exist all the same.
CUresult copyPeer(CUdeviceptr dst, CUcontext dstContext, CUdeviceptr src, CUcontext srcContext, size_t bytes,
                  CUstream stream) {
  return withStream(stream, [&](Driver& driver, const StreamTarget& target) -> CUresult {
    if (!driver.contexts().find(dstContext) || !driver.contexts().find(srcContext)) return CUDA_ERROR_INVALID_CONTEXT;
    return enqueueCopy(target, Copy{device(src), device(dst), Extent{bytes}}, Return::whenQueued);
  });
}

CUresult fill(CUstream stream, const Fill& fill, Return when) {
  return withStream(stream,
                    [&](Driver&, const StreamTarget& target) -> CUresult { return enqueueFill(target, fill, when); });
}

}  // namespace

CUresult millpond::softgpu::api::resolveCopy(const CUDA_MEMCPY3D& c, Copy* copy) {
  if (c.srcLOD != 0 || c.dstLOD != 0) return CUDA_ERROR_INVALID_VALUE;
  const Side from{c.srcXInBytes, c.srcY,     c.srcZ,      c.srcMemoryType, c.srcHost,
                  c.srcDevice,   c.srcPitch, c.srcHeight, c.srcArray};
  const Side to{c.dstXInBytes, c.dstY,     c.dstZ,      c.dstMemoryType, c.dstHost,
                c.dstDevice,   c.dstPitch, c.dstHeight, c.dstArray};
  return resolveSides(to, from, {c.WidthInBytes, c.Height, c.Depth}, copy);
}

extern "C" {

CUresult cuMemcpy(CUdeviceptr dst, CUdeviceptr src, size_t n) {
  return copyLine(nullptr, unified(dst), unified(src), n, Return::whenDone);
}
CUresult cuMemcpyAsync(CUdeviceptr dst, CUdeviceptr src, size_t n, CUstream s) {
  return copyLine(s, unified(dst), unified(src), n, Return::whenQueued);
}
CUresult cuMemcpyHtoD_v2(CUdeviceptr dst, const void* src, size_t n) {
  return copyLine(nullptr, device(dst), host(src), n, Return::whenDone);
}
CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr dst, const void* src, size_t n, CUstream s) {
  return copyLine(s, device(dst), host(src), n, Return::whenQueued);
}
CUresult cuMemcpyDtoH_v2(void* dst, CUdeviceptr src, size_t n) {
  return copyLine(nullptr, host(dst), device(src), n, Return::whenDone);
}
CUresult cuMemcpyDtoHAsync_v2(void* dst, CUdeviceptr src, size_t n, CUstream s) {
  return copyLine(s, host(dst), device(src), n, Return::whenQueued);
}
CUresult cuMemcpyDtoD_v2(CUdeviceptr dst, CUdeviceptr src, size_t n) {
  return copyLine(nullptr, device(dst), device(src), n, Return::whenDone);
}
CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr dst, CUdeviceptr src, size_t n, CUstream s) {
  return copyLine(s, device(dst), device(src), n, Return::whenQueued);
}
CUresult cuMemcpyPeer(CUdeviceptr dst, CUcontext dstContext, CUdeviceptr src, CUcontext srcContext, size_t n) {
  return copyPeer(dst, dstContext, src, srcContext, n, nullptr);
}
CUresult cuMemcpyPeerAsync(CUdeviceptr dst, CUcontext dstContext, CUdeviceptr src, CUcontext srcContext, size_t n,
                           CUstream s) {
  return copyPeer(dst, dstContext, src, srcContext, n, s);
}

CUresult cuMemcpy2D_v2(const CUDA_MEMCPY2D* c) { return copy2D(nullptr, c, Return::whenDone); }
CUresult cuMemcpy2DUnaligned_v2(const CUDA_MEMCPY2D* c) { return copy2D(nullptr, c, Return::whenDone); }
CUresult cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D* c, CUstream s) { return copy2D(s, c, Return::whenQueued); }
CUresult cuMemcpy3D_v2(const CUDA_MEMCPY3D* c) { return copy3D(nullptr, c, Return::whenDone); }
CUresult cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D* c, CUstream s) { return copy3D(s, c, Return::whenQueued); }
CUresult cuMemcpy3DPeer(const CUDA_MEMCPY3D_PEER* c) { return copy3D(nullptr, c, Return::whenDone); }
CUresult cuMemcpy3DPeerAsync(const CUDA_MEMCPY3D_PEER* c, CUstream s) { return copy3D(s, c, Return::whenQueued); }

CUresult cuMemsetD8_v2(CUdeviceptr dst, unsigned char value, size_t n) {
  return fill(nullptr, {dst, 0, value, 1, n, 1}, Return::whenDone);
}
CUresult cuMemsetD16_v2(CUdeviceptr dst, unsigned short value, size_t n) {
  return fill(nullptr, {dst, 0, value, 2, n, 1}, Return::whenDone);
}
CUresult cuMemsetD32_v2(CUdeviceptr dst, unsigned int value, size_t n) {
  return fill(nullptr, {dst, 0, value, 4, n, 1}, Return::whenDone);
}
CUresult cuMemsetD8Async(CUdeviceptr dst, unsigned char value, size_t n, CUstream s) {
  return fill(s, {dst, 0, value, 1, n, 1}, Return::whenQueued);
}
CUresult cuMemsetD16Async(CUdeviceptr dst, unsigned short value, size_t n, CUstream s) {
  return fill(s, {dst, 0, value, 2, n, 1}, Return::whenQueued);
}
CUresult cuMemsetD32Async(CUdeviceptr dst, unsigned int value, size_t n, CUstream s) {
  return fill(s, {dst, 0, value, 4, n, 1}, Return::whenQueued);
}
CUresult cuMemsetD2D8_v2(CUdeviceptr dst, size_t pitch, unsigned char value, size_t width, size_t height) {
  return fill(nullptr, {dst, pitch, value, 1, width, height}, Return::whenDone);
}
CUresult cuMemsetD2D16_v2(CUdeviceptr dst, size_t pitch, unsigned short value, size_t width, size_t height) {
  return fill(nullptr, {dst, pitch, value, 2, width, height}, Return::whenDone);
}
CUresult cuMemsetD2D32_v2(CUdeviceptr dst, size_t pitch, unsigned int value, size_t width, size_t height) {
  return fill(nullptr, {dst, pitch, value, 4, width, height}, Return::whenDone);
}
CUresult cuMemsetD2D8Async(CUdeviceptr dst, size_t pitch, unsigned char value, size_t width, size_t height,
                           CUstream s) {
  return fill(s, {dst, pitch, value, 1, width, height}, Return::whenQueued);
}
CUresult cuMemsetD2D16Async(CUdeviceptr dst, size_t pitch, unsigned short value, size_t width, size_t height,
                            CUstream s) {
  return fill(s, {dst, pitch, value, 2, width, height}, Return::whenQueued);
}
CUresult cuMemsetD2D32Async(CUdeviceptr dst, size_t pitch, unsigned int value, size_t width, size_t height,
                            CUstream s) {
  return fill(s, {dst, pitch, value, 4, width, height}, Return::whenQueued);
}

}  // extern "C"
