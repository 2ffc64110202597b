// SPDX-License-Identifier: Apache-2.0
// The block size with the most concurrent threads: computed here, because the program's own function returns the shared
// memory for each size.
#include <algorithm>

#include "client/call/call.h"
#include "client/gen/api.h"
#include "client/process/client.h"

namespace millpond::client::api {
namespace {

struct Wanted {
  int* minGridSize;
  int* blockSize;
  CUfunction function;
  CUoccupancyB2DSize sharedBytesOf;  ///< null: always the same
  size_t sharedBytes;
  int limit;  ///< 0: none
};

template <typename Blocks>
CUresult find(const char* name, const Wanted& wanted, Blocks blocksOf) {
  {
    Call call(name, Needs::kCurrent);
    if (const CUresult r = call.entry(); r != CUDA_SUCCESS) return r;
  }
  if (!wanted.minGridSize || !wanted.blockSize || wanted.limit < 0) return CUDA_ERROR_INVALID_VALUE;
  const DeviceSnapshot& device = *Client::instance().device(CurrentContext::get()->device());
  int most = 0;
  const CUresult asked = api::cuFuncGetAttribute(&most, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, wanted.function);
  if (asked != CUDA_SUCCESS) return asked;
  most = std::min(most, device.attributes[CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK]);
  if (wanted.limit > 0) most = std::min(most, wanted.limit);
  const int warp = device.attributes[CU_DEVICE_ATTRIBUTE_WARP_SIZE];
  const int full = device.attributes[CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR];
  int bestThreads = 0, bestSize = 0, bestBlocks = 0;
  // From the largest size down, one warp at a time, so that the largest of equals wins.
  for (int aligned = (most + warp - 1) / warp * warp; aligned > 0 && bestThreads < full; aligned -= warp) {
    const int size = std::min(aligned, most);
    const size_t shared = wanted.sharedBytesOf ? wanted.sharedBytesOf(size) : wanted.sharedBytes;
    int blocks = 0;
    if (const CUresult r = blocksOf(&blocks, size, shared); r != CUDA_SUCCESS) return r;
    if (blocks * size <= bestThreads) continue;
    bestThreads = blocks * size;
    bestSize = size;
    bestBlocks = blocks;
  }
  *wanted.blockSize = bestSize;
  *wanted.minGridSize = bestBlocks * device.attributes[CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT];
  return CUDA_SUCCESS;
}

}  // namespace

CUresult cuOccupancyMaxPotentialBlockSize(int* minGridSize, int* blockSize, CUfunction func,
                                          CUoccupancyB2DSize blockSizeToDynamicSMemSize, size_t dynamicSMemSize,
                                          int blockSizeLimit) noexcept {
  return find("cuOccupancyMaxPotentialBlockSize",
              {minGridSize, blockSize, func, blockSizeToDynamicSMemSize, dynamicSMemSize, blockSizeLimit},
              [&](int* blocks, int size, size_t shared) {
                return api::cuOccupancyMaxActiveBlocksPerMultiprocessor(blocks, func, size, shared);
              });
}

CUresult cuOccupancyMaxPotentialBlockSizeWithFlags(int* minGridSize, int* blockSize, CUfunction func,
                                                   CUoccupancyB2DSize blockSizeToDynamicSMemSize,
                                                   size_t dynamicSMemSize, int blockSizeLimit,
                                                   unsigned int flags) noexcept {
  return find("cuOccupancyMaxPotentialBlockSizeWithFlags",
              {minGridSize, blockSize, func, blockSizeToDynamicSMemSize, dynamicSMemSize, blockSizeLimit},
              [&](int* blocks, int size, size_t shared) {
                return api::cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, func, size, shared, flags);
              });
}

}  // namespace millpond::client::api
