// SPDX-License-Identifier: Apache-2.0
// Name and text of every result code. Where the real driver's text is known, it is the same.
#pragma once

#include "cuda/gen/cuda_api.h"

namespace millpond {

struct KnownError {
  const char* name;
  const char* text;
};

/// Null for a number that is not a result code.
const KnownError* findKnownError(CUresult code);

}  // namespace millpond
