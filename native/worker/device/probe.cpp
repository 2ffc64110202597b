// SPDX-License-Identifier: Apache-2.0
#include "worker/device/probe.h"

#include <cstring>
#include <map>
#include <utility>
#include <vector>

#include "base/json.h"
#include "worker/device/measured_costs.h"
#include "worker/device/nvml.h"
#include "worker/device/session_devices.h"

namespace millpond::worker {

bool isSoftwareGpu(const Driver& driver, CUdevice device) {
  char name[256] = {};
  return driver.cuDeviceGetName(name, sizeof(name) - 1, device) == CUDA_SUCCESS &&
         std::strstr(name, "Software GPU") != nullptr;
}

Result<std::string> probeDevices(const Driver& driver) {
  int version = 0;
  int count = 0;
  if (CUresult rc = driver.cuDriverGetVersion(&version)) return Error{failure(driver, "cuDriverGetVersion", rc)};
  if (CUresult rc = driver.cuDeviceGetCount(&count)) return Error{failure(driver, "cuDeviceGetCount", rc)};
  const Nvml nvml;
  std::vector<std::string> cards;
  Json::Array devices;
  for (int i = 0; i < count; ++i) {
    CUdevice device = 0;
    char name[256] = {};
    char bus[32] = {};
    CUuuid uuid{};
    size_t total = 0;
    int major = 0, minor = 0, processors = 0;
    const auto attribute = [&](int& value, CUdevice_attribute id) {
      return driver.cuDeviceGetAttribute(&value, id, device);
    };
    CUresult rc = driver.cuDeviceGet(&device, i);
    if (!rc) rc = driver.cuDeviceGetName(name, sizeof(name) - 1, device);
    if (!rc) rc = driver.cuDeviceGetUuid_v2(&uuid, device);
    if (!rc) rc = driver.cuDeviceTotalMem_v2(&total, device);
    if (!rc) rc = driver.cuDeviceGetPCIBusId(bus, sizeof(bus), device);
    if (!rc) rc = attribute(major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
    if (!rc) rc = attribute(minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
    if (!rc) rc = attribute(processors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
    if (rc) return Error{"device " + std::to_string(i) + ": " + failure(driver, "a query", rc)};
    const bool soft = isSoftwareGpu(driver, device);
    const unsigned links = soft ? 0 : nvml.linksOf(uuidText(uuid));
    if (!soft) cards.push_back(uuidText(uuid));
    devices.push_back(Json::Object{{"ordinal", i},
                                   {"uuid", uuidText(uuid)},
                                   {"name", std::string(name)},
                                   {"memoryBytes", static_cast<uint64_t>(total)},
                                   {"pciBusId", std::string(bus)},
                                   {"computeCapability", std::to_string(major) + "." + std::to_string(minor)},
                                   {"multiprocessors", processors},
                                   {"kind", soft ? "softgpu" : "nvidia"},
                                   {"nvlinks", static_cast<uint64_t>(links)}});
  }
  Json::Array links;
  for (size_t i = 0; i < cards.size(); ++i)
    for (size_t j = i + 1; j < cards.size(); ++j)
      if (nvml.areLinked(cards[i], cards[j])) links.push_back(Json::Array{cards[i], cards[j]});
  return Json(Json::Object{{"driver", cards.empty() ? std::string() : nvml.driverVersion()},
                           {"cudaVersion", version},
                           {"devices", std::move(devices)},
                           {"nvlinks", std::move(links)}})
      .dump();
}

Result<std::string> measureDevices(const Driver& driver) {
  int count = 0;
  if (CUresult rc = driver.cuDeviceGetCount(&count)) return Error{failure(driver, "cuDeviceGetCount", rc)};
  const Nvml nvml;
  // Devices of one kind have the same costs.
  std::map<std::pair<std::string, int>, MeasuredCosts> known;
  Json::Array all;
  for (int i = 0; i < count; ++i) {
    CUdevice device = 0;
    CUuuid uuid{};
    char name[256] = {};
    int processors = 0;
    if (driver.cuDeviceGet(&device, i) || driver.cuDeviceGetUuid_v2(&uuid, device) ||
        driver.cuDeviceGetName(name, sizeof(name) - 1, device) ||
        driver.cuDeviceGetAttribute(&processors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device))
      continue;
    const std::pair kind(std::string(name), processors);
    if (!known.contains(kind))
      if (const auto measured = measureCosts(driver, device, uuidText(uuid), nvml)) known[kind] = *measured;
    const auto costs = known.find(kind);
    if (costs == known.end()) continue;
    all.push_back(Json::Object{{"uuid", uuidText(uuid)},
                               {"contextBytes", costs->second.context},
                               {"printsBytes", costs->second.prints},
                               {"allocatesBytes", costs->second.allocates}});
  }
  return Json(Json::Object{{"costs", std::move(all)}}).dump();
}

}  // namespace millpond::worker
