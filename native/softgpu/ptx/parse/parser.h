// SPDX-License-Identifier: Apache-2.0
// PTX text to a syntax tree.
#pragma once

#include <string_view>

#include "softgpu/ptx/parse/ast.h"

namespace millpond::softgpu::ptx {

/// Throws Failure. The tree refers to `text`, which must outlive it.
ModuleNode parse(std::string_view text);

}  // namespace millpond::softgpu::ptx
