// SPDX-License-Identifier: Apache-2.0
// Clients of two tenants, by the role of their tokens.

import { type Client, createClient } from "@connectrpc/connect";
import {
  AccessService,
  AgentService,
  ClaimService,
  errorCodeOf,
  PoolService,
  QueueService,
} from "@millpond/api";
import { GiB, TestPool } from "./test-pool.ts";
import { makeTransport } from "./transport.ts";

export interface Clients {
  readonly access: Client<typeof AccessService>;
  readonly agents: Client<typeof AgentService>;
  readonly claims: Client<typeof ClaimService>;
  readonly pool: Client<typeof PoolService>;
  readonly queues: Client<typeof QueueService>;
}

export function as(pool: TestPool, token: string): Clients {
  const transport = makeTransport(pool.controller.url, token);
  return {
    access: createClient(AccessService, transport),
    agents: createClient(AgentService, transport),
    claims: createClient(ClaimService, transport),
    pool: createClient(PoolService, transport),
    queues: createClient(QueueService, transport),
  };
}

/** Clients of an administrator, and of a user of each of two tenants. */
export async function startTenants() {
  const pool = await TestPool.start({ "node-a": [GiB, GiB] });
  const admin = as(pool, pool.controller.userToken);
  const make = async (name: string, role: string, tenant: string) =>
    as(pool, (await admin.access.createToken({ name, role, tenant })).secret);
  await admin.queues.putTenant({ tenant: { name: "team-a" } });
  await admin.queues.putTenant({ tenant: { name: "team-b" } });
  return {
    pool,
    admin,
    ann: await make("ann", "user", "team-a"),
    bob: await make("bob", "user", "team-b"),
    chief: await make("chief", "tenant-admin", "team-a"),
  };
}

export async function refusal(
  call: Promise<unknown>,
): Promise<{ code: string | undefined; message: string }> {
  const error = await call.then(
    () => {
      throw new Error("it was not refused");
    },
    (reason: unknown) => reason,
  );
  return { code: errorCodeOf(error), message: error instanceof Error ? error.message : "" };
}
