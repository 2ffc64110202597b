// SPDX-License-Identifier: Apache-2.0

// One token calls without end, or keeps calls waiting, and tokens of other tenants are answered.

import { createClient } from "@connectrpc/connect";
import { AccessService, ClaimService, errorCodeOf, PoolService, QueueService } from "@millpond/api";
import { pino } from "pino";
import { expect, onTestFinished, test } from "vitest";
import { CallLimits } from "../auth/call-limits.ts";
import { type Controller, startController } from "../controller.ts";
import type { ControllerOptions } from "../options.ts";
import { makeTestDirectory } from "../testing/test-pool.ts";
import { makeTransport } from "../testing/transport.ts";

const mallory = { name: "mallory", role: "user", tenant: "team-b" } as const;
const tooMany = "MILLPOND_E_TOO_MANY_CALLS";

async function start(options: Partial<ControllerOptions> = {}) {
  const lines: string[] = [];
  const controller = await startController({
    stateDirectory: makeTestDirectory(),
    listen: "127.0.0.1:0",
    log: pino({ level: "warn" }, { write: (line: string) => lines.push(line) }),
    ...options,
  });
  onTestFinished(() => controller[Symbol.asyncDispose]());
  const queues = createClient(QueueService, makeTransport(controller.url, controller.userToken));
  for (const name of ["team-a", "team-b"]) {
    await queues.putTenant({ tenant: { name } });
  }
  return { controller, lines };
}

/** A token of a tenant. */
async function makeToken({ url, userToken }: Controller, name: string, tenant: string): Promise<string> {
  const access = createClient(AccessService, makeTransport(url, userToken));
  return (await access.createToken({ name, role: "user", tenant })).secret;
}

test("calls beyond the rate wait for it, and those that would wait too long are refused", async () => {
  const limits = new CallLimits({ changesPerSecond: 100, inFlight: 1 << 20 });
  const startMs = performance.now();
  const calls = Array.from({ length: 1400 }, () =>
    limits.enter(mallory, "change").then(() => "ok", errorCodeOf),
  );
  const madeMs = performance.now() - startMs;
  const outcomes = await Promise.all(calls);
  const passed = outcomes.filter((outcome) => outcome === "ok").length;
  expect(outcomes.filter((outcome) => outcome === tooMany).length).toBe(1400 - passed);
  // A burst of ten seconds' worth of calls passes without a delay, then the calls in the queue, and the rate times the
  // elapsed time.
  expect(passed).toBeGreaterThanOrEqual(1250);
  expect(passed).toBeLessThanOrEqual(1252 + madeMs / 10);
});

test("a tenant's tokens have twice the limit of one together, and other tenants have their own", async () => {
  const limits = new CallLimits({ changesPerSecond: 100, inFlight: 10 });
  const enter = async (name: string, tenant: string) =>
    await limits.enter({ name, role: "user", tenant }, "call").then((slot) => slot, errorCodeOf);
  const held = await Promise.all(
    Array.from({ length: 30 }, (_, index) => enter(`mallory-${index % 3}`, "team-b")),
  );
  expect(held.filter((each) => each === tooMany)).toHaveLength(10);
  expect(await enter("mallory-9", "team-b")).toBe(tooMany);
  expect(await enter("ann", "team-a")).not.toBe(tooMany);
  for (const slot of held) {
    if (typeof slot === "object") slot[Symbol.dispose]();
  }
  expect(await enter("mallory-9", "team-b")).not.toBe(tooMany);
});

test("calls of one token that wait for claims use up no calls of another, and end with their connections", async () => {
  const { controller, lines } = await start({ connectionLimits: { most: 400, mostOfAddress: 200 } });
  const token = await makeToken(controller, "mallory", "team-b");
  const claims = createClient(ClaimService, makeTransport(controller.url, token));
  const { claim } = await claims.createClaim({ claim: { name: "waits", memoryBytes: 1n << 20n } });
  const ended = new AbortController();
  let refused = 0;
  const waits = Array.from({ length: 80 }, () =>
    claims
      .waitClaim(
        { name: "waits", knownVersion: claim?.version ?? 0n, timeoutSeconds: 60 },
        { signal: ended.signal },
      )
      .catch((error: unknown) => {
        refused += errorCodeOf(error) === tooMany ? 1 : 0;
      }),
  );
  await expect.poll(() => refused).toBe(30);
  expect(lines.join("")).toContain("calls are refused");
  const ann = makeTransport(controller.url, await makeToken(controller, "ann", "team-a"));
  expect((await createClient(ClaimService, ann).createClaim({ claim: { name: "anns" } })).claim?.name).toBe(
    "anns",
  );
  ended.abort();
  await Promise.all(waits);
  await expect
    .poll(async () => await claims.getClaim({ name: "waits" }).then(() => "ok", errorCodeOf))
    .toBe("ok");
});

test("a token keeps no more than its part of the connections, and another is answered meanwhile", async () => {
  const { controller } = await start({ connectionLimits: { most: 80, mostOfAddress: 40 } });
  const token = await makeToken(controller, "mallory", "team-b");
  const call = async (): Promise<string | null> => {
    const response = await fetch(`${controller.url}/${PoolService.typeName}/GetVersion`, {
      method: "POST",
      headers: { authorization: `Bearer ${token}`, "content-type": "application/json" },
      body: "{}",
    });
    await response.text();
    return response.headers.get("connection");
  };
  const kept = await Promise.all(Array.from({ length: 10 }, call));
  expect(kept.filter((each) => each === "keep-alive")).toHaveLength(10);
  // Each call has a connection of its own: fetch reuses one only when its call is over.
  const more = await Promise.all(Array.from({ length: 15 }, call));
  expect(more.filter((each) => each === "close").length).toBeGreaterThanOrEqual(5);
});

test("administrators are not limited", async () => {
  const limits = new CallLimits({ changesPerSecond: 1, inFlight: 1 });
  const admin = { name: "file:user", role: "admin", tenant: "" } as const;
  const slots = await Promise.all(Array.from({ length: 500 }, () => limits.enter(admin, "change")));
  expect(slots).toHaveLength(500);
});

test("changes beyond the limits are counted in the audit", async () => {
  const { controller } = await start({ changesPerSecond: 1 });
  const token = await makeToken(controller, "mallory", "team-b");
  const claims = createClient(ClaimService, makeTransport(controller.url, token));
  // The rate admits ten, and two or three wait.
  const outcomes = Array.from({ length: 60 }, (_, index) =>
    claims.releaseClaim({ name: `absent-${index}` }).then(() => "ok", errorCodeOf),
  );
  await Promise.all(outcomes);
  const access = createClient(AccessService, makeTransport(controller.url, controller.userToken));
  await expect
    .poll(async () => (await access.listAudit({})).records.map(({ result }) => result))
    .toContain(tooMany);
});
