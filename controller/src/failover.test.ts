// SPDX-License-Identifier: Apache-2.0

// Several controllers on one database: whoever leads is killed or stopped, or the database is, and another goes on.

import { createClient } from "@connectrpc/connect";
import { ClaimService, PoolService } from "@millpond/api";
import { afterAll, expect, onTestFinished, test } from "vitest";
import { systemClock } from "./clock.ts";
import { Cluster } from "./testing/cluster.ts";
import { Clients, deviceMemory, devicesPerNode, makeRandom } from "./testing/crash-clients.ts";
import { FakeAgent, fakeDevice } from "./testing/fake-agent.ts";
import { missingPostgres } from "./testing/postgres-server.ts";

/** How often; `MILLPOND_CRASH_ROUNDS` asks for more. */
const rounds = Number(process.env["MILLPOND_CRASH_ROUNDS"] ?? 3);
const seed = 20_261_122;
const why = missingPostgres === undefined ? "" : ` (${missingPostgres})`;

/** What happens to the one that leads, in turns. */
const faults = ["leader killed", "database killed", "leader stopped for a while", "leader ended"] as const;

const clusters: Cluster[] = [];

afterAll(async () => {
  await Promise.all(clusters.map((cluster) => cluster[Symbol.asyncDispose]()));
});

async function startCluster(): Promise<Cluster> {
  // Their clocks disagree by hours: nothing may depend on them.
  const cluster = await Cluster.start([0, 3600, -3600]);
  clusters.push(cluster);
  return cluster;
}

async function startAgents({ urls, agentToken: token }: Cluster): Promise<FakeAgent[]> {
  const devices = Array.from({ length: devicesPerNode }, (_, index) => fakeDevice(index, deviceMemory));
  return await Promise.all(
    ["node-a", "node-b"].map(async (node) => {
      const agent = new FakeAgent({ url: urls, token, clock: systemClock, node, devices });
      agent.isPersistent = true;
      onTestFinished(() => agent[Symbol.asyncDispose]());
      return await agent.start();
    }),
  );
}

test.skipIf(missingPostgres !== undefined)(
  `whoever leads may go ${rounds} times, nothing acknowledged is lost and nothing is granted twice${why}`,
  { timeout: 60_000 + rounds * 60_000 },
  async () => {
    const cluster = await startCluster();
    const transport = cluster.transport();
    const claims = createClient(ClaimService, transport);
    const pool = createClient(PoolService, transport);
    const random = makeRandom(seed);
    const clients = new Clients(random);
    const takeovers = new Map<string, number[]>();
    const broken: string[] = [];
    await startAgents(cluster);
    let term = 0n;
    const terms: bigint[] = [];

    for (let round = 0; ; round++) {
      const found = (await claims.listClaims({ includeEnded: true })).claims;
      broken.push(...clients.takeStock(found, (await pool.listDevices({})).devices));
      if (round === rounds) {
        break;
      }
      const stop = new AbortController();
      const running = Array.from({ length: 8 }, () => clients.run(claims, stop.signal));
      await clients.until(5 + Math.floor(random() * 60));
      const fault = faults[round % faults.length] ?? "leader killed";
      const beganMs = performance.now();
      const repair = await cluster.strike(fault);
      stop.abort();
      await Promise.all(running);
      // What a user does next, who waits for a controller that leads.
      await claims.createClaim({ claim: { name: `after-${round}`, leaseSeconds: 3600 } });
      const seconds = (performance.now() - beganMs) / 1000;
      takeovers.set(fault, [...(takeovers.get(fault) ?? []), seconds]);
      await repair();
      term = await cluster.term();
      terms.push(term);
    }

    // Measured, not judged: a machine may be slow.
    for (const [fault, seconds] of takeovers) {
      const sorted = seconds.toSorted((a, b) => a - b).map((each) => each.toFixed(2));
      const [median, last] = [sorted[Math.floor(sorted.length / 2)], sorted.at(-1)];
      console.log(
        `${fault} ${sorted.length} times: granted after ${sorted[0]} to ${last} s, median ${median} s`,
      );
    }
    expect(broken).toEqual([]);
    expect(terms).toEqual(terms.toSorted((a, b) => Number(a - b)));
    expect(term).toBeGreaterThanOrEqual(BigInt(Math.ceil(rounds / 2)));
    expect(clients.acknowledged).toBeGreaterThan(rounds * 5);
    expect(clients.grants).toBeGreaterThan(rounds);
  },
);
