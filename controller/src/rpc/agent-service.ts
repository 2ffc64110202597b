// SPDX-License-Identifier: Apache-2.0

import type { AgentService } from "@millpond/api";
import type { ServiceMethods } from "./service-methods.ts";
import type { ReadTicket } from "../operations/adopt-sessions.ts";
import { sync } from "../operations/agent-sync.ts";
import { callerOf } from "../auth/visibility.ts";
import { toAllocation } from "./to-proto.ts";
import type { Pool } from "../pool/pool.ts";
import { checkReport } from "../agents/parse-report.ts";

export interface AgentServiceFacts {
  readonly version: string;
  /** SPKI, DER, base64. */
  readonly ticketPublicKey: string;
  readonly readTicket: ReadTicket;
}

export function makeAgentService(
  pool: Pool,
  { version, ticketPublicKey, readTicket }: AgentServiceFacts,
): ServiceMethods<typeof AgentService> {
  return {
    async sync(request, { values, signal }) {
      const desired = await sync(pool, checkReport(request), callerOf({ values }), signal, readTicket);
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
