// SPDX-License-Identifier: Apache-2.0

import type { TenantSpec } from "@millpond/scheduler";

/** Without members that say nothing, so that equal settings are equal values. */
export function makeTenantSpec({ name, limit, userLimit, userLimits }: Required<TenantSpec>): TenantSpec {
  return {
    name,
    limit,
    ...(Object.keys(userLimit).length === 0 ? {} : { userLimit }),
    ...(userLimits.size === 0 ? {} : { userLimits }),
  };
}
