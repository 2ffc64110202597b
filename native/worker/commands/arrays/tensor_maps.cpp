// SPDX-License-Identifier: Apache-2.0
#include "worker/commands/arrays/tensor_maps.h"

#include <cstring>

namespace millpond::worker {
namespace {

/// The driver reads arrays with as many elements as the rank specifies.
constexpr uint32_t kMaxRank = 5;

template <typename T, size_t bytes>
const T* arrayOf(const uint8_t (&field)[bytes]) {
  return reinterpret_cast<const T*>(field);
}

}  // namespace

CUresult TensorMaps::onTensorMapEncode(const cmd::Decoded<cmd::TensorMapEncode>& command) {
  const auto& in = command.fixed;
  if (in.rank == 0 || in.rank > kMaxRank || (in.form != 0 && in.rank < 3))
    return violation("a tensor map of rank " + std::to_string(in.rank));
  const auto type = static_cast<CUtensorMapDataType>(in.dataType);
  // Only the device reads there; it also checks that the tensor ends within its memory.
  SessionRange first;
  if (CUresult rc = addresses_.reach(in.address, 1, first)) return rc;
  void* address = reinterpret_cast<void*>(first.device());
  const auto* extents = arrayOf<cuuint64_t>(in.extents);
  const auto* strides = arrayOf<cuuint64_t>(in.strides);
  const auto* elementStrides = arrayOf<cuuint32_t>(in.elementStrides);
  const auto* corners = arrayOf<int>(in.box);
  const auto interleave = static_cast<CUtensorMapInterleave>(in.interleave);
  const auto swizzle = static_cast<CUtensorMapSwizzle>(in.swizzle);
  const auto promotion = static_cast<CUtensorMapL2promotion>(in.promotion);
  const auto fill = static_cast<CUtensorMapFloatOOBfill>(in.fill);
  CUtensorMap map{};
  CUresult rc = CUDA_ERROR_NOT_SUPPORTED;
  switch (in.form) {
    case 0:
      if (driver_.cuTensorMapEncodeTiled)
        rc = driver_.cuTensorMapEncodeTiled(&map, type, in.rank, address, extents, strides, arrayOf<cuuint32_t>(in.box),
                                            elementStrides, interleave, swizzle, promotion, fill);
      break;
    case 1:
      if (driver_.cuTensorMapEncodeIm2col)
        rc = driver_.cuTensorMapEncodeIm2col(&map, type, in.rank, address, extents, strides, corners, corners + 3,
                                             in.channels, in.pixels, elementStrides, interleave, swizzle, promotion,
                                             fill);
      break;
    case 2:
      if (driver_.cuTensorMapEncodeIm2colWide)
        rc = driver_.cuTensorMapEncodeIm2colWide(
            &map, type, in.rank, address, extents, strides, corners[0], corners[3], in.channels, in.pixels,
            elementStrides, interleave, static_cast<CUtensorMapIm2ColWideMode>(in.mode), swizzle, promotion, fill);
      break;
    default: return violation("a tensor map of form " + std::to_string(in.form));
  }
  if (rc) return rc;
  cmd::TensorMapEncodeReply out{};
  std::memcpy(out.map, &map, sizeof(map));
  reply(out);
  return CUDA_SUCCESS;
}

CUresult TensorMaps::onTensorMapReplaceAddress(const cmd::Decoded<cmd::TensorMapReplaceAddress>& command) {
  if (!driver_.cuTensorMapReplaceAddress) return CUDA_ERROR_NOT_SUPPORTED;
  SessionRange first;
  if (CUresult rc = addresses_.reach(command.fixed.address, 1, first)) return rc;
  CUtensorMap map{};
  std::memcpy(&map, command.fixed.map, sizeof(map));
  if (const CUresult rc = driver_.cuTensorMapReplaceAddress(&map, reinterpret_cast<void*>(first.device()))) return rc;
  cmd::TensorMapReplaceAddressReply out{};
  std::memcpy(out.map, &map, sizeof(map));
  reply(out);
  return CUDA_SUCCESS;
}

}  // namespace millpond::worker
