// SPDX-License-Identifier: Apache-2.0

import type { AgentService } from "@millpond/api";
import type { ServiceMethods } from "./service-methods.ts";
import type { ReadTicket } from "../operations/adopt-sessions.ts";
import { sync } from "../operations/agent-sync.ts";
import { callerOf } from "../auth/visibility.ts";
import { toAllocation } from "./to-proto.ts";
import type { KeyRing } from "../auth/key-ring.ts";
import type { Pool } from "../pool/pool.ts";
import { checkReport } from "../agents/parse-report.ts";

export interface AgentServiceFacts {
  readonly version: string;
  readonly keys: KeyRing;
  readonly readTicket: ReadTicket;
}

export function makeAgentService(
  pool: Pool,
  { version, keys, readTicket }: AgentServiceFacts,
): ServiceMethods<typeof AgentService> {
  return {
    async sync(request, { values, signal }) {
      const desired = await sync(pool, checkReport(request), callerOf({ values }), signal, readTicket);
      const accepted = keys.accepted();
      const { revision, allocations, order, clearedFaults, describedBy } = desired;
      return {
        revision: BigInt(revision),
        allocations: allocations.map((each) => toAllocation(pool, each)),
        term: BigInt(pool.ledger.term),
        order: BigInt(order),
        describedBy: BigInt(describedBy),
        clearedFaults: Array.from(clearedFaults, ([uuid, fault]) => ({ uuid, fault: BigInt(fault) })),
        ticketPublicKey: accepted[0]?.publicKey ?? "",
        ticketKeys: accepted.map(({ id, publicKey, retiresAt }) => ({
          id,
          publicKey,
          acceptedUntil: BigInt(retiresAt ?? 0),
        })),
        controller: pool.ledger.identity,
        controllerVersion: version,
      };
    },
  };
}
