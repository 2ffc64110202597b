// SPDX-License-Identifier: Apache-2.0

// Running an agent
export { startAgent } from "./agent.ts";
export type { Agent } from "./agent.ts";
export { runAgentCommand } from "./command.ts";
export type { AgentOptions } from "./options.ts";
export type { Drain } from "./workers/worker-pool.ts";
export { endOrphanedWorkers, endProcess } from "./workers/orphaned-workers.ts";

// For callers that run agents or workers themselves: the CLI, the benchmarks
export { probeDriver } from "./workers/driver-probe.ts";
export type { Probe } from "./workers/driver-probe.ts";
export { connectWorker, spawnWorker } from "./workers/worker-process.ts";
export type { WorkerControl, WorkerMessage } from "./workers/worker-process.ts";
export {
  findProcessesByArgument,
  identifyProcess,
  isProcessAlive,
  signalProcess,
} from "./process/process-identity.ts";
export type { ProcessIdentity } from "./process/process-identity.ts";
export { LockHeldError, openLockedDatabase } from "./run-directory/run-lock.ts";
