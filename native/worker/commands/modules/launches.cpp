// SPDX-License-Identifier: Apache-2.0
#include "worker/commands/modules/launches.h"

#include <cstring>
#include <utility>

namespace millpond::worker {
namespace {

/// The common part of Launch and ClusterOccupancy.
template <typename Command>
CUlaunchConfig configuration(const Command& launch, CUstream stream) {
  CUlaunchConfig config{};
  config.gridDimX = launch.gridX;
  config.gridDimY = launch.gridY;
  config.gridDimZ = launch.gridZ;
  config.blockDimX = launch.blockX;
  config.blockDimY = launch.blockY;
  config.blockDimZ = launch.blockZ;
  config.sharedMemBytes = launch.sharedBytes;
  config.hStream = stream;
  return config;
}

}  // namespace

CUresult Launches::launchAttributes(std::span<const std::byte> bytes, LaunchAttributes& out) {
  if (bytes.size() % sizeof(CUlaunchAttribute) || bytes.size() > kMaxLaunchAttributes * sizeof(CUlaunchAttribute))
    return violation("launch attributes of " + std::to_string(bytes.size()) + " bytes");
  out.count = bytes.size() / sizeof(CUlaunchAttribute);
  if (out.count) std::memcpy(out.all.data(), bytes.data(), bytes.size());
  for (CUlaunchAttribute& attribute : std::span(out.all).first(out.count)) {
    const LaunchAttributeKind kind = kindOf(attribute.id);
    if (kind == LaunchAttributeKind::kRefused) return violation("launch attribute " + std::to_string(attribute.id));
    if (kind == LaunchAttributeKind::kWindow) {
      const auto sent = Crossing<CUlaunchAttributeValue>::in(&attribute.value);
      if (CUresult rc = operations_.attribute(attribute.id, sent, attribute.value)) return rc;
    }
    if (kind != LaunchAttributeKind::kEvent) continue;
    CUevent& event = eventOf(attribute);
    if (!handle(HandleKind::kEvent, reinterpret_cast<uint64_t>(event), event)) return violation("unknown event");
    if (!event) return CUDA_ERROR_INVALID_HANDLE;
  }
  return CUDA_SUCCESS;
}

CUresult Launches::onLaunch(const cmd::Decoded<cmd::Launch>& command) {
  const auto& launch = command.fixed;
  CUfunction function = nullptr;
  CUstream s = nullptr;
  if (!functions_.functionOrKernel(launch.function, function)) return violation("unknown function");
  if (!stream(launch.stream, s)) return violation("unknown stream");
  const auto params = command.tail[1];
  if (const uint32_t expected = functions_.info(launch.function).parameterBytes; params.size() != expected)
    return violation("a launch with " + std::to_string(params.size()) + " bytes of parameters instead of " +
                     std::to_string(expected));
  session_.counters().launches.fetch_add(1, std::memory_order_relaxed);
  contexts_.at(session_.current().context).hasLaunched = true;

  size_t parameterBytes = params.size();
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, const_cast<std::byte*>(params.data()), CU_LAUNCH_PARAM_BUFFER_SIZE,
                   &parameterBytes, CU_LAUNCH_PARAM_END};
  void** parameters = params.empty() ? nullptr : extra;
  if (command.tail[0].empty() && launch.flags == 0)
    return driver_.cuLaunchKernel(function, launch.gridX, launch.gridY, launch.gridZ, launch.blockX, launch.blockY,
                                  launch.blockZ, launch.sharedBytes, s, nullptr, parameters);

  LaunchAttributes attributes;
  if (const CUresult rc = launchAttributes(command.tail[0], attributes)) return rc;
  if (launch.flags & 1) {
    CUlaunchAttribute& cooperative = attributes.all[attributes.count++];
    cooperative = {};
    cooperative.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
    cooperative.value.cooperative = 1;
  }
  CUlaunchConfig config = configuration(launch, s);
  config.attrs = attributes.all.data();
  config.numAttrs = static_cast<unsigned>(attributes.count);
  return driver_.cuLaunchKernelEx(&config, function, nullptr, parameters);
}

CUresult Launches::onLaunchLimits(const cmd::Decoded<cmd::LaunchLimits>& command) {
  CUfunction function = nullptr;
  if (!functions_.functionOrKernel(command.fixed.function, function)) return violation("unknown function");
  cmd::LaunchLimitsReply limits{};
  const std::pair<CUfunction_attribute, int32_t*> wanted[] = {
      {CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, &limits.threads},
      {CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, &limits.dynamicSharedBytes},
      {CU_FUNC_ATTRIBUTE_NUM_REGS, &limits.registers}};
  for (const auto& [attribute, value] : wanted)
    if (const CUresult rc = driver_.cuFuncGetAttribute(value, attribute, function)) return rc;
  const std::pair<CUfunction_attribute, uint32_t*> cluster[] = {
      {CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH, &limits.clusterX},
      {CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT, &limits.clusterY},
      {CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH, &limits.clusterZ}};
  for (const auto& [attribute, value] : cluster) {
    int blocks = 0;
    // A device without clusters, or an older driver, does not support the query.
    if (driver_.cuFuncGetAttribute(&blocks, attribute, function) == CUDA_SUCCESS && blocks > 0)
      *value = static_cast<uint32_t>(blocks);
  }
  reply(limits);
  return CUDA_SUCCESS;
}

CUresult Launches::onClusterOccupancy(const cmd::Decoded<cmd::ClusterOccupancy>& command) {
  const auto& question = command.fixed;
  CUfunction function = nullptr;
  CUstream s = nullptr;
  if (!functions_.functionOrKernel(question.function, function)) return violation("unknown function");
  if (!stream(question.stream, s)) return violation("unknown stream");
  const auto ask =
      question.asksSize ? driver_.cuOccupancyMaxPotentialClusterSize : driver_.cuOccupancyMaxActiveClusters;
  if (!ask) return CUDA_ERROR_NOT_SUPPORTED;
  LaunchAttributes attributes;
  if (const CUresult rc = launchAttributes(command.tail[0], attributes)) return rc;
  CUlaunchConfig config = configuration(question, s);
  config.attrs = attributes.all.data();
  config.numAttrs = static_cast<unsigned>(attributes.count);
  int count = 0;
  if (const CUresult rc = ask(&count, function, &config)) return rc;
  reply(cmd::ClusterOccupancyReply{count});
  return CUDA_SUCCESS;
}

}  // namespace millpond::worker
