// SPDX-License-Identifier: Apache-2.0
// A pool as sites have them, for pictures: three models in two racks, two teams, claims that run, wait and have ended.
import { DeviceHealth } from "@millpond/api";
import { type FakeAgent, fakeDevice } from "@millpond/controller/testing/fake-agent";
import { ConsolePool, type Devices } from "./browser.ts";

const GiB = 1n << 30n;

function devicesOf(count: number, name: string, memoryGiB: bigint, computeCapability: string): Devices {
  return Array.from({ length: count }, (_, index) => ({
    ...fakeDevice(index, memoryGiB * GiB),
    uuid: `GPU-${name.replaceAll(/\W/g, "").slice(-4).toLowerCase()}0000-0000-4000-8000-00000000000${index}`,
    name,
    kind: "nvidia",
    computeCapability,
    driverVersion: "580.159.04",
  }));
}

interface Work {
  readonly name: string;
  readonly team: "vision" | "speech";
  readonly program: string;
  readonly gpus?: number;
  readonly memoryGiB?: bigint;
  readonly share?: number;
  /** Percent of each device. */
  readonly measured: number;
}

const works: readonly Work[] = [
  { name: "train-resnet", team: "vision", program: "python train.py", gpus: 4, measured: 96 },
  { name: "detector", team: "vision", program: "python serve.py", memoryGiB: 20n, share: 30, measured: 22 },
  { name: "notebook-ann", team: "vision", program: "jupyter-lab", memoryGiB: 10n, share: 20, measured: 1 },
  {
    name: "whisper",
    team: "speech",
    program: "vllm serve",
    gpus: 2,
    memoryGiB: 60n,
    share: 75,
    measured: 71,
  },
  { name: "asr-eval", team: "speech", program: "python eval.py", memoryGiB: 16n, share: 25, measured: 12 },
  { name: "tts-debug", team: "speech", program: "python", memoryGiB: 8n, share: 10, measured: 4 },
];

const tenants = [
  { name: "vision", limit: { gpuMilli: 12_000n } },
  { name: "speech", limit: { gpuMilli: 8000n } },
] as const;

/** A session whose usage varies around a mean. */
interface Busy {
  readonly agent: FakeAgent;
  readonly session: string;
  readonly mean: number;
}

export class BusyPool implements AsyncDisposable {
  readonly #pool: ConsolePool;
  readonly #busy: readonly Busy[];

  private constructor(pool: ConsolePool, busy: readonly Busy[]) {
    this.#pool = pool;
    this.#busy = busy;
  }

  static async start(): Promise<BusyPool> {
    const busy: Busy[] = [];
    const h200 = devicesOf(8, "NVIDIA H200", 141n, "9.0");
    const l40s = devicesOf(4, "NVIDIA L40S", 48n, "8.9").map((device, index) =>
      index === 3
        ? {
            ...device,
            health: DeviceHealth.UNHEALTHY,
            healthReason: "Xid 79: the GPU has fallen off the bus",
          }
        : device,
    );
    const pool = await ConsolePool.start({
      "gpu-a1": h200,
      "gpu-a2": h200,
      "gpu-b1": l40s,
      "gpu-b2": devicesOf(2, "NVIDIA A100-SXM4-80GB", 80n, "8.0"),
    });
    const { access, pool: nodes, queues } = pool.clients();
    for (const [name, rack] of [
      ["gpu-a1", "a"],
      ["gpu-a2", "a"],
      ["gpu-b1", "b"],
      ["gpu-b2", "b"],
    ] as const) {
      await nodes.labelNode({ name, set: { rack } });
    }
    await queues.putQueue({ queue: { name: "research", weight: 2, guaranteed: { gpuMilli: 8000n } } });
    for (const tenant of tenants) await queues.putTenant({ tenant });
    await queues.putQueue({
      queue: { name: "vision", parent: "research", weight: 3, limit: { gpuMilli: 12_000n } },
    });
    await queues.putQueue({ queue: { name: "speech", parent: "research", weight: 1 } });
    const secrets = new Map<string, string>();
    for (const name of ["vision", "speech"]) {
      const { secret } = await access.createToken({ name: `${name}-ci`, role: "user", tenant: name });
      secrets.set(name, secret);
    }
    const asTeam = (team: string) => pool.clients(secrets.get(team)).claims;
    for (const { name, team, program, gpus = 1, memoryGiB = 0n, share = 0, measured } of works) {
      await asTeam(team).createClaim({
        claim: {
          name,
          gpus,
          memoryBytes: memoryGiB * GiB,
          computePercent: share,
          exclusive: memoryGiB === 0n,
          queue: team,
          labels: { app: name.split("-")[0] ?? name },
          leaseSeconds: 86_400,
        },
      });
      const { claim } = await asTeam(team).getClaim({ name });
      const { ticket } = await asTeam(team).createTicket({
        claim: name,
        program,
        clientPid: 4000 + name.length,
      });
      const agent = pool.agent(claim?.allocation?.node ?? "");
      const id = await agent.openSession(ticket);
      const session = agent.sessions.get(id);
      if (session === undefined) throw new Error(`no session ${id}`);
      session.computeUsed = measured;
      busy.push({ agent, session: id, mean: measured });
      session.memoryUsed = ((memoryGiB === 0n ? 120n : memoryGiB) * GiB * 3n) / 4n;
      session.commands = 184_302n * BigInt(name.length);
      await agent.sync();
    }
    await asTeam("vision").createClaim({
      claim: {
        name: "pretrain",
        gpus: 8,
        exclusive: true,
        models: ["H200"],
        queue: "vision",
        leaseSeconds: 86_400,
      },
    });
    await asTeam("speech").createClaim({
      claim: {
        name: "align-corpus",
        gpus: 6,
        exclusive: true,
        models: ["H200"],
        queue: "speech",
        leaseSeconds: 86_400,
      },
    });
    await asTeam("speech").createClaim({
      claim: { name: "smoke-test", memoryBytes: GiB, queue: "speech", leaseSeconds: 60 },
    });
    await asTeam("speech").releaseClaim({ name: "smoke-test" });
    for (const node of ["gpu-a1", "gpu-a2"]) {
      const agent = pool.agent(node);
      agent.figures = h200.map(({ uuid = "" }, index) => ({
        uuid,
        card: {
          temperatureCelsius: 38 + 3 * index,
          powerMilliwatts: 120_000 + 61_000 * index,
          powerLimitMilliwatts: 700_000,
          smClockMhz: index === 0 ? 345 : 1980,
        },
      }));
      await agent.sync();
    }
    await nodes.cordonNode({ name: "gpu-b2", cordoned: true, reason: "new fans on Friday" });
    return new BusyPool(pool, busy);
  }

  get url(): string {
    return this.#pool.url;
  }

  get adminToken(): string {
    return this.#pool.adminToken;
  }

  /** The usage of programs at a given time, the same in every run. */
  async vary(moment: number): Promise<void> {
    for (const [index, { agent, session: id, mean }] of this.#busy.entries()) {
      const session = agent.sessions.get(id);
      const wave = Math.sin(moment / (3 + index)) * 0.12 + Math.sin(moment / 1.7 + index) * 0.05;
      if (session !== undefined)
        session.computeUsed = Math.max(0, Math.min(100, Math.round(mean * (1 + wave))));
    }
    await Promise.all([...new Set(this.#busy.map(({ agent }) => agent))].map((agent) => agent.sync()));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#pool[Symbol.asyncDispose]();
  }
}
