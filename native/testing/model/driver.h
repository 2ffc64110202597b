// SPDX-License-Identifier: Apache-2.0
// The driver library that a program finds by its name: a card's, the software GPU's, or Millpond's client.
#pragma once

#include <string>

#include "cuda/gen/cuda_api.h"

namespace millpond::model {

/// A function of libcuda.so.1. Ends the process with status 2 if it does not exist.
void* driverSymbol(const char* name);
/// The name of an error, for display.
const char* errorName(CUresult result);
/// Ends the process with status 1 and a line on standard output.
[[noreturn]] void give(const std::string& text);

}  // namespace millpond::model

#define CU(name)                                                                                           \
  ([] {                                                                                                    \
    static const auto found = reinterpret_cast<decltype(&::name)>(::millpond::model::driverSymbol(#name)); \
    return found;                                                                                          \
  }())
