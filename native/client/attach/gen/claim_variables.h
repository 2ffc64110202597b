// SPDX-License-Identifier: Apache-2.0
// Generated from api/src/claim-fields.ts by `npm run generate -w api`. Do not edit.
#pragma once

namespace millpond::client {

/// Variables of a claim that the controller reads; the client passes them on as they are.
inline constexpr const char* kClaimVariables[] = {
    "MILLPOND_LAZY",
    "MILLPOND_LAZY_IDLE",
    "MILLPOND_EXCLUSIVE",
    "MILLPOND_MODEL",
    "MILLPOND_MIN_CAPABILITY",
    "MILLPOND_POOL",
    "MILLPOND_TENANT",
    "MILLPOND_QUEUE",
    "MILLPOND_PRIORITY",
    "MILLPOND_PREEMPTIBLE",
    "MILLPOND_GANG",
    "MILLPOND_GANG_SIZE",
    "MILLPOND_PLACEMENT",
    "MILLPOND_LOCALITY",
    "MILLPOND_SAME_NODE",
    "MILLPOND_LABELS",
    "MILLPOND_NODE_LABELS",
    "MILLPOND_AFFINITY",
    "MILLPOND_ANTI_AFFINITY",
    "MILLPOND_TIME_LIMIT",
    "MILLPOND_IDLE_LIMIT",
    "MILLPOND_SERVICE_CLASS",
    "MILLPOND_NODE_LOSS",
    "MILLPOND_GRACE",
};

}  // namespace millpond::client
