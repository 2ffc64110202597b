// SPDX-License-Identifier: Apache-2.0

// Rounds in which clients and agents work and a process is killed; reports losses and the time to recovery.

import { type Client, createClient } from "@connectrpc/connect";
import { ClaimService, PoolService } from "@millpond/api";
import { Cluster, type Fault as ClusterFault } from "./cluster.ts";
import { Clients, type CallCounts, makeRandom } from "./crash-clients.ts";
import { TestNode } from "./test-node.ts";

/** Faults of controllers and their database; a killed agent is replaced. */
export type Fault =
  | ClusterFault
  | "agent killed"
  | "agent of programs killed"
  | "agent of programs stopped"
  | "worker of a program killed";

/** The address at which a host reaches the controllers. */
export interface HostSite {
  /** Separated by commas. */
  readonly urls: string;
  readonly userToken: string;
  readonly agentToken: string;
}

/** A node with a real agent, real workers and programs that run on them all the time. */
export interface Host extends AsyncDisposable {
  /** A separate pool for the host: only its own claims use it. Its devices are too small for the clients' claims. */
  readonly pool: string;
  /** The number of programs that ended as they should. */
  readonly done: number;
  /** Kills the agent. Resolves when another one has taken its place and has served a program. */
  replaceAgent(): Promise<void>;
  /** Keeps the agent silent until its node is lost. Resolves when it has continued and served a program. */
  pauseAgent(): Promise<void>;
  /** Kills the worker of a program: that program gets an error, and the others are not affected. */
  killWorker(): Promise<void>;
  /** Violations seen since the last call. */
  takeStock(): readonly string[];
  /** Ends the programs; resolves with the observed errors and leftovers. */
  finish(): Promise<readonly string[]>;
}

/** The faults of ten rounds, in an order given by the seed. */
const deck: readonly Fault[] = [
  "leader killed",
  "leader killed",
  "leader killed",
  "database killed",
  "database killed",
  "database killed",
  "leader stopped",
  "leader ended",
  "follower killed",
  "agent killed",
];
/** The faults of fifteen rounds beside a host. */
const deckWithHost: readonly Fault[] = [
  ...deck,
  "agent of programs killed",
  "agent of programs killed",
  "agent of programs stopped",
  "worker of a program killed",
  "worker of a program killed",
];

export interface CrashRoundsOptions {
  readonly seed: number;
  readonly rounds: number;
  /** How many seconds the clock of each controller is ahead: nothing may depend on them. */
  readonly clocks: readonly number[];
  /**
   * Creates a host whose agent is among the processes that are killed; it needs clocks that agree. Default: no host.
   */
  readonly makeHost?: (site: HostSite) => Promise<Host>;
  /** Called for each round. */
  readonly onRound?: (round: Round) => void;
}

export interface Round {
  readonly fault: Fault;
  /** Milliseconds from the fault until a claim that was requested at that moment was acknowledged. */
  readonly seconds: number;
}

export interface CrashRounds {
  readonly rounds: readonly Round[];
  /** Acknowledged changes that are missing, and states that must never occur. */
  readonly broken: readonly string[];
  /** Terms in the database after each round. */
  readonly terms: readonly bigint[];
  /** Calls that were answered. */
  readonly acknowledged: number;
  /** Allocations that were seen. */
  readonly grants: number;
  readonly deeds: CallCounts;
  /** The number of programs of the host that ended as they should. */
  readonly programs: number;
}

const clientsAtOnce = 8;
const leaseSeconds = 3600;

/** Runs the rounds on their own controllers, database and nodes, which are gone when it resolves. */
export async function runCrashRounds(options: CrashRoundsOptions): Promise<CrashRounds> {
  const { seed, clocks, makeHost, onRound } = options;
  await using cluster = await Cluster.start(clocks);
  await using cleanup = new AsyncDisposableStack();
  const transport = cluster.transport();
  const claims = createClient(ClaimService, transport);
  const pool = createClient(PoolService, transport);
  const at = { url: cluster.urls, token: cluster.agentToken };
  const nodes = ["node-a", "node-b"].map((name) => cleanup.use(new TestNode(name, at)));
  await Promise.all(nodes.map((node) => node.agent.until(() => true)));
  const host = await makeHost?.(cluster);
  if (host !== undefined) {
    cleanup.use(host);
  }
  // The seed determines the faults; the clients' calls depend on the timing of the answers.
  const random = makeRandom(seed);
  const clients = new Clients(makeRandom(seed + 1), nodes);
  const rounds: Round[] = [];
  const terms: bigint[] = [];
  const broken: string[] = [];
  const coming: Fault[] = [];

  const strike = async (fault: Fault): Promise<() => Promise<void>> => {
    switch (fault) {
      case "agent of programs killed":
        await host?.replaceAgent();
        break;
      case "agent of programs stopped": {
        const isBack = host?.pauseAgent();
        return async () => await isBack;
      }
      case "worker of a program killed":
        await host?.killWorker();
        break;
      case "agent killed":
        await nodes[Math.floor(random() * nodes.length)]?.replaceAgent(at);
        break;
      default:
        return await cluster.strike(fault);
    }
    return async () => undefined;
  };

  for (let number = 0; number < options.rounds; number += 1) {
    const stop = new AbortController();
    const running = Array.from({ length: clientsAtOnce }, () => clients.run(claims, stop.signal));
    await clients.until(5 + Math.floor(random() * 60));
    if (coming.length === 0) {
      coming.push(...(host === undefined ? deck : deckWithHost));
    }
    const [fault = "leader killed"] = coming.splice(Math.floor(random() * coming.length), 1);
    const beganMs = performance.now();
    const repair = await strike(fault);
    // What a user does next: wait until there is a leader.
    await askNext(claims, `after-${number}`);
    const round = { fault, seconds: (performance.now() - beganMs) / 1000 };
    stop.abort();
    await Promise.all(running);
    await repair();
    rounds.push(round);
    onRound?.(round);
    terms.push(await cluster.term());
    const found = await claims.listClaims({ includeEnded: true });
    const { devices } = await pool.listDevices({});
    const seen = [...clients.takeStock(found.claims, devices), ...(host?.takeStock() ?? [])];
    broken.push(...seen.map((what) => `round ${number}, ${fault}: ${what}`));
  }
  broken.push(...((await host?.finish()) ?? []));
  const { acknowledged, grants, deeds } = clients;
  return { rounds, broken, terms, acknowledged, grants, deeds, programs: host?.done ?? 0 };
}

async function askNext(claims: Client<typeof ClaimService>, name: string): Promise<void> {
  const share = { memoryBytes: 1n << 30n, computePercent: 1 };
  await claims.createClaim({ claim: { name, ...share, leaseSeconds } });
}
