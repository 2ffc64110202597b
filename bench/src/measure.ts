// SPDX-License-Identifier: Apache-2.0

import { BenchPool } from "./pool/bench-pool.ts";
import { BenchWorker } from "./bench-worker.ts";
import type { CpuSets } from "./cpu-sets.ts";
import { DelayRelay } from "./delay-relay.ts";
import type { Carrier, Transport } from "./results/metrics.ts";
import { measureWith, type Programs } from "./programs.ts";
import type { Samples } from "./results/samples.ts";

/** Groups of metrics that are measured together. */
export const groups = ["calls", "copies", "start", "pool", "memory"] as const;
export type Group = (typeof groups)[number];

/** How much is measured. */
export interface Effort {
  /** How often each program is started. */
  readonly passes: number;
  /** Samples of a program in a pass. */
  readonly rounds: number;
  /** Duration of the consecutive launches, in seconds. */
  readonly sustainedSeconds: number;
  readonly copyBytes: number;
}

export interface Plan extends Effort {
  readonly programs: Programs;
  /** The driver library that workers, and native runs, use. */
  readonly driver: string;
  /** The repository's root, or the unpacked archive's. */
  readonly root: string;
  readonly isSoft: boolean;
  readonly uuid: string;
  readonly memoryBytes: number;
  /** The processors on which clients, native runs and workers run. */
  readonly cpus: CpuSets;
  /** Delay of TCP and TLS, each way. 0: none. */
  readonly delayMicroseconds: number;
  readonly transports: readonly Transport[];
  readonly groups: readonly Group[];
  readonly onStep: (text: string) => void;
}

/**
 * Measures everything, with the transports in turns: the load of the machine changes from minute to minute and must not
 * affect only one of them.
 */
export async function measure(plan: Plan, samples: Samples): Promise<void> {
  for (let pass = 1; pass <= plan.passes; pass += 1) {
    for (const group of plan.groups) {
      plan.onStep(`pass ${pass} of ${plan.passes}: ${group}`);
      if (group === "pool") await measurePool(plan, samples);
      else for (const transport of plan.transports) await measureGroup(plan, group, transport, samples);
    }
  }
}

async function measureGroup(
  plan: Plan,
  group: Exclude<Group, "pool">,
  transport: Transport,
  samples: Samples,
): Promise<void> {
  switch (group) {
    case "calls":
      await runOnce(plan, transport, ["calls", String(plan.rounds), String(plan.sustainedSeconds)], samples);
      if (transport !== "native") await runTransport(plan, transport, samples);
      return;
    case "copies":
      await runOnce(plan, transport, ["copies", String(someRounds(plan)), String(plan.copyBytes)], samples);
      return;
    case "start":
      // A process has only one first kernel, so each round is a process.
      for (let round = 0; round < someRounds(plan); round += 1)
        await runOnce(plan, transport, ["first-kernel"], samples);
      return;
    case "memory":
      await runOnce(plan, transport, ["memory"], samples);
      if (transport === "shm") await measureIdleWorker(plan, samples);
  }
}

/** Number of rounds of slow measurements. */
function someRounds(plan: Plan): number {
  return Math.ceil(plan.rounds / 4);
}

function startWorker(plan: Plan, carrier: Carrier): Promise<BenchWorker> {
  const { driver, uuid, memoryBytes } = plan;
  return BenchWorker.start({
    worker: plan.programs.worker,
    driver,
    uuid,
    memoryBytes,
    carrier,
    cpus: plan.cpus.worker,
  });
}

/** The network between client and worker, if one is to be measured. */
async function startNetwork(
  plan: Plan,
  carrier: Carrier,
  worker: BenchWorker,
): Promise<DelayRelay | undefined> {
  if (plan.delayMicroseconds === 0 || carrier === "shm") return undefined;
  return await DelayRelay.start(
    plan.programs.transportBench,
    worker.tcpPort,
    plan.delayMicroseconds,
    plan.cpus.relay,
  );
}

async function runOnce(plan: Plan, transport: Transport, args: string[], samples: Samples): Promise<void> {
  const { driverBench, client } = plan.programs;
  if (transport === "native") {
    samples.addPrinted(
      transport,
      await measureWith(driverBench, [plan.driver, ...args], {}, plan.cpus.client),
    );
    return;
  }
  await using worker = await startWorker(plan, transport);
  await using network = await startNetwork(plan, transport, worker);
  const environment = worker.environment(transport, network?.port);
  const printed = await measureWith(driverBench, [client, ...args], environment, plan.cpus.client);
  samples.addPrinted(transport, printed);
}

async function runTransport(plan: Plan, carrier: Carrier, samples: Samples): Promise<void> {
  await using worker = await startWorker(plan, carrier);
  await using network = await startNetwork(plan, carrier, worker);
  const args = [...worker.transportArguments(carrier, network?.port), String(plan.rounds)];
  const environment = worker.environment(carrier, network?.port);
  const printed = await measureWith(plan.programs.transportBench, args, environment, plan.cpus.client);
  samples.addPrinted(carrier, printed);
}

async function measurePool(plan: Plan, samples: Samples): Promise<void> {
  await using pool = await BenchPool.start({ ...plan, upOptions: plan.isSoft ? ["--devices", "1"] : [] });
  for (let round = 0; round < someRounds(plan); round += 1) {
    for (const transport of plan.transports) {
      // The pool is on this host, where it need not encrypt.
      if (transport === "native" || transport === "tls") continue;
      await pool.warm();
      const { driverBench, client } = plan.programs;
      const printed = await measureWith(driverBench, [client, "first-kernel"], pool.environment(transport));
      const { first_kernel: ms } = JSON.parse(printed) as { first_kernel: number[] };
      for (const value of ms) samples.add(transport, "first_kernel_pool", value);
    }
  }
}

/** An idle worker has no transport before its client connects; its measurements are listed under shared memory. */
async function measureIdleWorker(plan: Plan, samples: Samples): Promise<void> {
  await using worker = await startWorker(plan, "shm");
  const { share, resident } = await worker.memory();
  samples.add("shm", "worker_memory", share);
  samples.add("shm", "worker_resident", resident);
}
