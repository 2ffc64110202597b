// SPDX-License-Identifier: Apache-2.0
#include "nvml/smi_table.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "base/log.h"
#include "nvml/gen/api.h"
#include "nvml/library.h"

namespace millpond::nvml {

namespace {

using Argument = uintptr_t;
using Slot = Return (*)(Argument, Argument, Argument, Argument);

// {6c3efec4-8fc9-4e6c-a327-ee696e12f7c4}, in memory order.
constexpr unsigned char kTable[16] = {0xc4, 0xfe, 0x3e, 0x6c, 0xc9, 0x8f, 0x6c, 0x4e,
                                      0xa3, 0x27, 0xee, 0x69, 0x6e, 0x12, 0xf7, 0xc4};

// Slots that nvidia-smi requires; docs/reference/export-tables.md describes how they were found.
constexpr size_t kIsMonitored = 72;  // whether `dmon` and `pmon` may access the device
constexpr size_t kHandleByIndex = 81;
constexpr size_t kFirstProcessList = 213, kLastProcessList = 215;

/// nvidia-smi's description of a process: like ProcessDetail, followed by the name.
struct SmiProcess {
  ProcessDetail detail;
  char name[4096];
};
static_assert(sizeof(SmiProcess) == 4128);

Return listProcesses(const Gpu& gpu, unsigned& count, SmiProcess* to) {
  const unsigned room = count;
  count = 0;
  if (!to) return kInvalidArgument;
  for (const Process& process : gpu.processes) {
    if (count == room) break;
    SmiProcess& its = to[count++];
    its.detail = {process.pid, process.memory, kNoInstance, kNoInstance, 0};
    const size_t length = std::min(process.program.size(), sizeof its.name - 1);
    std::memcpy(its.name, process.program.data(), length);
    its.name[length] = '\0';
  }
  return kSuccess;
}

/// An unknown function returns "not supported" for a device and writes nothing; the other slots are
/// nvidia-smi's own bookkeeping, and return success.
Return slot(size_t number, Argument first, Argument second, Argument third) {
  if (logs(LogLevel::Trace))
    log(LogLevel::Trace, "slot %zu of nvidia-smi's table: %#lx %#lx %#lx", number, first, second, third);
  return Library::answer([&](const View& view) -> Return {
    if (number == kHandleByIndex) {
      const auto device = reinterpret_cast<Handle*>(second);
      return device ? api::deviceGetHandleByIndex(view, static_cast<unsigned>(first), *device) : kInvalidArgument;
    }
    const Gpu* const gpu = view.find(reinterpret_cast<Handle>(first));
    if (!gpu) return kSuccess;
    const auto number32 = reinterpret_cast<unsigned*>(second);
    if (number == kIsMonitored) {
      if (!number32) return kInvalidArgument;
      *number32 = 1;
      return kSuccess;
    }
    if (number < kFirstProcessList || number > kLastProcessList) return kNotSupported;
    return number32 ? listProcesses(*gpu, *number32, reinterpret_cast<SmiProcess*>(third)) : kInvalidArgument;
  });
}

template <size_t number>
Return numberedSlot(Argument first, Argument second, Argument third, Argument) {
  return slot(number, first, second, third);
}

// Driver 550 has 250 slots, later drivers more.
constexpr size_t kSlots = 511;

struct Table {
  size_t bytes;
  Slot slots[kSlots];
};

template <size_t... numbers>
constexpr Table makeTable(std::index_sequence<numbers...>) {
  return {sizeof(Table), {&numberedSlot<numbers + 1>...}};
}

constexpr Table kSmi = makeTable(std::make_index_sequence<kSlots>());

}  // namespace

const void* smiTable(const void* id) { return std::memcmp(id, kTable, sizeof kTable) == 0 ? &kSmi : nullptr; }

}  // namespace millpond::nvml
