// SPDX-License-Identifier: Apache-2.0
// CUPTI 13.0's numbers and whole records, as facts: what this library gives to programs, which read as much of a record as their
// release of CUPTI has. Records have only grown at their ends; `cuda/cupti.h` has the beginnings that all releases share, which
// the worker reads.
#pragma once

#include <cstddef>
#include <cstdint>

namespace millpond::profiler {

using Result = int;
inline constexpr Result kSuccess = 0;
inline constexpr Result kInvalidParameter = 1;
inline constexpr Result kInvalidOperation = 7;
inline constexpr Result kParameterSizeNotSufficient = 10;
inline constexpr Result kMaxLimitReached = 12;
inline constexpr Result kNotInitialized = 15;
inline constexpr Result kQueueEmpty = 18;
inline constexpr Result kInvalidKind = 21;
inline constexpr Result kNotSupported = 27;
inline constexpr Result kMultipleSubscribersNotSupported = 39;
inline constexpr Result kUnknown = 999;

inline constexpr uint32_t kVersion = 130000;

enum Kind : uint32_t {
  kCopy = 1,
  kFill = 2,
  kDriver = 4,
  kRuntime = 5,
  kConcurrentKernel = 10,
  kOverhead = 17,
  kPeerCopy = 22,
  kSynchronization = 38,
  kExternalCorrelation = 39,
  kKindCount = 64,
};

struct [[gnu::packed, gnu::aligned(8)]] KernelRecord {
  uint32_t kind;
  uint8_t cacheConfig;
  uint8_t sharedMemoryConfig;
  uint16_t registersPerThread;
  uint32_t partitionedCache[2];
  uint64_t start, end;
  uint64_t completed;
  uint32_t device, context, stream;
  int32_t grid[3];
  int32_t block[3];
  int32_t staticSharedBytes, dynamicSharedBytes;
  uint32_t localBytesPerThread, localBytes;
  uint32_t correlation;
  int64_t gridId;
  const char* name;
  void* reserved;
  uint64_t queued, submitted;  ///< 0: unknown
  uint8_t launchType;
  uint8_t isCarveoutRequested, carveoutRequested;
  uint8_t padding;
  uint32_t sharedMemoryExecuted;
  uint64_t graphNodeId;
  uint32_t sharedMemoryLimitConfig;
  uint32_t graphId;
  void* accessPolicyWindow;
  uint32_t channel, channelType;
  uint32_t cluster[3];
  uint32_t clusterSchedulingPolicy;
  uint64_t localBytesV2;
  uint32_t mostClusterSize, mostActiveClusters;
  uint8_t isDeviceLaunched;
  uint8_t padding3[7];
};
static_assert(sizeof(KernelRecord) == 216 && offsetof(KernelRecord, name) == 104 &&
              offsetof(KernelRecord, graphNodeId) == 144 && offsetof(KernelRecord, cluster) == 176);

struct [[gnu::packed, gnu::aligned(8)]] CopyRecord {
  uint32_t kind;
  uint8_t copy, from, to, flags;
  uint64_t bytes;
  uint64_t start, end;
  uint32_t device, context, stream;
  uint32_t correlation;
  uint32_t runtimeCorrelation;
  uint32_t padding;
  void* reserved;
  uint64_t graphNodeId;
  uint32_t graphId;
  uint32_t channel, channelType;
  uint8_t isDeviceLaunched;
  uint8_t padding2[3];
  uint64_t copyCount;
};
static_assert(sizeof(CopyRecord) == 96 && offsetof(CopyRecord, graphNodeId) == 64 &&
              offsetof(CopyRecord, copyCount) == 88);

struct [[gnu::packed, gnu::aligned(8)]] FillRecord {
  uint32_t kind;
  uint32_t value;
  uint64_t bytes;
  uint64_t start, end;
  uint32_t device, context, stream;
  uint32_t correlation;
  uint16_t flags;
  uint16_t memoryKind;
  uint32_t padding;
  void* reserved;
  uint64_t graphNodeId;
  uint32_t graphId;
  uint32_t channel, channelType;
  uint8_t isDeviceLaunched;
  uint8_t padding2[3];
};
static_assert(sizeof(FillRecord) == 88 && offsetof(FillRecord, graphNodeId) == 64);

/// A call of the driver, or of the runtime.
struct [[gnu::packed, gnu::aligned(8)]] CallRecord {
  uint32_t kind;
  uint32_t call;
  uint64_t start, end;
  uint32_t process, thread;
  uint32_t correlation;
  uint32_t result;
};
static_assert(sizeof(CallRecord) == 40);

struct [[gnu::packed, gnu::aligned(8)]] ExternalCorrelationRecord {
  uint32_t kind;
  uint32_t externalKind;
  uint64_t externalId;
  uint32_t correlation;
  uint32_t reserved;
};
static_assert(sizeof(ExternalCorrelationRecord) == 24);

enum class SyncType : uint32_t { kEvent = 1, kStreamWaitsForEvent = 2, kStream = 3, kContext = 4 };

struct [[gnu::packed, gnu::aligned(8)]] SyncRecord {
  uint32_t kind;
  SyncType type;
  uint64_t start, end;
  uint32_t correlation;
  uint32_t context, stream;
  uint32_t event;
  uint64_t eventSync;
  uint32_t result;
  uint32_t padding;
};
static_assert(sizeof(SyncRecord) == 56);

/// Values for the stream, context or event of a synchronization if it is unknown, or if there is none.
inline constexpr uint32_t kNone = UINT32_MAX;

}  // namespace millpond::profiler
