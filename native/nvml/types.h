// SPDX-License-Identifier: Apache-2.0
// The types of NVML's binary interface that are used here, laid out as in nvml.h.
#pragma once

#include <cstddef>
#include <cstdint>

namespace millpond::nvml {

/// nvmlReturn_t.
enum Return : int {
  kSuccess = 0,
  kUninitialized = 1,
  kInvalidArgument = 2,
  kNotSupported = 3,
  kNotFound = 6,
  kInsufficientSize = 7,
  kDriverNotLoaded = 9,
  kTimeout = 10,
  kGpuIsLost = 15,
  kInsufficientMemory = 20,
  kVersionMismatch = 25,
  kUnknown = 999,
};

/// nvmlDevice_t.
using Handle = struct OpaqueDevice*;
/// nvmlEventSet_t.
using EventSet = struct OpaqueEventSet*;

/// The version field of a versioned structure: its size, and the number of its layout.
template <typename T>
constexpr unsigned versionOf(unsigned layout) {
  return static_cast<unsigned>(sizeof(T)) | layout << 24;
}

struct Memory {
  uint64_t total, free, used;
};

struct MemoryV2 {
  unsigned version;
  uint64_t total, reserved, free, used;
};

struct Utilization {
  unsigned gpu, memory;  ///< percent
};

struct PciInfoV1 {
  char busId[16];
  unsigned domain, bus, device;
  unsigned deviceId;
  unsigned reserved[4];
};

struct PciInfoV2 {
  char busId[16];
  unsigned domain, bus, device;
  unsigned deviceId, subsystemId;
  unsigned reserved[4];
};

struct PciInfo {
  char legacyBusId[16];
  unsigned domain, bus, device;
  unsigned deviceId, subsystemId;
  char busId[32];
};

struct PciInfoExt {
  unsigned version;
  unsigned domain, bus, device;
  unsigned deviceId, subsystemId;
  unsigned baseClass, subClass;
  char busId[32];
};

struct ProcessInfoV1 {
  unsigned pid;
  uint64_t memory;
};

/// For a process that is in no MIG instance.
constexpr unsigned kNoInstance = 0xffff'ffff;

struct ProcessInfo {
  unsigned pid;
  uint64_t memory;
  unsigned gpuInstance, computeInstance;
};

struct ProcessDetail {
  unsigned pid;
  uint64_t memory;
  unsigned gpuInstance, computeInstance;
  uint64_t protectedMemory;
};

struct ProcessDetailList {
  unsigned version;
  unsigned mode;  ///< 0: compute, 1: graphics, 2: MPS
  unsigned count;
  ProcessDetail* processes;
};

struct ProcessSample {
  unsigned pid;
  uint64_t atUs;
  unsigned sm, memory, encoder, decoder;  ///< percent
};

struct ProcessUtilization {
  uint64_t atUs;
  unsigned pid;
  unsigned sm, memory, encoder, decoder, jpeg, opticalFlow;  ///< percent
};

struct ProcessesUtilization {
  unsigned version;
  unsigned count;
  uint64_t sinceUs;
  ProcessUtilization* processes;
};

struct Temperature {
  unsigned version;
  unsigned sensor;
  int celsius;
};

enum class ValueType : unsigned {
  kDouble,
  kUnsigned,
  kUnsignedLong,
  kUnsignedLongLong,
  kSignedLongLong,
  kSigned,
  kUnsignedShort
};

struct FieldValue {
  unsigned field;
  unsigned scope;
  int64_t atUs;
  int64_t tookUs;
  ValueType type;
  Return result;
  union {
    unsigned number;
    uint64_t longNumber;
  } value;
};

struct Uuid {
  unsigned version;
  unsigned form;  ///< 1: text, 2: bytes
  union {
    char text[41];
    unsigned char bytes[16];
  } value;
};

struct GpmSupport {
  unsigned version;
  unsigned isSupported;
};

static_assert(sizeof(Memory) == 24 && sizeof(MemoryV2) == 40 && sizeof(PciInfo) == 68 && sizeof(PciInfoExt) == 64);
static_assert(sizeof(ProcessInfoV1) == 16 && sizeof(ProcessInfo) == 24 && sizeof(ProcessDetail) == 32);
static_assert(sizeof(ProcessDetailList) == 24 && sizeof(ProcessSample) == 32 && sizeof(ProcessUtilization) == 40);
static_assert(sizeof(ProcessesUtilization) == 24 && sizeof(FieldValue) == 40 && sizeof(Uuid) == 52);

}  // namespace millpond::nvml
