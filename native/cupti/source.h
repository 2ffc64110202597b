// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/activity_table.h"

namespace millpond::profiler {

/// What the libcuda.so.1 of this process offers; null, once logged: it is not Millpond's.
const ActivityTable* activitySource();

}  // namespace millpond::profiler
