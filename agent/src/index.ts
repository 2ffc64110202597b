// SPDX-License-Identifier: Apache-2.0

// Running an agent
export { startAgent } from "./agent.ts";
export type { Agent } from "./agent.ts";
export { runAgentCommand } from "./command.ts";
export type { AgentOptions } from "./options.ts";
export type { Drain } from "./worker-pool.ts";
export { endLeftWorkers, endProcess } from "./left-workers.ts";

// For who runs agents and workers beside them: the CLI, the benchmarks
export { connectWorker, probeDriver, spawnWorker } from "./worker-process.ts";
export type { Probe, WorkerControl, WorkerMessage } from "./worker-process.ts";
export {
  findProcessesByArgument,
  identifyProcess,
  isProcessAlive,
  signalProcess,
} from "./process-identity.ts";
export type { ProcessIdentity } from "./process-identity.ts";
export { LockHeldError, openLockedDatabase } from "./run-lock.ts";
