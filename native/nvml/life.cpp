// SPDX-License-Identifier: Apache-2.0
// Initialisation and shutdown of the library, and functions that work without it.
#include "nvml/library.h"
#include "nvml/smi_table.h"

#define NVML extern "C" __attribute__((visibility("default")))

using namespace millpond::nvml;

namespace {

// By code; NVML's own texts, which programs compare.
constexpr const char* kTexts[] = {
    "Success",
    "Uninitialized",
    "Invalid Argument",
    "Not Supported",
    "Insufficient Permissions",
    "Already Initialized",
    "Not Found",
    "Insufficient Size",
    "Insufficient External Power",
    "Driver Not Loaded",
    "Timeout",
    "Interrupt Request Issue",
    "NVML Shared Library Not Found",
    "Function Not Found",
    "Corrupted infoROM",
    "GPU is lost",
    "GPU requires reset",
    "GPU access blocked by the operating system",
    "Driver/library version mismatch",
    "In use by another client",
    "Insufficient Memory",
    "No data",
    "vGPU ECC not supported",
    "Insufficient Resources",
    "Invalid Frequency",
    "Argument version mismatch",
    "Requested functionality has been deprecated",
    "System is not in ready state",
    "No supported GPUs were found",
    "Resource not in correct state to perform requested operation",
};

}  // namespace

NVML Return nvmlInit_v2() { return Library::initialise(); }
NVML Return nvmlInit() { return Library::initialise(); }
// The flags let the real library start without GPUs, and without waking them, which is always so here.
NVML Return nvmlInitWithFlags(unsigned) { return Library::initialise(); }
NVML Return nvmlShutdown() { return Library::shutDown(); }

NVML const char* nvmlErrorString(int code) {
  return code >= 0 && static_cast<size_t>(code) < std::size(kTexts) ? kTexts[code] : "Unknown Error";
}

NVML Return nvmlInternalGetExportTable(const void** table, const void* id) {
  if (!table || !id) return kInvalidArgument;
  *table = smiTable(id);
  return *table ? kSuccess : kInvalidArgument;
}
