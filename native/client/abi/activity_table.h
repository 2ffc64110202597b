// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/activity_table.h"

namespace millpond::client {

/// The functions that Millpond's libcupti.so calls in this library.
const ActivityTable& activityTable();

}  // namespace millpond::client
