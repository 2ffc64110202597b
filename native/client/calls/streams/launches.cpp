// SPDX-License-Identifier: Apache-2.0
// Kernel launches: packs the parameters in this process, where their addresses are valid.
#include <algorithm>
#include <array>
#include <cstring>

#include "client/call/call.h"
#include "client/call/launch_parameters.h"
#include "client/calls/streams/launch_attributes.h"
#include "client/gen/api.h"
#include "client/process/client.h"
#include "client/state/context.h"

namespace millpond::client::api {
namespace {

/// Kernels with at most this many bytes of parameters, which are nearly all, are launched without heap allocation.
constexpr size_t kUsualParameterBytes = 1024;

struct Shape {
  unsigned gridX, gridY, gridZ, blockX, blockY, blockZ, sharedBytes;
};

/// Checks for errors that the driver would return from the call for any kernel on this device.
bool possible(const DeviceSnapshot& device, const Shape& s) {
  const auto within = [&](unsigned value, CUdevice_attribute limit) {
    const int32_t most = device.attributes[limit];
    return value != 0 && (most == kNoAttribute || value <= static_cast<unsigned>(most));
  };
  return within(s.gridX, CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X) && within(s.gridY, CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y) &&
         within(s.gridZ, CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z) && within(s.blockX, CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X) &&
         within(s.blockY, CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y) &&
         within(s.blockZ, CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z) &&
         uint64_t{s.blockX} * s.blockY * s.blockZ <=
             static_cast<uint64_t>(device.attributes[CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK]);
}

bool hasClusters(const DeviceSnapshot& device) { return device.attributes[CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH] == 1; }

/// Checks for errors that the driver would return for this function. Queried once from the worker's driver, which
/// knows.
CUresult checkLimits(Call& call, uint64_t wire, FunctionInfo& function, const DeviceSnapshot& device, const Shape& s) {
  // One warp always fits, whatever a function uses and declares.
  constexpr uint64_t kAlwaysFit = 32;
  const uint64_t threads = uint64_t{s.blockX} * s.blockY * s.blockZ;
  // The same query returns the clusters for which a function was compiled.
  if ((s.sharedBytes == 0 && threads <= kAlwaysFit && !hasClusters(device)) ||
      function.isAllowed(call.context(), threads, s.sharedBytes))
    return CUDA_SUCCESS;
  cmd::LaunchLimits question{};
  question.function = wire;
  cmd::LaunchLimitsReply limits{};
  if (const CUresult r = call.waitCached(wire, question, limits); r != CUDA_SUCCESS) return r;
  function.setCluster({limits.clusterX, limits.clusterY, limits.clusterZ});
  function.allow(call.context(), static_cast<uint32_t>(std::clamp(limits.threads, 0, 0xffff)),
                 static_cast<uint32_t>(std::max(limits.dynamicSharedBytes, 0)));
  if (function.isAllowed(call.context(), threads, s.sharedBytes)) return CUDA_SUCCESS;
  const int32_t registers = device.attributes[CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK];
  const bool lacksRegisters = threads > static_cast<uint64_t>(limits.threads) && registers != kNoAttribute &&
                              threads * static_cast<uint64_t>(limits.registers) > static_cast<uint64_t>(registers);
  return lacksRegisters ? CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES : CUDA_ERROR_INVALID_VALUE;
}

/// All blocks of a cooperative launch must be on the device at once.
CUresult checkCooperative(Call& call, uint64_t wire, const DeviceSnapshot& device, const Shape& s) {
  cmd::OccupancyMaxActiveBlocksPerMultiprocessor question{};
  question.func = wire;
  question.blockSize = static_cast<int>(s.blockX * s.blockY * s.blockZ);
  question.dynamicSMemSize = s.sharedBytes;
  cmd::OccupancyMaxActiveBlocksPerMultiprocessorReply answer{};
  if (const CUresult r = call.waitCached(wire, question, answer); r != CUDA_SUCCESS) return r;
  const auto most = static_cast<uint64_t>(std::max(answer.numBlocks, 0)) *
                    static_cast<uint64_t>(device.attributes[CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT]);
  return uint64_t{s.gridX} * s.gridY * s.gridZ > most ? CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE : CUDA_SUCCESS;
}

/// A kernel of a library is launched in the stream's context, whichever is current. A function belongs to a context,
/// and the driver checks during the call that the stream is in it.
CUresult followStream(Call& call, HandleKind kind, uint64_t stream) {
  const uint16_t place = call.streamContext(stream);
  if (place == call.currentContext()) [[likely]]
    return CUDA_SUCCESS;
  if (!contextOf(place)) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  if (kind == HandleKind::kKernel)
    call.useContext(place);
  else
    call.waitForResult();
  return CUDA_SUCCESS;
}

CUresult launch(Call& call, Flavour flavour, CUfunction f, const Shape& shape, CUstream hStream, uint32_t flags,
                const LaunchAttributes& attributes, void** kernelParams, void** extra) {
  cmd::Launch wire{};
  if (const CUresult r = call.stream(hStream, flavour, wire.stream); r != CUDA_SUCCESS) return r;
  const auto kind = handle::kind(reinterpret_cast<uint64_t>(f));
  const HandleTable::Slot* slot =
      call.remote().handles.find(kind == HandleKind::kKernel ? kind : HandleKind::kFunction, f);
  if (!slot || !slot->function) return CUDA_ERROR_INVALID_HANDLE;
  if (const CUresult r = followStream(call, kind, wire.stream); r != CUDA_SUCCESS) return r;
  if (const DeviceSnapshot* device = Client::instance().device(contextOf(call.currentContext())->device())) {
    if (!possible(*device, shape)) return CUDA_ERROR_INVALID_VALUE;
    const CUresult r = checkLimits(call, reinterpret_cast<uint64_t>(f), *slot->function, *device, shape);
    if (r != CUDA_SUCCESS) return r;
    if ((flags & 1) || attributes.isCooperative()) {
      const CUresult fits = checkCooperative(call, reinterpret_cast<uint64_t>(f), *device, shape);
      if (fits != CUDA_SUCCESS) return fits;
    }
    const ClusterShape cluster = attributes.cluster().isAny() ? attributes.cluster() : slot->function->cluster();
    if (cluster.isAny() && !(hasClusters(*device) && cluster.certainlyFits(shape.gridX, shape.gridY, shape.gridZ)))
      call.waitForResult();
  }
  const FunctionInfo& info = *slot->function;
  if (info.parameterBytes > kMaxParameterBytes) return CUDA_ERROR_INVALID_VALUE;
  wire.function = reinterpret_cast<uint64_t>(f);
  wire.gridX = shape.gridX;
  wire.gridY = shape.gridY;
  wire.gridZ = shape.gridZ;
  wire.blockX = shape.blockX;
  wire.blockY = shape.blockY;
  wire.blockZ = shape.blockZ;
  wire.sharedBytes = shape.sharedBytes;
  wire.flags = flags;

  std::array<std::byte, kUsualParameterBytes> usual;
  std::vector<std::byte> large;
  std::span<std::byte> params(usual.data(), info.parameterBytes);
  if (info.parameterBytes > kUsualParameterBytes) {
    large.resize(info.parameterBytes);
    params = large;
  } else if (info.parameterBytes > 0) {
    std::memset(usual.data(), 0, info.parameterBytes);  // gaps, and the part that a short buffer omits
  }
  if (const CUresult r = packParameters(info, kernelParams, extra, params); r != CUDA_SUCCESS) return r;
  if (const CUresult r = call.remote().mapped.reachWritten(CallSink(call), wire.stream); r != CUDA_SUCCESS) return r;
  return call.post(wire, attributes.bytes(), std::span<const std::byte>(params));
}

}  // namespace

CUresult cuLaunchKernel(Flavour flavour, CUfunction f, unsigned int gridDimX, unsigned int gridDimY,
                        unsigned int gridDimZ, unsigned int blockDimX, unsigned int blockDimY, unsigned int blockDimZ,
                        unsigned int sharedMemBytes, CUstream hStream, void** kernelParams, void** extra) noexcept {
  Call call("cuLaunchKernel", Needs::kAny);
  return launch(call, flavour, f, {gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes},
                hStream, 0, {}, kernelParams, extra);
}

CUresult cuLaunchCooperativeKernel(Flavour flavour, CUfunction f, unsigned int gridDimX, unsigned int gridDimY,
                                   unsigned int gridDimZ, unsigned int blockDimX, unsigned int blockDimY,
                                   unsigned int blockDimZ, unsigned int sharedMemBytes, CUstream hStream,
                                   void** kernelParams) noexcept {
  Call call("cuLaunchCooperativeKernel", Needs::kAny);
  return launch(call, flavour, f, {gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes},
                hStream, 1, {}, kernelParams, nullptr);
}

CUresult cuLaunchKernelEx(Flavour flavour, const CUlaunchConfig* config, CUfunction f, void** kernelParams,
                          void** extra) noexcept {
  Call call("cuLaunchKernelEx", Needs::kAny);
  if (const CUresult r = call.entry(); r != CUDA_SUCCESS) return r;
  if (config == nullptr) return CUDA_ERROR_INVALID_VALUE;
  LaunchAttributes attributes;
  if (const CUresult r = attributes.take(call, *config); r != CUDA_SUCCESS) return r;
  return launch(call, flavour, f,
                {config->gridDimX, config->gridDimY, config->gridDimZ, config->blockDimX, config->blockDimY,
                 config->blockDimZ, config->sharedMemBytes},
                config->hStream, 0, attributes, kernelParams, extra);
}

namespace {

CUresult clusters(const char* name, int* out, CUfunction func, const CUlaunchConfig* config, bool asksSize) {
  Call call(name, Needs::kCurrent);
  if (const CUresult r = call.entry(); r != CUDA_SUCCESS) return r;
  if (out == nullptr || config == nullptr) return CUDA_ERROR_INVALID_VALUE;
  cmd::ClusterOccupancy wire{};
  if (const CUresult r = call.functionOrKernel(func, wire.function); r != CUDA_SUCCESS) return r;
  if (const CUresult r = call.stream(config->hStream, Flavour::kLegacy, wire.stream); r != CUDA_SUCCESS) return r;
  LaunchAttributes attributes;
  if (const CUresult r = attributes.take(call, *config); r != CUDA_SUCCESS) return r;
  wire.gridX = config->gridDimX;
  wire.gridY = config->gridDimY;
  wire.gridZ = config->gridDimZ;
  wire.blockX = config->blockDimX;
  wire.blockY = config->blockDimY;
  wire.blockZ = config->blockDimZ;
  wire.sharedBytes = config->sharedMemBytes;
  wire.asksSize = asksSize;
  cmd::ClusterOccupancyReply reply{};
  if (const CUresult r = call.wait(wire, reply, attributes.bytes()); r != CUDA_SUCCESS) return r;
  *out = reply.count;
  return CUDA_SUCCESS;
}

}  // namespace

CUresult cuOccupancyMaxActiveClusters(int* numClusters, CUfunction func, const CUlaunchConfig* config) noexcept {
  return clusters("cuOccupancyMaxActiveClusters", numClusters, func, config, false);
}

CUresult cuOccupancyMaxPotentialClusterSize(int* clusterSize, CUfunction func, const CUlaunchConfig* config) noexcept {
  return clusters("cuOccupancyMaxPotentialClusterSize", clusterSize, func, config, true);
}

}  // namespace millpond::client::api
