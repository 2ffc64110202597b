// SPDX-License-Identifier: Apache-2.0
// Finding entry points by name and version, for cuGetProcAddress.
#pragma once

#include <string>

namespace millpond::softgpu {

struct ResolvedSymbol {
  void* address = nullptr;
  bool isTooNew = false;  // it exists, but not in a version as old as the requested one
};

/// The newest variant of `symbol` that `version` (1000 * major + 10 * minor) has, among the symbols of this
/// library.
ResolvedSymbol resolveSymbol(const std::string& symbol, int version);

}  // namespace millpond::softgpu
