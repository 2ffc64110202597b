// SPDX-License-Identifier: Apache-2.0
// Records of CUPTI as lines, for tests: kind, name or number, start, end, correlation, the rest.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstring>

#include "cupti/types.h"

extern "C" int cuptiGetCallbackName(uint32_t, uint32_t, const char**);

namespace millpond::profiler {

template <typename R>
R as(const uint8_t* record) {
  R read;
  std::memcpy(&read, record, sizeof read);
  return read;
}

inline void print(const uint8_t* record, std::FILE* to) {
  const auto number = [](uint64_t value) { return static_cast<unsigned long long>(value); };
  switch (as<uint32_t>(record)) {
    case kConcurrentKernel: {
      const auto k = as<KernelRecord>(record);
      std::fprintf(to, "kernel %s %llu %llu %u %u %u %d %d\n", k.name, number(k.start), number(k.end), k.correlation,
                   k.device, k.stream, k.grid[0], k.block[0]);
      break;
    }
    case kCopy: {
      const auto c = as<CopyRecord>(record);
      std::fprintf(to, "copy %u %llu %llu %u %u %u %llu\n", c.copy, number(c.start), number(c.end), c.correlation,
                   c.device, c.stream, number(c.bytes));
      break;
    }
    case kFill: {
      const auto f = as<FillRecord>(record);
      std::fprintf(to, "fill %u %llu %llu %u %u %u %llu\n", f.value, number(f.start), number(f.end), f.correlation,
                   f.device, f.stream, number(f.bytes));
      break;
    }
    case kDriver:
    case kRuntime: {
      const auto d = as<CallRecord>(record);
      const char* name = "?";
      // Its domain: 1 is the driver.
      cuptiGetCallbackName(d.kind == kDriver ? 1 : 2, d.call, &name);
      std::fprintf(to, "%s %s %llu %llu %u %u %u\n", d.kind == kDriver ? "call" : "runtime", name, number(d.start),
                   number(d.end), d.correlation, d.thread, d.result);
      break;
    }
    case kSynchronization: {
      const auto s = as<SyncRecord>(record);
      std::fprintf(to, "sync %u %llu %llu %u %u\n", static_cast<uint32_t>(s.type), number(s.start), number(s.end),
                   s.correlation, s.stream);
      break;
    }
    case kExternalCorrelation: {
      const auto e = as<ExternalCorrelationRecord>(record);
      std::fprintf(to, "external %u %llu %u\n", e.externalKind, number(e.externalId), e.correlation);
      break;
    }
    default: std::fprintf(to, "unknown %u\n", as<uint32_t>(record));
  }
}

}  // namespace millpond::profiler
