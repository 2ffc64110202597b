// SPDX-License-Identifier: Apache-2.0

// Clients of a controller that may be killed at any moment, and their knowledge of its state.

import type { Client } from "@connectrpc/connect";
import {
  type Claim,
  type ClaimService,
  ClaimState,
  type Device,
  type ErrorCode,
  errorCodeOf,
} from "@millpond/api";
import { deviceMemory, devicesPerNode, type TestNode } from "./test-node.ts";
import { until, within } from "./until.ts";

const GiB = 1n << 30n;

/** With fewer claims clients create more, with more they release more. */
const wantedClaims = 24;

/** Errors about the state of a claim: the call was answered, and nothing was changed. */
const refusals: ReadonlySet<ErrorCode> = new Set<ErrorCode>([
  "MILLPOND_E_CLAIM_NOT_BOUND",
  "MILLPOND_E_NO_CAPACITY",
  "MILLPOND_E_IN_USE",
  "MILLPOND_E_NODE_NOT_READY",
  "MILLPOND_E_TICKET_STALE",
]);

/** Errors after which the outcome is unknown; an error without a code comes from the connection. */
const silences: ReadonlySet<ErrorCode> = new Set<ErrorCode>([
  "MILLPOND_E_NOT_LEADER",
  "MILLPOND_E_SHUTTING_DOWN",
  "MILLPOND_E_STORE_UNREACHABLE",
]);

/** Pseudo-random numbers below 1 that are the same in every run (mulberry32). */
export function makeRandom(start: number): () => number {
  let state = start;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

interface Sizes {
  readonly gpus: number;
  readonly memoryBytes: bigint;
  readonly computePercent: number;
}

/** The client's knowledge of a claim. */
interface Known {
  /** The newest answer. */
  claim: Claim;
  /** `asked`: the release was sent, and no answer came. */
  release: "no" | "asked" | "acknowledged";
  /** The possible sizes: several after a resize that was not answered. */
  sizes: readonly Sizes[];
  /** A client is working with the claim. */
  isBusy: boolean;
}

/** A session that no party with the right to has ended. */
interface Held {
  readonly claim: string;
  readonly epoch: bigint;
  readonly node: TestNode;
}

/** Counts of the clients' calls, each incremented when the call was answered. */
export interface CallCounts {
  made: number;
  released: number;
  resized: number;
  woken: number;
  opened: number;
  closed: number;
  /** Answered, and nothing was changed. */
  refused: number;
}

export class Clients {
  readonly known = new Map<string, Known>();
  readonly deeds: CallCounts = {
    made: 0,
    released: 0,
    resized: 0,
    woken: 0,
    opened: 0,
    closed: 0,
    refused: 0,
  };
  readonly #random: () => number;
  readonly #nodes: ReadonlyMap<string, TestNode>;
  readonly #epochs = new Map<bigint, string>();
  readonly #held = new Map<string, Held>();
  /** Violations between two checks. */
  readonly #seen = new Set<string>();
  acknowledged = 0;
  /** The highest number of times that one claim was requeued. */
  requeues = 0;
  #next = 0;
  #atWork = 0;
  /** Why the last client that stopped did so. */
  #lastEnd = "none has begun";
  #wait: { readonly target: number; readonly ended: PromiseWithResolvers<void> } | undefined;

  /** @param nodes Where sessions are opened. */
  constructor(random: () => number, nodes: readonly TestNode[]) {
    this.#random = random;
    this.#nodes = new Map(nodes.map((node) => [node.name, node]));
  }

  /** One client, which works with claims until the controller stops responding or the signal is aborted. */
  async run(claims: Client<typeof ClaimService>, stop?: AbortSignal): Promise<void> {
    this.#atWork += 1;
    try {
      this.#lastEnd = await this.#work(claims, stop);
    } finally {
      this.#atWork -= 1;
      if (this.#atWork === 0) {
        this.#wait?.ended.reject(new Error(`no client runs any more: ${this.#describe()}`));
      }
    }
  }

  /** @returns Why it ended. */
  async #work(claims: Client<typeof ClaimService>, stop?: AbortSignal): Promise<string> {
    while (stop?.aborted !== true) {
      try {
        await this.#act(claims);
      } catch (error) {
        const code = errorCodeOf(error);
        if (code === undefined || silences.has(code)) {
          return String(error);
        }
        if (!refusals.has(code)) {
          this.#seen.add(`a client was told: ${String(error)}`);
        }
        this.deeds.refused += 1;
      }
      this.acknowledged += 1;
      for (const node of this.#nodes.values()) {
        for (const crowd of node.crowded()) {
          this.#seen.add(crowd);
        }
      }
      if (this.#wait !== undefined && this.acknowledged >= this.#wait.target) {
        this.#wait.ended.resolve();
      }
    }
    return "it was stopped";
  }

  /**
   * Waits until `count` more calls have been acknowledged.
   *
   * @throws Error When no client runs, or all have stopped before that.
   */
  async until(count: number): Promise<void> {
    if (this.#atWork === 0) {
      throw new Error(`no client runs: ${this.#describe()}`);
    }
    const wait = { target: this.acknowledged + count, ended: Promise.withResolvers<void>() };
    this.#wait = wait;
    try {
      await within(wait.ended.promise, () => `${wait.target} calls acknowledged: ${this.#describe()}`);
    } finally {
      this.#wait = undefined;
    }
  }

  #describe(): string {
    const seen = [...this.#seen].join(", ");
    return `${this.acknowledged} calls acknowledged, ${JSON.stringify(this.deeds)}, ${this.#atWork} clients at work, the last that ended: ${this.#lastEnd}${seen === "" ? "" : `; seen: ${seen}`}`;
  }

  /** Creates claims with one session each that all clients leave alone: these sessions keep running whatever the clients do. */
  async keepSessions(claims: Client<typeof ClaimService>, count: number): Promise<void> {
    for (let number = 1; number <= count; number += 1) {
      const ask = { name: `kept${number}`, memoryBytes: GiB, computePercent: 1, leaseSeconds: 3600 };
      const { claim } = await claims.createClaim({ claim: ask });
      if (claim === undefined) {
        throw new Error(`${ask.name} was not made`);
      }
      this.known.set(ask.name, { claim, release: "no", sizes: [], isBusy: true });
      await this.#open(claims, ask.name);
    }
  }

  /** Makes a claim on every GPU of a node preemptible and waits until another one has preempted it. */
  async requeueOne(claims: Client<typeof ClaimService>): Promise<void> {
    const node = { gpus: devicesPerNode, memoryBytes: deviceMemory, computePercent: 100, leaseSeconds: 3600 };
    for (const name of ["first", "second"]) {
      await claims.createClaim({ claim: { ...node, name, preemptible: true, graceSeconds: 1 } });
    }
    await claims.createClaim({ claim: { ...node, name: "urgent", priority: 2 } });
    const requeued = async () => (await claims.listClaims({})).claims.find(({ requeues }) => requeues > 0);
    this.#know(await until("a claim that was put into the queue again", requeued));
    for (const name of ["first", "second", "urgent"].filter((each) => !this.known.has(each))) {
      await claims.releaseClaim({ name });
    }
  }

  async #act(claims: Client<typeof ClaimService>): Promise<void> {
    const live = [...this.known.values()].filter(({ release, isBusy }) => release === "no" && !isBusy);
    const pick = live[Math.floor(this.#random() * live.length)];
    if (pick === undefined || this.#random() < (this.known.size < wantedClaims ? 0.5 : 0.05)) {
      await this.#create(claims);
      return;
    }
    pick.isBusy = true;
    try {
      await this.#use(claims, pick, this.#random());
    } finally {
      pick.isBusy = false;
    }
  }

  async #create(claims: Client<typeof ClaimService>): Promise<void> {
    this.#next += 1;
    const ask = {
      name: `c${this.#next}`,
      gpus: 1 + Math.floor(this.#random() * 3),
      memoryBytes: this.#memory(),
      computePercent: 1 + Math.floor(this.#random() * 50),
      leaseSeconds: 3600,
      priority: Math.floor(this.#random() * 3),
      preemptible: this.#random() < 0.5,
      graceSeconds: 1,
      lazy: this.#random() < 0.3,
      // Now and then two successive claims form a gang.
      ...(this.#next % 10 < 2
        ? {
            gang: `g${Math.floor(this.#next / 10)}`,
            gangSize: 2,
            priority: 1,
            preemptible: false,
            lazy: false,
          }
        : {}),
    };
    const { claim } = await claims.createClaim({ claim: ask });
    this.deeds.made += 1;
    if (claim !== undefined) {
      this.#know(claim);
    }
  }

  async #use(claims: Client<typeof ClaimService>, pick: Known, dice: number): Promise<void> {
    const { name } = pick.claim;
    if (dice < 0.3) {
      pick.release = "asked";
      await claims.releaseClaim({ name });
      pick.release = "acknowledged";
      this.deeds.released += 1;
    } else if (dice < 0.5 && pick.claim.gang === "") {
      // Resizing one claim of a gang may make the others wait.
      await this.#resize(claims, pick);
    } else if (dice < 0.6) {
      const { claim } = await claims.getClaim({ name });
      pick.claim = claim ?? pick.claim;
    } else {
      await this.#serve(claims, pick);
    }
  }

  async #resize(claims: Client<typeof ClaimService>, pick: Known): Promise<void> {
    const { name, gpus, memoryBytes, computePercent } = pick.claim;
    const isMore = this.#random() < 0.5;
    const asked = {
      gpus: isMore ? 0 : 1 + Math.floor(this.#random() * 3),
      memoryBytes: this.#memory(),
      computePercent: 1 + Math.floor(this.#random() * 50),
    };
    const before = pick.sizes;
    const wanted = { ...asked, gpus: asked.gpus === 0 ? gpus : asked.gpus };
    pick.sizes = [...before, { gpus, memoryBytes, computePercent }, wanted];
    try {
      const { claim } = await claims.resizeClaim({ name, ...asked });
      this.deeds.resized += 1;
      if (claim !== undefined) {
        this.#know(claim);
      }
    } catch (error) {
      const code = errorCodeOf(error);
      if (code !== undefined && refusals.has(code)) {
        pick.sizes = before;
      }
      throw error;
    }
  }

  /** A program of the claim ends, or one begins. */
  async #serve(
    claims: Client<typeof ClaimService>,
    { claim: { name, lazy, version } }: Known,
  ): Promise<void> {
    const [id, held] = [...this.#held].find(([, { claim }]) => claim === name) ?? [];
    if (id !== undefined && held !== undefined && this.#random() < 0.7) {
      this.#held.delete(id);
      held.node.agent.endSession(id);
      await held.node.agent.tell();
      this.deeds.closed += 1;
      return;
    }
    if (lazy) {
      await claims.waitClaim({ name, knownVersion: version, timeoutSeconds: 1, wake: true });
      this.deeds.woken += 1;
    }
    await this.#open(claims, name);
  }

  /** A program of the claim begins. */
  async #open(claims: Client<typeof ClaimService>, name: string): Promise<void> {
    const { ticket, agentUrl } = await claims.createTicket({ claim: name });
    const node = this.#nodes.get(agentUrl.slice(agentUrl.lastIndexOf("/") + 1));
    if (node === undefined) {
      throw new Error(`there is no node behind ${agentUrl}`);
    }
    const opened = node.agent.takeTicket(ticket);
    node.agent.connectClient(opened);
    const session = node.agent.sessions.get(opened);
    // Nothing else has run since the agent accepted the session.
    if (session !== undefined) {
      this.#held.set(opened, { claim: name, epoch: BigInt(session.epoch), node });
      session.memoryUsed = this.#random() < 0.5 ? 1n : (session.devices[0]?.memoryBytes ?? 1n);
    }
    await node.agent.tell();
    this.deeds.opened += 1;
  }

  #memory(): bigint {
    return BigInt(1 + Math.floor(this.#random() * 8)) * GiB;
  }

  #know(claim: Claim, release: Known["release"] = "no", sizes: Known["sizes"] = []): void {
    const known = this.known.get(claim.name);
    if (known === undefined) {
      this.known.set(claim.name, { claim, release, sizes, isBusy: false });
    } else {
      // Not replaced: the client that works with the claim holds this object, and marks in it that it is done.
      Object.assign(known, { claim, release, sizes });
    }
  }

  /**
   * Compares the actual state with the known one, and continues from the actual one.
   *
   * @returns Acknowledged changes that are missing, and violations.
   */
  takeStock(all: readonly Claim[], devices: readonly Device[]): string[] {
    // Sessions of a pool's own nodes belong to others.
    const found = all.filter(({ pool }) => pool === "");
    const live = found.filter(isLive);
    const broken = [
      ...this.#check(found),
      ...this.#checkSessions(found),
      ...overAllocations(all.filter(isLive), devices),
      ...splitGangs(live),
      ...this.#seen,
    ];
    this.#seen.clear();
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
      // An unfinished release will not be carried out any more. A claim whose creation was not acknowledged has no
      // owner: it is released. A resize may still be in progress.
      const { release, sizes } = before.get(claim.name) ?? {};
      this.#know(claim, release === "acknowledged" ? "acknowledged" : "no", sizes);
    }
    return broken;
  }

  /** How many allocations were seen. */
  get grants(): number {
    return this.#epochs.size;
  }

  /** Acknowledged changes that are missing. */
  #check(found: readonly Claim[]): string[] {
    const byName = new Map(found.map((claim) => [claim.name, claim]));
    return [...this.known.values()].flatMap(({ claim, release, sizes }) => {
      const now = byName.get(claim.name);
      const lives = now !== undefined && isLive(now);
      const mayMove = claim.lazy || sizes.length > 0;
      return [
        release === "no" && !lives ? `${claim.name} was lost: ${now?.reason}` : "",
        release === "acknowledged" && lives ? `${claim.name} was released and is back` : "",
        lives && now.version < claim.version ? `${claim.name} has gone back to an older version` : "",
        lives && ![claim, ...sizes].some((each) => isSameSize(each, now)) ? `${claim.name} has changed` : "",
        lives && now.requeues < claim.requeues ? `${claim.name} was put into the queue less often` : "",
        lives &&
        !mayMove &&
        claim.allocation !== undefined &&
        now.requeues === claim.requeues &&
        !isSameAllocation(claim, now)
          ? `${claim.name} was bound to something else`
          : "",
      ].filter((text) => text !== "");
    });
  }

  /** Sessions that were ended and claims that were taken from their sessions, against the rules. */
  #checkSessions(found: readonly Claim[]): string[] {
    const byName = new Map(found.map((claim) => [claim.name, claim]));
    return [...this.#held].flatMap(([id, { claim: name, epoch, node }]) => {
      const now = byName.get(name);
      const isKept = now !== undefined && isLive(now) && now.allocation?.epoch === epoch;
      const isThere = node.agent.sessions.has(id);
      if (!isKept || !isThere) {
        this.#held.delete(id);
      }
      // A preemptible claim may be preempted at any moment, even since it was read.
      if (now?.preemptible !== false || this.known.get(name)?.release !== "no") {
        return [];
      }
      return [
        isKept ? "" : `${name} was taken from its session: ${now.reason}`,
        isThere ? "" : `a session of ${name} was ended`,
      ].filter((text) => text !== "");
    });
  }
}

function isLive({ state }: Claim): boolean {
  return state === ClaimState.DORMANT || state === ClaimState.PENDING || state === ClaimState.BOUND;
}

function isSameSize(a: Sizes, b: Sizes): boolean {
  return a.gpus === b.gpus && a.memoryBytes === b.memoryBytes && a.computePercent === b.computePercent;
}

function isSameAllocation(a: Claim, b: Claim): boolean {
  const show = ({ allocation }: Claim) =>
    `${allocation?.node} ${allocation?.epoch} ${allocation?.devices.map((each) => `${each.uuid} ${each.memoryBytes}`).join()}`;
  return show(a) === show(b);
}

/** Gangs that are only partly bound, although none of their members has ended. */
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
