// SPDX-License-Identifier: Apache-2.0
#include "nvml/gen/api.h"

namespace millpond::nvml::api {

namespace {

constexpr unsigned kCompute = 0;
constexpr unsigned kKindsOfProcesses = 3;

ProcessUtilization utilizationOf(const Gpu& gpu, const Process& process) {
  ProcessUtilization use{};
  use.atUs = static_cast<uint64_t>(gpu.atUs);
  use.pid = process.pid;
  use.sm = process.utilization.value_or(0);
  return use;
}

/// Processes whose utilisation has been sampled since the caller's last query.
std::vector<ProcessUtilization> utilizations(const Gpu& gpu, uint64_t sinceUs) {
  std::vector<ProcessUtilization> all;
  if (static_cast<uint64_t>(gpu.atUs) <= sinceUs) return all;
  for (const Process& process : gpu.processes)
    if (process.utilization) all.push_back(utilizationOf(gpu, process));
  return all;
}

}  // namespace

Return deviceGetMemoryInfo(const Gpu& device, Memory& memory) {
  if (!device.memoryTotal) return kNotSupported;
  memory = {*device.memoryTotal, *device.memoryTotal - device.memoryUsed, device.memoryUsed};
  return kSuccess;
}

Return deviceGetMemoryInfo_v2(const Gpu& device, MemoryV2& memory) {
  const unsigned version = memory.version;
  if (version != versionOf<MemoryV2>(2)) return kVersionMismatch;
  if (!device.memoryTotal) return kNotSupported;
  memory = {version, *device.memoryTotal, 0, *device.memoryTotal - device.memoryUsed, device.memoryUsed};
  return kSuccess;
}

Return deviceGetUtilizationRates(const Gpu& device, Utilization& utilization) {
  if (!device.utilization) return kNotSupported;
  utilization = {*device.utilization, device.card.memoryUtilization.value_or(0)};
  return kSuccess;
}

Return deviceGetComputeRunningProcesses(const Gpu& device, std::vector<ProcessInfoV1>& processes) {
  for (const Process& process : device.processes) processes.push_back({process.pid, process.memory});
  return kSuccess;
}

Return deviceGetComputeRunningProcesses_v2(const Gpu& device, std::vector<ProcessInfo>& processes) {
  for (const Process& process : device.processes)
    processes.push_back({process.pid, process.memory, kNoInstance, kNoInstance});
  return kSuccess;
}

// vGPUs do no graphics, and there is no MPS.
Return deviceGetGraphicsRunningProcesses(const Gpu&, std::vector<ProcessInfoV1>&) { return kSuccess; }
Return deviceGetGraphicsRunningProcesses_v2(const Gpu&, std::vector<ProcessInfo>&) { return kSuccess; }
Return deviceGetMPSComputeRunningProcesses(const Gpu&, std::vector<ProcessInfoV1>&) { return kSuccess; }
Return deviceGetMPSComputeRunningProcesses_v2(const Gpu&, std::vector<ProcessInfo>&) { return kSuccess; }

Return deviceGetRunningProcessDetailList(const Gpu& device, ProcessDetailList& processes) {
  if (processes.version != versionOf<ProcessDetailList>(1)) return kVersionMismatch;
  if (processes.mode >= kKindsOfProcesses) return kInvalidArgument;
  const unsigned room = processes.processes ? processes.count : 0;
  ProcessDetail* const to = processes.processes;
  const size_t count = processes.mode == kCompute ? device.processes.size() : 0;
  processes.count = static_cast<unsigned>(count);
  if (count > room) return kInsufficientSize;
  for (size_t i = 0; i < count; ++i)
    to[i] = {device.processes[i].pid, device.processes[i].memory, kNoInstance, kNoInstance, 0};
  return kSuccess;
}

Return deviceGetProcessUtilization(const Gpu& device, ProcessSample* samples, unsigned& count, uint64_t since) {
  const auto all = utilizations(device, since);
  const unsigned room = samples ? count : 0;
  count = static_cast<unsigned>(all.size());
  if (all.empty()) return kNotFound;
  if (all.size() > room) return kInsufficientSize;
  for (const ProcessUtilization& use : all) *samples++ = {use.pid, use.atUs, use.sm, 0, 0, 0};
  return kSuccess;
}

Return deviceGetProcessesUtilizationInfo(const Gpu& device, ProcessesUtilization& processes) {
  if (processes.version != versionOf<ProcessesUtilization>(1)) return kVersionMismatch;
  const auto all = utilizations(device, processes.sinceUs);
  ProcessUtilization* to = processes.processes;
  const unsigned room = to ? processes.count : 0;
  processes.count = static_cast<unsigned>(all.size());
  if (all.empty()) return kNotFound;
  if (all.size() > room) return kInsufficientSize;
  for (const ProcessUtilization& use : all) *to++ = use;
  processes.sinceUs = static_cast<uint64_t>(device.atUs);
  return kSuccess;
}

}  // namespace millpond::nvml::api
