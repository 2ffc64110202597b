// SPDX-License-Identifier: Apache-2.0
#include "softgpu/driver/program/symbol_resolver.h"

#include <dlfcn.h>

#include <array>
#include <string_view>

namespace millpond::softgpu {
namespace {

// The library itself, whatever the name by which it was loaded.
void* ownLibrary() {
  static void* const handle = [] {
    Dl_info info{};
    if (!::dladdr(reinterpret_cast<void*>(&ownLibrary), &info) || !info.dli_fname) return static_cast<void*>(nullptr);
    return ::dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
  }();
  return handle;
}

// Variants that were introduced in a later version than the function. All others are as old as any version that may be
// requested.
struct Introduction {
  std::string_view symbol;
  int version;
};
constexpr std::array<Introduction, 13> kIntroductions = {{
    {"cuCtxCreate_v3", 11040},
    {"cuCtxCreate_v4", 12050},
    {"cuCtxGetDevice_v2", 13000},
    {"cuCtxSynchronize_v2", 13000},
    {"cuDeviceGetUuid_v2", 11040},
    {"cuDevicePrimaryCtxRelease_v2", 11000},
    {"cuDevicePrimaryCtxReset_v2", 11000},
    {"cuDevicePrimaryCtxSetFlags_v2", 11000},
    {"cuEventElapsedTime_v2", 12080},
    {"cuGetProcAddress_v2", 12000},
    {"cuStreamGetCaptureInfo_v2", 11030},
    {"cuStreamGetCaptureInfo_v3", 12030},
    {"cuMemHostRegister_v2", 6050},
}};

int introductionOf(std::string_view symbol) {
  for (const Introduction& introduction : kIntroductions) {
    if (introduction.symbol == symbol) return introduction.version;
  }
  return 0;
}

}  // namespace

ResolvedSymbol resolveSymbol(const std::string& symbol, int version) {
  ResolvedSymbol resolved;
  void* library = ownLibrary();
  if (!library || symbol.compare(0, 2, "cu") != 0) return resolved;
  for (const char* suffix : {"_v4", "_v3", "_v2", ""}) {
    const std::string variant = symbol + suffix;
    void* address = ::dlsym(library, variant.c_str());
    if (!address) continue;
    if (introductionOf(variant) <= version) {
      resolved.address = address;
      return resolved;
    }
    resolved.isTooNew = true;
  }
  return resolved;
}

}  // namespace millpond::softgpu
