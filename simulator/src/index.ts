// SPDX-License-Identifier: Apache-2.0

// Replays the requests of a trace through the scheduler's own placement, to compare policies.

export { listTraces, readTrace } from "./folder.ts";
export { renderResults, type ResultFormat, resultFormatOf, resultFormats } from "./result-files.ts";
export type { ExportedClaim, ExportedNode, PoolExport } from "./pool-export.ts";
export { type Policy, policies, type RunResult, run } from "./run.ts";
export { type Curve, curveOf, type Summary, summarize } from "./summary.ts";
export { capacityOf, repeated, type Trace } from "./trace.ts";
