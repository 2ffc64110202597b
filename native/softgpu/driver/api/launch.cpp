// SPDX-License-Identifier: Apache-2.0
// Entry points: kernel launches and occupancy.
#include "softgpu/driver/engine/launch.h"
#include "softgpu/driver/api/function.h"
#include "softgpu/driver/engine/occupancy.h"
#include "softgpu/driver/streams/launches.h"

using namespace millpond::softgpu;
using namespace millpond::softgpu::api;

namespace {

CUresult launch(CUfunction f, const LaunchShape& shape, CUstream stream, void** parameters, void** extra,
                std::span<const CUlaunchAttribute> attributes = {}) {
  return withStream(stream, [&](Driver& driver, const StreamTarget& target) -> CUresult {
    std::shared_ptr<Function> function;
    if (CUresult result = resolveFunction(driver, f, target.context, &function)) return result;
    return enqueueLaunch(target, function, shape, parameters, extra, attributes, driver.events());
  });
}

// Attributes that only tune are ignored; those with a visible effect are supported or refused.
CUresult checkAttribute(const CUlaunchAttribute& attribute) {
  const CUlaunchAttributeValue& value = attribute.value;
  switch (attribute.id) {
    case CU_LAUNCH_ATTRIBUTE_IGNORE:
    case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
    case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY:
    case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
    case CU_LAUNCH_ATTRIBUTE_PRIORITY:
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
    case CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION:
    case CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
    case CU_LAUNCH_ATTRIBUTE_NVLINK_UTIL_CENTRIC_SCHEDULING:
    // Allows the launch to begin before the previous one has ended, which it need not do.
    case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION:
    case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT:
    case CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT: return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
      return value.clusterDim.x == 1 && value.clusterDim.y == 1 && value.clusterDim.z == 1 ? CUDA_SUCCESS
                                                                                           : CUDA_ERROR_NOT_SUPPORTED;
    case CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE: return CUDA_ERROR_NOT_SUPPORTED;
  }
  return CUDA_ERROR_INVALID_VALUE;
}

// The largest number of threads first, then fewer by whole warps, as long as that fills a multiprocessor better.
CUresult bestBlockSize(int* minGridSize, int* blockSize, const Function& function, CUoccupancyB2DSize sizeOf,
                       size_t dynamicBytes, int limit) {
  const unsigned most = function.info().maxThreads;
  const unsigned bound = limit > 0 ? std::min(most, static_cast<unsigned>(limit)) : most;
  unsigned bestThreads = 0;
  unsigned bestFill = 0;
  int bestBlocks = 0;
  for (unsigned threads = bound; threads > 0;
       threads = threads % ptx::kWarpSize ? threads - threads % ptx::kWarpSize : threads - ptx::kWarpSize) {
    const size_t bytes = sizeOf ? sizeOf(static_cast<int>(threads)) : dynamicBytes;
    const int blocks = blocksPerMultiprocessor(function, threads, bytes);
    const unsigned fill = static_cast<unsigned>(blocks) * threads;
    if (fill <= bestFill) continue;
    bestFill = fill;
    bestThreads = threads;
    bestBlocks = blocks;
  }
  *blockSize = static_cast<int>(bestThreads);
  *minGridSize = bestBlocks * static_cast<int>(function.module().context()->device().multiprocessors());
  return CUDA_SUCCESS;
}

CUresult maxActiveBlocks(int* numBlocks, CUfunction func, int blockSize, size_t dynamicBytes, unsigned flags) {
  return withFunction(func, [&](Driver&, const std::shared_ptr<Function>& function) -> CUresult {
    if (!numBlocks || blockSize <= 0 || (flags & ~static_cast<unsigned>(CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE))) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    *numBlocks = blocksPerMultiprocessor(*function, static_cast<unsigned>(blockSize), dynamicBytes);
    return CUDA_SUCCESS;
  });
}

}  // namespace

extern "C" {

CUresult cuLaunchKernel(CUfunction f, unsigned int gridDimX, unsigned int gridDimY, unsigned int gridDimZ,
                        unsigned int blockDimX, unsigned int blockDimY, unsigned int blockDimZ,
                        unsigned int sharedMemBytes, CUstream hStream, void** kernelParams, void** extra) {
  const LaunchShape shape{{gridDimX, gridDimY, gridDimZ}, {blockDimX, blockDimY, blockDimZ}, sharedMemBytes};
  return launch(f, shape, hStream, kernelParams, extra);
}

CUresult cuLaunchCooperativeKernel(CUfunction f, unsigned int gridDimX, unsigned int gridDimY, unsigned int gridDimZ,
                                   unsigned int blockDimX, unsigned int blockDimY, unsigned int blockDimZ,
                                   unsigned int sharedMemBytes, CUstream hStream, void** kernelParams) {
  const LaunchShape shape{{gridDimX, gridDimY, gridDimZ}, {blockDimX, blockDimY, blockDimZ}, sharedMemBytes, true};
  CUlaunchAttribute attribute{};
  attribute.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
  attribute.value.cooperative = 1;
  return launch(f, shape, hStream, kernelParams, nullptr, {&attribute, 1});
}

CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction f, void** kernelParams, void** extra) {
  if (!config || (config->numAttrs > 0 && !config->attrs)) return CUDA_ERROR_INVALID_VALUE;
  for (unsigned i = 0; i < config->numAttrs; ++i) {
    if (CUresult result = checkAttribute(config->attrs[i])) return result;
  }
  const LaunchShape shape{{config->gridDimX, config->gridDimY, config->gridDimZ},
                          {config->blockDimX, config->blockDimY, config->blockDimZ},
                          config->sharedMemBytes,
                          isCooperative({config->attrs, config->numAttrs})};
  return launch(f, shape, config->hStream, kernelParams, extra, {config->attrs, config->numAttrs});
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int* numBlocks, CUfunction func, int blockSize,
                                                     size_t dynamicSMemSize) {
  return maxActiveBlocks(numBlocks, func, blockSize, dynamicSMemSize, 0);
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* numBlocks, CUfunction func, int blockSize,
                                                              size_t dynamicSMemSize, unsigned int flags) {
  return maxActiveBlocks(numBlocks, func, blockSize, dynamicSMemSize, flags);
}

CUresult cuOccupancyMaxPotentialBlockSize(int* minGridSize, int* blockSize, CUfunction func,
                                          CUoccupancyB2DSize blockSizeToDynamicSMemSize, size_t dynamicSMemSize,
                                          int blockSizeLimit) {
  return cuOccupancyMaxPotentialBlockSizeWithFlags(minGridSize, blockSize, func, blockSizeToDynamicSMemSize,
                                                   dynamicSMemSize, blockSizeLimit, 0);
}

CUresult cuOccupancyMaxPotentialBlockSizeWithFlags(int* minGridSize, int* blockSize, CUfunction func,
                                                   CUoccupancyB2DSize blockSizeToDynamicSMemSize,
                                                   size_t dynamicSMemSize, int blockSizeLimit, unsigned int flags) {
  return withFunction(func, [&](Driver&, const std::shared_ptr<Function>& function) -> CUresult {
    if (!minGridSize || !blockSize || blockSizeLimit < 0 ||
        (flags & ~static_cast<unsigned>(CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE))) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    return bestBlockSize(minGridSize, blockSize, *function, blockSizeToDynamicSMemSize, dynamicSMemSize,
                         blockSizeLimit);
  });
}

CUresult cuOccupancyAvailableDynamicSMemPerBlock(size_t* dynamicSmemSize, CUfunction func, int numBlocks,
                                                 int blockSize) {
  return withFunction(func, [&](Driver&, const std::shared_ptr<Function>& function) -> CUresult {
    if (!dynamicSmemSize || numBlocks <= 0 || blockSize <= 0) return CUDA_ERROR_INVALID_VALUE;
    if (blocksPerMultiprocessor(*function, static_cast<unsigned>(blockSize), 0) < numBlocks) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    *dynamicSmemSize = dynamicSharedBytesPerBlock(*function, static_cast<unsigned>(numBlocks));
    return CUDA_SUCCESS;
  });
}

}  // extern "C"
