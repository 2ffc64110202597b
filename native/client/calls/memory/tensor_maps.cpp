// SPDX-License-Identifier: Apache-2.0
// Tensor maps. The driver computes them from numbers alone, and programs request the same ones again and again.
#include <cstring>
#include <memory>

#include "client/call/call.h"
#include "client/gen/api.h"

namespace millpond::client::api {
namespace {

constexpr cuuint32_t kMaxRank = 5;
using TensorMapCache = BasicAnswerCache<sizeof(cmd::TensorMapEncode), sizeof(cmd::TensorMapEncodeReply)>;

// Never destroyed: other threads may still query it while the process exits.
TensorMapCache& cache() {
  static TensorMapCache* const made = std::make_unique<TensorMapCache>().release();
  return *made;
}

enum Form : uint32_t { kTiled, kIm2col, kIm2colWide };

/// The arguments common to all forms; false if a pointer is missing, or an array that the rank requires.
bool describe(cmd::TensorMapEncode& wire, const CUtensorMap* map, cuuint32_t rank, const cuuint64_t* extents,
              const cuuint64_t* strides, const cuuint32_t* elementStrides) {
  if (!map || rank == 0 || rank > kMaxRank || !extents || (rank > 1 && !strides) || !elementStrides) return false;
  wire.rank = rank;
  std::memcpy(wire.extents, extents, rank * sizeof(*extents));
  if (rank > 1) std::memcpy(wire.strides, strides, (rank - 1) * sizeof(*strides));
  std::memcpy(wire.elementStrides, elementStrides, rank * sizeof(*elementStrides));
  return true;
}

CUresult encode(Call& call, const cmd::TensorMapEncode& wire, CUtensorMap* map) {
  cmd::TensorMapEncodeReply reply{};
  if (const CUresult r = call.waitCached(cache(), 0, wire, reply); r != CUDA_SUCCESS) return r;
  std::memcpy(map, reply.map, sizeof(*map));
  return CUDA_SUCCESS;
}

}  // namespace

CUresult cuTensorMapEncodeTiled(CUtensorMap* tensorMap, CUtensorMapDataType tensorDataType, cuuint32_t tensorRank,
                                void* globalAddress, const cuuint64_t* globalDim, const cuuint64_t* globalStrides,
                                const cuuint32_t* boxDim, const cuuint32_t* elementStrides,
                                CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                                CUtensorMapL2promotion l2Promotion, CUtensorMapFloatOOBfill oobFill) noexcept {
  Call call("cuTensorMapEncodeTiled", Needs::kNothing);
  if (const CUresult r = call.entry(); r != CUDA_SUCCESS) return r;
  cmd::TensorMapEncode wire{};
  if (!describe(wire, tensorMap, tensorRank, globalDim, globalStrides, elementStrides) || !boxDim)
    return CUDA_ERROR_INVALID_VALUE;
  wire.form = kTiled;
  wire.dataType = tensorDataType;
  wire.address = reinterpret_cast<uint64_t>(globalAddress);
  std::memcpy(wire.box, boxDim, tensorRank * sizeof(*boxDim));
  wire.interleave = interleave;
  wire.swizzle = swizzle;
  wire.promotion = l2Promotion;
  wire.fill = oobFill;
  return encode(call, wire, tensorMap);
}

CUresult cuTensorMapEncodeIm2col(CUtensorMap* tensorMap, CUtensorMapDataType tensorDataType, cuuint32_t tensorRank,
                                 void* globalAddress, const cuuint64_t* globalDim, const cuuint64_t* globalStrides,
                                 const int* pixelBoxLowerCorner, const int* pixelBoxUpperCorner,
                                 cuuint32_t channelsPerPixel, cuuint32_t pixelsPerColumn,
                                 const cuuint32_t* elementStrides, CUtensorMapInterleave interleave,
                                 CUtensorMapSwizzle swizzle, CUtensorMapL2promotion l2Promotion,
                                 CUtensorMapFloatOOBfill oobFill) noexcept {
  Call call("cuTensorMapEncodeIm2col", Needs::kNothing);
  if (const CUresult r = call.entry(); r != CUDA_SUCCESS) return r;
  cmd::TensorMapEncode wire{};
  if (!describe(wire, tensorMap, tensorRank, globalDim, globalStrides, elementStrides) || tensorRank < 3 ||
      !pixelBoxLowerCorner || !pixelBoxUpperCorner)
    return CUDA_ERROR_INVALID_VALUE;
  // One corner for each spatial dimension, excluding channels and images.
  const size_t bytes = (tensorRank - 2) * sizeof(int);
  wire.form = kIm2col;
  wire.dataType = tensorDataType;
  wire.address = reinterpret_cast<uint64_t>(globalAddress);
  std::memcpy(wire.box, pixelBoxLowerCorner, bytes);
  std::memcpy(wire.box + 3 * sizeof(int), pixelBoxUpperCorner, bytes);
  wire.channels = channelsPerPixel;
  wire.pixels = pixelsPerColumn;
  wire.interleave = interleave;
  wire.swizzle = swizzle;
  wire.promotion = l2Promotion;
  wire.fill = oobFill;
  return encode(call, wire, tensorMap);
}

CUresult cuTensorMapEncodeIm2colWide(CUtensorMap* tensorMap, CUtensorMapDataType tensorDataType, cuuint32_t tensorRank,
                                     void* globalAddress, const cuuint64_t* globalDim, const cuuint64_t* globalStrides,
                                     int pixelBoxLowerCornerWidth, int pixelBoxUpperCornerWidth,
                                     cuuint32_t channelsPerPixel, cuuint32_t pixelsPerColumn,
                                     const cuuint32_t* elementStrides, CUtensorMapInterleave interleave,
                                     CUtensorMapIm2ColWideMode mode, CUtensorMapSwizzle swizzle,
                                     CUtensorMapL2promotion l2Promotion, CUtensorMapFloatOOBfill oobFill) noexcept {
  Call call("cuTensorMapEncodeIm2colWide", Needs::kNothing);
  if (const CUresult r = call.entry(); r != CUDA_SUCCESS) return r;
  cmd::TensorMapEncode wire{};
  if (!describe(wire, tensorMap, tensorRank, globalDim, globalStrides, elementStrides)) return CUDA_ERROR_INVALID_VALUE;
  wire.form = kIm2colWide;
  wire.dataType = tensorDataType;
  wire.address = reinterpret_cast<uint64_t>(globalAddress);
  std::memcpy(wire.box, &pixelBoxLowerCornerWidth, sizeof(int));
  std::memcpy(wire.box + 3 * sizeof(int), &pixelBoxUpperCornerWidth, sizeof(int));
  wire.channels = channelsPerPixel;
  wire.pixels = pixelsPerColumn;
  wire.interleave = interleave;
  wire.mode = mode;
  wire.swizzle = swizzle;
  wire.promotion = l2Promotion;
  wire.fill = oobFill;
  return encode(call, wire, tensorMap);
}

CUresult cuTensorMapReplaceAddress(CUtensorMap* tensorMap, void* globalAddress) noexcept {
  Call call("cuTensorMapReplaceAddress", Needs::kNothing);
  if (const CUresult r = call.entry(); r != CUDA_SUCCESS) return r;
  if (!tensorMap) return CUDA_ERROR_INVALID_VALUE;
  cmd::TensorMapReplaceAddress wire{};
  wire.address = reinterpret_cast<uint64_t>(globalAddress);
  std::memcpy(wire.map, tensorMap, sizeof(*tensorMap));
  cmd::TensorMapReplaceAddressReply reply{};
  if (const CUresult r = call.wait(wire, reply); r != CUDA_SUCCESS) return r;
  std::memcpy(tensorMap, reply.map, sizeof(*tensorMap));
  return CUDA_SUCCESS;
}

}  // namespace millpond::client::api
