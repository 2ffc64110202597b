// SPDX-License-Identifier: Apache-2.0

import type { ServiceImpl } from "@connectrpc/connect";
import type { AgentService } from "@millpond/api";
import { sync } from "../agents.ts";
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
): ServiceImpl<typeof AgentService> {
  return {
    async sync(request, { signal }) {
      const { revision, allocations, order } = await sync(pool, checkReport(request), signal);
      return {
        revision: BigInt(revision),
        allocations: allocations.map(toAllocation),
        term: BigInt(pool.ledger.term),
        order: BigInt(order),
        ticketPublicKey,
        controller: pool.ledger.identity,
        controllerVersion: version,
      };
    },
  };
}
