// SPDX-License-Identifier: Apache-2.0

import type { AgentService } from "@millpond/api";
import type { ServiceMethods } from "../handlers.ts";
import { sync } from "../agents.ts";
import { callerOf } from "../callers.ts";
import { toAllocation } from "../convert.ts";
import type { Pool } from "../pool.ts";
import { checkReport } from "../report.ts";

export interface AgentServiceFacts {
  readonly version: string;
  /** SPKI, DER, base64. */
  readonly ticketPublicKey: string;
}

export function makeAgentService(
  pool: Pool,
  { version, ticketPublicKey }: AgentServiceFacts,
): ServiceMethods<typeof AgentService> {
  return {
    async sync(request, { values, signal }) {
      const desired = await sync(pool, checkReport(request), callerOf({ values }), signal);
      const { revision, allocations, order, clearedFaults, describedBy } = desired;
      return {
        revision: BigInt(revision),
        allocations: allocations.map((each) => toAllocation(pool, each)),
        term: BigInt(pool.ledger.term),
        order: BigInt(order),
        describedBy: BigInt(describedBy),
        clearedFaults: Array.from(clearedFaults, ([uuid, fault]) => ({ uuid, fault: BigInt(fault) })),
        ticketPublicKey,
        controller: pool.ledger.identity,
        controllerVersion: version,
      };
    },
  };
}
