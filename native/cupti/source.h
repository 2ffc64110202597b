// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/activity_table.h"

namespace millpond::profiler {

/// The interface of this process's libcuda.so.1; null, logged once: it is not Millpond's.
const ActivityTable* activitySource();

}  // namespace millpond::profiler
