// SPDX-License-Identifier: Apache-2.0
#include "softgpu/driver/model/device.h"

#include <sched.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstring>

#include "base/sha256.h"

namespace millpond::softgpu {
namespace {

unsigned availableCores() {
  cpu_set_t set;
  if (::sched_getaffinity(0, sizeof(set), &set) != 0) return 1;
  const int count = CPU_COUNT(&set);
  return count > 0 ? static_cast<unsigned>(count) : 1;
}

// Checking the file system for every kernel and copy would cost more than some of them.
constexpr int64_t kLookEveryNs = 10'000'000;

std::string hex(const std::array<uint8_t, 16>& bytes) {
  std::string text;
  for (uint8_t byte : bytes) {
    char digits[3];
    std::snprintf(digits, sizeof(digits), "%02x", static_cast<unsigned>(byte));
    text += digits;
  }
  return text;
}

}  // namespace

std::array<uint8_t, 16> deviceUuid(const std::string& seed, unsigned ordinal) {
  const std::string identity = "millpond softgpu\n" + seed + "\n" + std::to_string(ordinal);
  const Sha256 hash = sha256(std::as_bytes(std::span(identity)));
  std::array<uint8_t, 16> uuid;
  std::memcpy(uuid.data(), hash.data(), sizeof(uuid));
  // Version 8 (custom), RFC 9562 variant.
  uuid[6] = static_cast<uint8_t>((uuid[6] & 0x0F) | 0x80);
  uuid[8] = static_cast<uint8_t>((uuid[8] & 0x3F) | 0x80);
  return uuid;
}

Result<std::unique_ptr<Device>> Device::open(unsigned ordinal, const Configuration& configuration,
                                             Dispatcher& dispatcher) {
  const std::array<uint8_t, 16> uuid = deviceUuid(configuration.seed, ordinal);
  // Named by the UUID, so that processes share a device exactly when they see the same UUID.
  const std::string name = configuration.stateDirectory + "/" + hex(uuid);
  Result<std::unique_ptr<Ledger>> ledger = Ledger::open(name + ".memory");
  if (!ledger) return ledger.error();
  return std::make_unique<Device>(ordinal, uuid, configuration, std::move(*ledger), name + ".lost", dispatcher);
}

Device::Device(unsigned ordinal, std::array<uint8_t, 16> uuid, const Configuration& configuration,
               std::unique_ptr<Ledger> ledger, std::string lostPath, Dispatcher& dispatcher)
    : ordinal_(ordinal),
      uuid_(uuid),
      memoryBytes_(configuration.memoryBytes),
      overhead_(configuration.overhead),
      multiprocessors_(availableCores()),
      ledger_(std::move(ledger)),
      lostPath_(std::move(lostPath)),
      dispatcher_(dispatcher) {}

std::string Device::pciBusId() const {
  char text[16];
  std::snprintf(text, sizeof(text), "0000:%02X:00.0", ordinal_ + 1);
  return text;
}

bool Device::isLost() {
  const int64_t now = std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
  if (now >= lookAgainNs_.load(std::memory_order_relaxed)) {
    wasLost_.store(::access(lostPath_.c_str(), F_OK) == 0, std::memory_order_relaxed);
    lookAgainNs_.store(now + kLookEveryNs, std::memory_order_relaxed);
  }
  return wasLost_.load(std::memory_order_relaxed);
}

uint64_t Device::freeBytes() {
  const uint64_t used = ledger_->used();
  return used < memoryBytes_ ? memoryBytes_ - used : 0;
}

}  // namespace millpond::softgpu
