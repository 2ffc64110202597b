// SPDX-License-Identifier: Apache-2.0
/** `native/client/gen/resolver.{h,cpp}`: cuGetProcAddress as a sorted table. */
import type { Abi } from "@millpond/cuda";
import { banner } from "./text.ts";

export function emitResolverHeader(): string {
  return `${banner("What cuGetProcAddress answers.")}#pragma once

#include <cstdint>

#include "cuda/gen/cuda_api.h"

namespace millpond::client {

/// Finds the newest variant of \`name\` that CUDA \`version\` (1000·major + 10·minor) knows. With the flag for per-thread
/// default streams a per-thread variant is preferred. \`fn\` receives the address, or nullptr if there is
/// none, which is not an error; \`status\` (may be nullptr) tells why. CUDA_ERROR_INVALID_VALUE for null
/// pointers, unknown flags and versions above \`driverVersion\`. Allocates nothing.
CUresult resolve(const char* name, int version, uint64_t flags, int driverVersion, void** fn,
                 CUdriverProcAddressQueryResult* status) noexcept;

}  // namespace millpond::client
`;
}

export function emitResolver(abi: Abi): string {
  const names: string[] = [];
  const variants: string[] = [];
  // Bytewise order, as strcmp compares.
  const bases = [...new Set(abi.functions.map((f) => f.base))].sort();
  for (const base of bases) {
    const own = abi.functions.filter((f) => f.base === base);
    names.push(`    {"${base}", ${variants.length}, ${own.length}},`);
    for (const { symbol, version, flavour } of own.toSorted((a, b) => a.version - b.version)) {
      variants.push(`    {${version}, ${flavour !== "none"}, reinterpret_cast<void*>(&::${symbol})},`);
    }
  }
  return `${banner("What cuGetProcAddress answers.")}
#include "client/gen/resolver.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <span>

namespace millpond::client {
namespace {

struct Variant {
  int version;  // CUDA version that introduced it
  bool perThread;
  void* function;
};

struct Name {
  const char* name;
  uint16_t first;  // index of its oldest variant
  uint16_t count;
};

// By name, then from old to new.
const Variant kVariants[] = {
${variants.join("\n")}
};

// Sorted, for binary search.
const Name kNames[] = {
${names.join("\n")}
};

}  // namespace

CUresult resolve(const char* name, int version, uint64_t flags, int driverVersion, void** fn,
                 CUdriverProcAddressQueryResult* status) noexcept {
  if (name == nullptr || fn == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *fn = nullptr;
  constexpr uint64_t kBoth = CU_GET_PROC_ADDRESS_LEGACY_STREAM | CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
  if ((flags & ~kBoth) != 0 || flags == kBoth || version < 0 || version > driverVersion) return CUDA_ERROR_INVALID_VALUE;
  const auto tell = [status](CUdriverProcAddressQueryResult what) {
    if (status != nullptr) *status = what;
    return CUDA_SUCCESS;
  };
  const Name* const found = std::lower_bound(std::begin(kNames), std::end(kNames), name,
                                             [](const Name& a, const char* b) { return std::strcmp(a.name, b) < 0; });
  if (found == std::end(kNames) || std::strcmp(found->name, name) != 0) return tell(CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
  void* plain = nullptr;
  void* perThread = nullptr;
  for (const Variant& variant : std::span(kVariants).subspan(found->first, found->count)) {
    if (variant.version > version) break;
    (variant.perThread ? perThread : plain) = variant.function;
  }
  const bool wantsPerThread = (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0;
  *fn = wantsPerThread && perThread != nullptr ? perThread : plain;
  return tell(*fn != nullptr ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
}

}  // namespace millpond::client
`;
}
