// SPDX-License-Identifier: Apache-2.0
#include <atomic>
#include <bit>
#include <cerrno>
#include <cstddef>
#include <ctime>
#include <utility>

#include "nvml/gen/api.h"

namespace millpond::nvml::api {

namespace {

// No events are delivered to programs, so a set is nothing but its handle: the address of its byte.
constexpr size_t kMostSets = 4096;
constexpr size_t kSetsOfWord = 64;
char sets[kMostSets];
/// A bit for each set that exists. Without a lock, which a fork could leave taken.
std::atomic<uint64_t> existing[kMostSets / kSetsOfWord];

/// The word and the bit of a set; no bit for a handle that is not ours.
std::pair<size_t, uint64_t> placeOf(EventSet set) {
  const auto place = reinterpret_cast<uintptr_t>(set) - reinterpret_cast<uintptr_t>(&sets[0]);
  if (place >= kMostSets) return {0, 0};
  return {place / kSetsOfWord, uint64_t{1} << place % kSetsOfWord};
}

bool exists(EventSet set) {
  const auto [word, bit] = placeOf(set);
  return (existing[word].load() & bit) != 0;
}

const std::string& driverVersion(const View& view) {
  static const std::string none;
  return view.gpus.empty() ? none : view.gpus.front().driverVersion;
}

}  // namespace

Return systemGetDriverVersion(const View& view, std::string& version) {
  version = driverVersion(view);
  return version.empty() ? kNotSupported : kSuccess;
}

Return systemGetNVMLVersion(const View& view, std::string& version) {
  // As in the real library: the version of the interface, then that of its driver.
  version = "13";
  if (!driverVersion(view).empty()) version += "." + driverVersion(view);
  return kSuccess;
}

Return systemGetCudaDriverVersion(const View& view, int& version) {
  version = view.gpus.empty() ? 0 : view.gpus.front().cudaVersion;
  return version == 0 ? kNotSupported : kSuccess;
}

Return systemGetProcessName(const View& view, unsigned pid, std::string& name) {
  for (const Gpu& gpu : view.gpus) {
    for (const Process& process : gpu.processes) {
      if (process.pid != pid) continue;
      name = process.program;
      return kSuccess;
    }
  }
  return kNotFound;
}

Return unitGetCount(unsigned& count) {
  count = 0;
  return kSuccess;
}

Return getExcludedDeviceCount(unsigned& count) {
  count = 0;
  return kSuccess;
}

Return systemGetHicVersion(unsigned& count, void*) {
  count = 0;
  return kSuccess;
}

Return eventSetCreate(EventSet& set) {
  for (size_t word = 0; word < std::size(existing); ++word) {
    for (uint64_t known = existing[word].load(); ~known != 0;) {
      const auto free = static_cast<size_t>(std::countr_one(known));
      if (!existing[word].compare_exchange_weak(known, known | uint64_t{1} << free)) continue;
      set = reinterpret_cast<EventSet>(&sets[word * kSetsOfWord + free]);
      return kSuccess;
    }
  }
  return kInsufficientMemory;
}

Return eventSetWait_v2(EventSet set, void* event, unsigned timeoutMs) {
  if (!exists(set) || !event) return kInvalidArgument;
  timespec left{static_cast<time_t>(timeoutMs / 1000), static_cast<long>(timeoutMs % 1000) * 1'000'000};
  while (::nanosleep(&left, &left) != 0 && errno == EINTR) {
  }
  return kTimeout;
}

Return eventSetFree(EventSet set) {
  const auto [word, bit] = placeOf(set);
  return (existing[word].fetch_and(~bit) & bit) != 0 ? kSuccess : kInvalidArgument;
}

Return deviceRegisterEvents(const Gpu&, uint64_t types, EventSet set) {
  if (!exists(set)) return kInvalidArgument;
  // nvmlDeviceGetSupportedEventTypes has returned none.
  return types == 0 ? kSuccess : kNotSupported;
}

}  // namespace millpond::nvml::api
