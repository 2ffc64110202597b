// SPDX-License-Identifier: Apache-2.0

// Clients of a controller that may be gone at any moment, and what they know of it.

import { setTimeout } from "node:timers/promises";
import type { Client } from "@connectrpc/connect";
import { type Claim, type ClaimService, ClaimState, type Device } from "@millpond/api";
import { GiB } from "./test-pool.ts";

export const devicesPerNode = 4;
export const deviceMemory = 16n * GiB;

/** Numbers below 1 that are the same in every run (mulberry32). */
export function makeRandom(start: number): () => number {
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

export class Clients {
  readonly known = new Map<string, Known>();
  readonly #random: () => number;
  readonly #epochs = new Map<bigint, string>();
  acknowledged = 0;
  /** The most that a claim was put into the queue again. */
  requeues = 0;
  #next = 0;
  #target = 0;
  #reached = Promise.withResolvers<void>();

  constructor(random: () => number) {
    this.#random = random;
  }

  /** One client that creates, reads and releases claims until the controller is gone, or it is to stop. */
  async run(claims: Client<typeof ClaimService>, stop?: AbortSignal): Promise<void> {
    while (stop?.aborted !== true) {
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

  /**
   * Compares what is there with what is known, and goes on from there.
   *
   * @returns What was acknowledged and is not so, and what must never be.
   */
  takeStock(found: readonly Claim[], devices: readonly Device[]): string[] {
    const live = found.filter(isLive);
    const broken = [...this.#check(found), ...overAllocations(live, devices), ...splitGangs(live)];
    for (const { name, allocation } of live) {
      const { epoch } = allocation ?? {};
      if (epoch !== undefined) {
        const owner = this.#epochs.get(epoch) ?? name;
        broken.push(...(owner === name ? [] : [`epoch ${epoch} was given to ${owner} and to ${name}`]));
        this.#epochs.set(epoch, name);
      }
    }
    this.requeues = Math.max(this.requeues, ...live.map(({ requeues }) => requeues));
    const before = new Map(this.known);
    this.known.clear();
    for (const claim of live) {
      // What was asked and is not done will not be done any more. A claim whose creation was not acknowledged belongs to
      // nobody: it is given back.
      const isGone = before.get(claim.name)?.release === "acknowledged";
      this.known.set(claim.name, { claim, release: isGone ? "acknowledged" : "no" });
    }
    return broken;
  }

  /** How many allocations were seen. */
  get grants(): number {
    return this.#epochs.size;
  }

  /** What was acknowledged and is not so. */
  #check(found: readonly Claim[]): string[] {
    const byName = new Map(found.map((claim) => [claim.name, claim]));
    return [...this.known.values()].flatMap(({ claim, release }) => {
      const now = byName.get(claim.name);
      const lives = now !== undefined && isLive(now);
      return [
        release === "no" && !lives ? `${claim.name} was lost` : "",
        release === "acknowledged" && lives ? `${claim.name} was released and is back` : "",
        lives && now.version < claim.version ? `${claim.name} has gone back to an older version` : "",
        lives && (now.gpus !== claim.gpus || now.memoryBytes !== claim.memoryBytes)
          ? `${claim.name} has changed`
          : "",
        lives && now.requeues < claim.requeues ? `${claim.name} was put into the queue less often` : "",
        lives &&
        claim.allocation !== undefined &&
        now.requeues === claim.requeues &&
        !isSameAllocation(claim, now)
          ? `${claim.name} was bound to something else`
          : "",
      ].filter((text) => text !== "");
    });
  }
}

function isLive({ state }: Claim): boolean {
  return state === ClaimState.DORMANT || state === ClaimState.PENDING || state === ClaimState.BOUND;
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
