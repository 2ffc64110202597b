// SPDX-License-Identifier: Apache-2.0
#include "nvml/view.h"

#include <sys/time.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <span>

#include "base/errors/coded_error.h"
#include "base/sha256.h"
#include "client/attach/connect_call.h"

namespace millpond::nvml {

namespace {

using client::textOf;

// Handles are the addresses of these bytes, which are never read.
char handles[kMostGpus];

// Too large for a handle that is not ours.
uintptr_t placeOf(Handle handle) {
  return reinterpret_cast<uintptr_t>(handle) - reinterpret_cast<uintptr_t>(&handles[0]);
}

int64_t nowUs() {
  timeval now{};
  ::gettimeofday(&now, nullptr);
  return int64_t{now.tv_sec} * 1'000'000 + now.tv_usec;
}

// A number of a reply, whose members are absent when 0.
uint64_t number(const Json* object, std::string_view key) {
  const Json* value = object ? object->find(key) : nullptr;
  return value ? value->uint64().value_or(0) : 0;
}

// A number that may not be known.
std::optional<unsigned> figure(const Json* object, std::string_view key) {
  const Json* value = object ? object->find(key) : nullptr;
  const auto found = value ? value->uint64() : std::nullopt;
  return found && *found <= UINT32_MAX ? std::optional(static_cast<unsigned>(*found)) : std::nullopt;
}

const Json::Array& items(const Json* object, std::string_view key) {
  static const Json::Array none;
  const Json* value = object ? object->find(key) : nullptr;
  return value && value->array() ? *value->array() : none;
}

Card readCard(const Json* figures) {
  Card card;
  card.temperatureCelsius = figure(figures, "temperatureCelsius");
  card.powerMilliwatts = figure(figures, "powerMilliwatts");
  card.powerLimitMilliwatts = figure(figures, "powerLimitMilliwatts");
  card.performanceState = figure(figures, "performanceState");
  card.memoryUtilization = figure(figures, "memoryUtilizationPercent");
  constexpr const char* kClocks[] = {"graphicsClockMhz", "smClockMhz", "memoryClockMhz"};
  constexpr const char* kMostClocks[] = {"maxGraphicsClockMhz", "maxSmClockMhz", "maxMemoryClockMhz"};
  for (size_t i = 0; i < std::size(kClocks); ++i) {
    card.clocks[i] = figure(figures, kClocks[i]);
    card.maxClocks[i] = figure(figures, kMostClocks[i]);
  }
  return card;
}

void readCapability(const std::string& text, Gpu& gpu) {
  const size_t point = text.find('.');
  if (point == std::string::npos) return;
  const char* end = text.data() + text.size();
  int major = 0, minor = 0;
  if (std::from_chars(text.data(), text.data() + point, major).ec != std::errc() ||
      std::from_chars(text.data() + point + 1, end, minor).ec != std::errc())
    return;
  gpu.major = major;
  gpu.minor = minor;
}

Gpu readGpu(const Json& device, unsigned index) {
  Gpu gpu;
  gpu.index = index;
  gpu.atUs = nowUs();
  gpu.uuid = textOf(&device, "uuid");
  gpu.name = textOf(&device, "name");
  gpu.pciBusId = textOf(&device, "pciBusId");
  gpu.driverVersion = textOf(&device, "driverVersion");
  gpu.cudaVersion = static_cast<int>(figure(&device, "cudaVersion").value_or(0));
  gpu.minorNumber = figure(&device, "index").value_or(0);
  gpu.numaNode = textOf(&device, "numaNode");
  gpu.pcieSwitch = textOf(&device, "pcieSwitch");
  gpu.nvlinkDomain = textOf(&device, "nvlinkDomain");
  gpu.nvlinks = figure(&device, "nvlinks").value_or(0);
  gpu.memoryTotal = number(&device, "memoryBytes");
  gpu.memoryUsed = std::min(number(&device, "memoryUsedBytes"), *gpu.memoryTotal);
  gpu.utilization = figure(&device, "utilizationPercent");
  gpu.card = readCard(device.find("card"));
  readCapability(textOf(&device, "computeCapability"), gpu);
  return gpu;
}

// Independent of the device, and equal in all processes of the claim.
std::string inventedUuid(const std::string& identity, unsigned index) {
  const std::string whole = identity + "/" + std::to_string(index);
  const Sha256 digest = sha256(std::as_bytes(std::span(whole)));
  std::string text = "GPU-";
  for (size_t i = 0; i < 16; ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text.push_back('-');
    char two[3];
    std::snprintf(two, sizeof two, "%02x", static_cast<unsigned>(digest[i]));
    text += two;
  }
  return text;
}

}  // namespace

Handle View::handleOf(const Gpu& gpu) { return reinterpret_cast<Handle>(&handles[gpu.index]); }

bool View::isHandle(Handle handle) { return placeOf(handle) < kMostGpus; }

const Gpu* View::find(Handle handle) const {
  const auto offset = placeOf(handle);
  return offset < gpus.size() ? &gpus[offset] : nullptr;
}

Result<View> readDescription(const Json& answer) {
  View view;
  for (const Json& device : items(&answer, "devices")) {
    if (view.gpus.size() == kMostGpus) break;
    view.gpus.push_back(readGpu(device, static_cast<unsigned>(view.gpus.size())));
    if (view.gpus.back().uuid.empty() || *view.gpus.back().memoryTotal == 0)
      return codedError(codes::kVersion, "the node's agent described a device without UUID or memory",
                        "Check that this client library and the agent are of the same version.");
  }
  // Links to cards outside the claim are not shown.
  for (Gpu& gpu : view.gpus) {
    const bool reachesOther = std::any_of(view.gpus.begin(), view.gpus.end(), [&](const Gpu& other) {
      return other.index != gpu.index && !gpu.nvlinkDomain.empty() && other.nvlinkDomain == gpu.nvlinkDomain;
    });
    if (!reachesOther) gpu.nvlinks = 0;
  }
  for (const Json& session : items(&answer, "sessions")) {
    const unsigned pid = figure(&session, "pid").value_or(0);
    for (const Json& use : items(&session, "devices")) {
      const std::string uuid = textOf(&use, "uuid");
      const auto gpu = std::find_if(view.gpus.begin(), view.gpus.end(), [&](const Gpu& g) { return g.uuid == uuid; });
      if (gpu == view.gpus.end()) continue;
      gpu->processes.push_back(
          {pid, textOf(&session, "program"), number(&use, "memoryUsedBytes"), figure(&use, "utilizationPercent")});
    }
  }
  return view;
}

Result<View> readRequest(const Json& claim) {
  Wanted wanted;
  wanted.identity = textOf(&claim, "name");
  const auto gpus = figure(&claim, "gpus").value_or(0);
  if (wanted.identity.empty() || gpus == 0 || gpus > kMostGpus)
    return codedError(codes::kVersion, "the controller's answer has no claim with a name and vGPUs",
                      "Check that this client library and the controller are of the same version.");
  wanted.gpus = gpus;
  wanted.memoryBytes = number(&claim, "memoryBytes");
  wanted.state = textOf(&claim, "state") == "CLAIM_STATE_DORMANT" ? "dormant" : "waiting";
  return viewOf(wanted);
}

View viewOf(const Wanted& wanted) {
  View view;
  for (unsigned i = 0; i < wanted.gpus && i < kMostGpus; ++i) {
    Gpu gpu;
    gpu.index = i;
    gpu.atUs = nowUs();
    gpu.uuid = inventedUuid(wanted.identity, i);
    gpu.name = "Millpond vGPU (" + wanted.state + ")";
    if (wanted.memoryBytes != 0) gpu.memoryTotal = wanted.memoryBytes;
    // It has no device, so it is idle.
    gpu.utilization = 0;
    view.gpus.push_back(std::move(gpu));
  }
  return view;
}

}  // namespace millpond::nvml
