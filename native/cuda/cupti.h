// SPDX-License-Identifier: Apache-2.0
// The used part of CUPTI's Activity and Callback APIs, as facts: numbers, functions, and the beginnings of its records, which are
// unchanged since CUPTI 11 while their ends have grown with every release.
#pragma once

#include <cstddef>
#include <cstdint>

namespace millpond::cupti {

using Result = int;
inline constexpr Result kSuccess = 0;
inline constexpr Result kInvalidParameter = 1;
inline constexpr Result kInvalidOperation = 7;
inline constexpr Result kMaxLimitReached = 12;  ///< a buffer has no further record
inline constexpr Result kInvalidKind = 21;

enum class Kind : uint32_t {
  kCopy = 1,
  kFill = 2,
  kConcurrentKernel = 10,
  kPeerCopy = 22,
};

/// The direction of a copy.
enum class CopyKind : uint8_t {
  kUnknown = 0,
  kHostToDevice = 1,
  kDeviceToHost = 2,
  kDeviceToDevice = 8,
  kHostToHost = 9,
  kPeerToPeer = 10,
};
enum class MemoryKind : uint8_t { kUnknown = 0, kPageable = 1, kPinned = 2, kDevice = 3, kArray = 4, kManaged = 5 };

/// Times are nanoseconds of the clock that cuptiGetTimestamp reads: CLOCK_REALTIME.
struct [[gnu::packed]] KernelRecord {
  Kind kind;
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
};
static_assert(sizeof(KernelRecord) == 112 && offsetof(KernelRecord, start) == 16 &&
              offsetof(KernelRecord, grid) == 52 && offsetof(KernelRecord, correlation) == 92 &&
              offsetof(KernelRecord, name) == 104);

struct [[gnu::packed]] CopyRecord {
  Kind kind;
  CopyKind copy;
  MemoryKind from, to;
  uint8_t flags;
  uint64_t bytes;
  uint64_t start, end;
  uint32_t device, context, stream;
  uint32_t correlation;
};
static_assert(sizeof(CopyRecord) == 48 && offsetof(CopyRecord, start) == 16 && offsetof(CopyRecord, correlation) == 44);

struct [[gnu::packed]] PeerCopyRecord {
  Kind kind;
  CopyKind copy;
  MemoryKind from, to;
  uint8_t flags;
  uint64_t bytes;
  uint64_t start, end;
  uint32_t device, context, stream;
  uint32_t sourceDevice, sourceContext, targetDevice, targetContext;
  uint32_t correlation;
};
static_assert(sizeof(PeerCopyRecord) == 64 && offsetof(PeerCopyRecord, correlation) == 60);

struct [[gnu::packed]] FillRecord {
  Kind kind;
  uint32_t value;
  uint64_t bytes;
  uint64_t start, end;
  uint32_t device, context, stream;
  uint32_t correlation;
};
static_assert(sizeof(FillRecord) == 48 && offsetof(FillRecord, start) == 16);

using BufferRequested = void (*)(uint8_t** buffer, size_t* bytes, size_t* mostRecords);
using BufferCompleted = void (*)(void* context, uint32_t stream, uint8_t* buffer, size_t bytes, size_t validBytes);

using RegisterCallbacks = Result (*)(BufferRequested, BufferCompleted);
using Enable = Result (*)(Kind);
using GetNextRecord = Result (*)(uint8_t* buffer, size_t validBytes, uint8_t** record);
using GetNumDroppedRecords = Result (*)(void* context, uint32_t stream, size_t* dropped);
using FlushAll = Result (*)(uint32_t flag);
using GetVersion = Result (*)(uint32_t* version);

inline constexpr uint32_t kDriverCalls = 1;  ///< a domain of callbacks
enum class Site : int32_t { kEnter = 0, kExit = 1 };

/// The argument of a callback of a call.
struct CallbackData {
  Site site;
  const char* functionName;
  const void* functionParams;
  void* functionReturnValue;
  const char* symbolName;
  void* context;
  uint32_t contextUid;
  uint64_t* correlationData;
  uint32_t correlation;  ///< of the call's records
};
static_assert(offsetof(CallbackData, correlation) == 64);

using Callback = void (*)(void* data, uint32_t domain, uint32_t call, const CallbackData* told);
using Subscribe = Result (*)(void** subscriber, Callback, void* data);
using EnableCallback = Result (*)(uint32_t isWanted, void* subscriber, uint32_t domain, uint32_t call);

/// Calls of the driver that launch, copy or fill, by their numbers for callbacks, without those of per-thread default streams.
inline constexpr uint32_t kCallsWithWork[] = {
    43,  45,  47,  49,  51,  53,  54,  55,  56,  57,  58,  60,  62,  64,  66,  67,  68,  69,  71,
    73,  75,  77,  79,  81,  216, 218, 220, 222, 224, 226, 248, 249, 250, 251, 252, 253, 254, 276,
    277, 278, 279, 280, 281, 282, 283, 284, 285, 286, 287, 288, 289, 290, 291, 292, 293, 305, 306,
    307, 318, 319, 320, 321, 467, 477, 480, 514, 652, 716, 776, 778, 784, 789, 791, 796, 798,
};

}  // namespace millpond::cupti
