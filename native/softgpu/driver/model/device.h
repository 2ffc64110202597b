// SPDX-License-Identifier: Apache-2.0
// One software device: its identity, capabilities and amount of memory.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "cuda/gen/cuda_api.h"
#include "softgpu/driver/host/configuration.h"
#include "softgpu/driver/host/ledger.h"
#include "softgpu/driver/queue/dispatcher.h"

namespace millpond::softgpu {

class Context;

// The limits of compute capability 7.5, on which several functions must agree.
inline constexpr unsigned kComputeMajor = 7;
inline constexpr unsigned kComputeMinor = 5;
inline constexpr unsigned kMaxThreadsPerMultiprocessor = 1024;
inline constexpr unsigned kMaxBlocksPerMultiprocessor = 16;
inline constexpr unsigned kRegistersPerMultiprocessor = 65536;
inline constexpr unsigned kSharedBytesPerBlock = 48 * 1024;
inline constexpr unsigned kSharedBytesPerBlockOptIn = 64 * 1024;
inline constexpr unsigned kSharedBytesPerMultiprocessor = 64 * 1024;
inline constexpr unsigned kMaxGridX = 0x7FFFFFFF;
inline constexpr unsigned kMaxGridYZ = 65535;
inline constexpr unsigned kMaxBlockXY = 1024;
inline constexpr unsigned kMaxBlockZ = 64;
inline constexpr size_t kMaxPitch = 0x7FFFFFFF;
inline constexpr size_t kPitchAlignment = 512;

/// Alignment of memory that textures read without an array, and of its rows. In bytes.
inline constexpr int kTextureAlignment = 512;
inline constexpr int kTexturePitchAlignment = 32;

class Device {
 public:
  /// Fails if the file that shares the use of memory cannot be opened. `dispatcher` runs the work of its contexts.
  static Result<std::unique_ptr<Device>> open(unsigned ordinal, const Configuration& configuration,
                                              Dispatcher& dispatcher);

  /// @param lostPath exists when the device has fallen off its bus.
  Device(unsigned ordinal, std::array<uint8_t, 16> uuid, const Configuration& configuration,
         std::unique_ptr<Ledger> ledger, std::string lostPath, Dispatcher& dispatcher);

  Dispatcher& dispatcher() const { return dispatcher_; }
  unsigned ordinal() const { return ordinal_; }
  const char* name() const { return "Software GPU"; }
  const std::array<uint8_t, 16>& uuid() const { return uuid_; }
  uint64_t memoryBytes() const { return memoryBytes_; }
  /// Memory that the driver takes of it for a context.
  const Overhead& overhead() const { return overhead_; }
  /// "0000:01:00.0" for ordinal 0.
  std::string pciBusId() const;
  unsigned multiprocessors() const { return multiprocessors_; }
  /// None for an unknown attribute.
  std::optional<int> attribute(CUdevice_attribute attribute) const;

  /// Allocates memory of the device, which all processes of the machine share; false if not enough is left.
  bool charge(uint64_t bytes) { return ledger_->charge(bytes, memoryBytes_); }
  void release(uint64_t bytes) { ledger_->release(bytes); }
  uint64_t freeBytes();

  /// Whether it has fallen off its bus: context creation and submitted work fail. Detected within
  /// milliseconds.
  bool isLost();

  /// The context that the runtime shares; its handle exists before it is retained. Set once, before the device is used.
  const std::shared_ptr<Context>& primaryContext() const { return primaryContext_; }
  void setPrimaryContext(std::shared_ptr<Context> context) { primaryContext_ = std::move(context); }

 private:
  const unsigned ordinal_;
  const std::array<uint8_t, 16> uuid_;
  const uint64_t memoryBytes_;
  const Overhead overhead_;
  const unsigned multiprocessors_;
  std::unique_ptr<Ledger> ledger_;
  const std::string lostPath_;
  Dispatcher& dispatcher_;
  std::atomic<bool> wasLost_ = false;
  std::atomic<int64_t> lookAgainNs_ = 0;  // on the monotonic clock
  std::shared_ptr<Context> primaryContext_;
};

/// A UUID that is the same for the same seed and ordinal, and differs for any other.
std::array<uint8_t, 16> deviceUuid(const std::string& seed, unsigned ordinal);

}  // namespace millpond::softgpu
