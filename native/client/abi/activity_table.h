// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/activity_table.h"

namespace millpond::client {

/// What libcupti.so of Millpond asks this library.
const ActivityTable& activityTable();

}  // namespace millpond::client
