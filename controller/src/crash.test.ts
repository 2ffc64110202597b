// SPDX-License-Identifier: Apache-2.0

// kill -9 at any moment: what was acknowledged is there afterwards, and nothing is granted twice.

import { setTimeout } from "node:timers/promises";
import { type Client, createClient } from "@connectrpc/connect";
import { type Claim, ClaimService, ClaimState, type Device, PoolService } from "@millpond/api";
import { expect, test } from "vitest";
import { systemClock } from "./clock.ts";
import { ControllerProcess } from "./testing/controller-process.ts";
import { FakeAgent, fakeDevice } from "./testing/fake-agent.ts";
import { GiB, makeTestDirectory } from "./testing/test-pool.ts";
import { makeTransport } from "./testing/transport.ts";

/** How often it is killed; `MILLPOND_CRASH_ROUNDS` asks for more. */
const rounds = Number(process.env["MILLPOND_CRASH_ROUNDS"] ?? 20);
const timeoutMs = rounds * 12_000;
const seed = 20_261_120;
const devicesPerNode = 4;
const deviceMemory = 16n * GiB;

/** Numbers below 1 that are the same in every run (mulberry32). */
function makeRandom(start: number): () => number {
  let state = start;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** What the client knows of a claim. */
interface Known {
  /** The newest answer. */
  claim: Claim;
  /** `asked`: the release was sent, and no answer came. */
  release: "no" | "asked" | "acknowledged";
}

class Clients {
  readonly known = new Map<string, Known>();
  readonly #random: () => number;
  acknowledged = 0;
  #next = 0;
  #target = 0;
  #reached = Promise.withResolvers<void>();

  constructor(random: () => number) {
    this.#random = random;
  }

  /** One client that creates, reads and releases claims until the controller is gone. */
  async run(claims: Client<typeof ClaimService>): Promise<void> {
    for (;;) {
      try {
        await this.#act(claims);
      } catch {
        return;
      }
      this.acknowledged += 1;
      if (this.acknowledged >= this.#target) {
        this.#reached.resolve();
      }
    }
  }

  /** Waits until so many more calls have been acknowledged. */
  async until(count: number): Promise<void> {
    this.#target = this.acknowledged + count;
    this.#reached = Promise.withResolvers();
    await this.#reached.promise;
  }

  /** A claim of every GPU of a node gives way to another, and knows it: waits until it has been put into the queue. */
  async requeueOne(claims: Client<typeof ClaimService>): Promise<void> {
    const node = { gpus: devicesPerNode, memoryBytes: deviceMemory, computePercent: 100, leaseSeconds: 3600 };
    for (const name of ["first", "second"]) {
      await claims.createClaim({ claim: { ...node, name, preemptible: true, graceSeconds: 1 } });
    }
    await claims.createClaim({ claim: { ...node, name: "urgent", priority: 2 } });
    for (;;) {
      const claim = (await claims.listClaims({})).claims.find(({ requeues }) => requeues > 0);
      if (claim !== undefined) {
        this.known.set(claim.name, { claim, release: "no" });
        break;
      }
      await setTimeout(20);
    }
    for (const name of ["first", "second", "urgent"].filter((each) => !this.known.has(each))) {
      await claims.releaseClaim({ name });
    }
  }

  async #act(claims: Client<typeof ClaimService>): Promise<void> {
    const live = [...this.known.values()].filter(({ release }) => release === "no");
    const pick = live[Math.floor(this.#random() * live.length)];
    const dice = this.#random();
    if (pick === undefined || dice < 0.5) {
      this.#next += 1;
      const ask = {
        name: `c${this.#next}`,
        gpus: 1 + Math.floor(this.#random() * 3),
        memoryBytes: BigInt(1 + Math.floor(this.#random() * 8)) * GiB,
        computePercent: 1 + Math.floor(this.#random() * 50),
        leaseSeconds: 3600,
        priority: Math.floor(this.#random() * 3),
        preemptible: this.#random() < 0.5,
        graceSeconds: 1,
        // Two that follow each other are a gang, now and then.
        ...(this.#next % 10 < 2
          ? { gang: `g${Math.floor(this.#next / 10)}`, gangSize: 2, priority: 1, preemptible: false }
          : {}),
      };
      const { claim } = await claims.createClaim({ claim: ask });
      if (claim !== undefined) {
        this.known.set(claim.name, { claim, release: "no" });
      }
    } else if (dice < 0.9) {
      pick.release = "asked";
      await claims.releaseClaim({ name: pick.claim.name });
      pick.release = "acknowledged";
    } else {
      const { claim } = await claims.getClaim({ name: pick.claim.name });
      pick.claim = claim ?? pick.claim;
    }
  }

  /** What was acknowledged and is not so. */
  check(found: readonly Claim[]): string[] {
    const byName = new Map(found.map((claim) => [claim.name, claim]));
    return [...this.known.values()].flatMap(({ claim, release }) => {
      const now = byName.get(claim.name);
      const isLive = now?.state === ClaimState.PENDING || now?.state === ClaimState.BOUND;
      return [
        release === "no" && !isLive ? `${claim.name} was lost` : "",
        release === "acknowledged" && isLive ? `${claim.name} was released and is back` : "",
        isLive && now.version < claim.version ? `${claim.name} has gone back to an older version` : "",
        isLive && (now.gpus !== claim.gpus || now.memoryBytes !== claim.memoryBytes)
          ? `${claim.name} has changed`
          : "",
        isLive && now.requeues < claim.requeues ? `${claim.name} was put into the queue less often` : "",
        isLive &&
        claim.allocation !== undefined &&
        now.requeues === claim.requeues &&
        !isSameAllocation(claim, now)
          ? `${claim.name} was bound to something else`
          : "",
      ].filter((text) => text !== "");
    });
  }
}

function isSameAllocation(a: Claim, b: Claim): boolean {
  const show = ({ allocation }: Claim) =>
    `${allocation?.node} ${allocation?.epoch} ${allocation?.devices.map((each) => `${each.uuid} ${each.memoryBytes}`).join()}`;
  return show(a) === show(b);
}

/** Gangs that are bound in part, though none of them has ended. */
function splitGangs(claims: readonly Claim[]): string[] {
  const gangs = Map.groupBy(
    claims.filter(({ gang }) => gang !== ""),
    ({ gang }) => gang,
  );
  return [...gangs].flatMap(([gang, members]) => {
    const bound = members.filter(({ allocation }) => allocation !== undefined).length;
    return members.length === 2 && bound === 1 ? [`of gang ${gang} one is bound`] : [];
  });
}

function overAllocations(claims: readonly Claim[], devices: readonly Device[]): string[] {
  return devices.flatMap((device) => {
    const grants = claims.flatMap(({ allocation }) =>
      allocation?.node === device.node ? allocation.devices.filter(({ uuid }) => uuid === device.uuid) : [],
    );
    const memory = grants.reduce((sum, { memoryBytes }) => sum + memoryBytes, 0n);
    const compute = grants.reduce((sum, { computePercent }) => sum + computePercent, 0);
    return memory > device.memoryBytes || compute > 100 || device.allocatedMemoryBytes > device.memoryBytes
      ? [`${device.node}/${device.index} is over-allocated`]
      : [];
  });
}

async function startAgents(controller: ControllerProcess): Promise<FakeAgent[]> {
  const devices = Array.from({ length: devicesPerNode }, (_, index) => fakeDevice(index, deviceMemory));
  const { url, agentToken: token } = controller;
  return await Promise.all(
    ["node-a", "node-b"].map(async (node) => {
      const agent = new FakeAgent({ url, token, clock: systemClock, node, devices });
      agent.mayLoseController = true;
      return await agent.start();
    }),
  );
}

test(`after ${rounds} kills nothing acknowledged is lost and nothing is granted twice`, {
  timeout: timeoutMs,
}, async () => {
  const directory = makeTestDirectory();
  const random = makeRandom(seed);
  const clients = new Clients(random);
  const epochs = new Map<bigint, string>();
  const broken: string[] = [];
  let requeues = 0;

  for (let round = 0; round <= rounds; round++) {
    const controller = await ControllerProcess.start(directory);
    const transport = makeTransport(controller.url, controller.userToken);
    const claims = createClient(ClaimService, transport);
    const found = (await claims.listClaims({ includeEnded: true })).claims;
    const { devices } = await createClient(PoolService, transport).listDevices({});
    const live = found.filter(({ state }) => state === ClaimState.PENDING || state === ClaimState.BOUND);
    broken.push(...clients.check(found), ...overAllocations(live, devices), ...splitGangs(live));
    requeues = Math.max(requeues, ...live.map((claim) => claim.requeues));
    for (const { name, allocation } of live.filter((each) => each.allocation !== undefined)) {
      const epoch = allocation?.epoch ?? 0n;
      if ((epochs.get(epoch) ?? name) !== name) {
        broken.push(`epoch ${epoch} was given to ${epochs.get(epoch)} and to ${name}`);
      }
      epochs.set(epoch, name);
    }
    if (round === rounds) {
      expect(await controller.end("SIGTERM")).toBe(0);
      break;
    }
    for (const claim of live) {
      const known = clients.known.get(claim.name);
      // A claim whose creation was not acknowledged belongs to nobody: give it back.
      clients.known.set(claim.name, { claim, release: known?.release ?? "no" });
    }
    // What was asked and is not done after the crash will not be done any more.
    for (const known of clients.known.values()) {
      known.release = known.release === "asked" ? "no" : known.release;
    }
    const ended = new Set(found.filter((claim) => !live.includes(claim)).map(({ name }) => name));
    for (const name of clients.known.keys()) {
      if (ended.has(name) || !found.some((claim) => claim.name === name)) {
        clients.known.delete(name);
      }
    }

    const agents = await startAgents(controller);
    // Nobody releases the claim that was put into the queue before the first kill: it must be there after it.
    const running = round === 0 ? [] : Array.from({ length: 8 }, () => clients.run(claims));
    await (round === 0 ? clients.requeueOne(claims) : clients.until(5 + Math.floor(random() * 60)));
    expect(await controller.end("SIGKILL")).toBe("SIGKILL");
    await Promise.all(running);
    await Promise.all(agents.map((agent) => agent[Symbol.asyncDispose]()));
  }

  expect(broken).toEqual([]);
  expect(clients.acknowledged).toBeGreaterThan(rounds * 5);
  expect(epochs.size).toBeGreaterThan(rounds);
  expect(requeues).toBeGreaterThan(0);
});
