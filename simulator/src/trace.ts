// SPDX-License-Identifier: Apache-2.0

import type { Shape } from "@millpond/scheduler";

/** A node of a trace, empty. */
export interface TraceNode {
  readonly cpuMilli: number;
  readonly memoryMiB: number;
  readonly gpus: number;
  /** Index into the trace's models; -1: no GPU. */
  readonly model: number;
}

/** The nodes of a pool and the requests to it. */
export interface Trace {
  readonly name: string;
  /** Nodes with GPUs, on which claims are placed. */
  readonly nodes: readonly TraceNode[];
  /** Nodes without GPUs, whose CPU only pooled claims use. */
  readonly cpuNodes: readonly TraceNode[];
  /** In the order of the file. Equal shapes are one object. */
  readonly pods: readonly Shape[];
  readonly models: readonly string[];
}

export function capacityOf(trace: Trace): number {
  return trace.nodes.reduce((sum, { gpus }) => sum + gpus, 0);
}

/** The pool and its requests, repeated. */
export function repeated(trace: Trace, times: number): Trace {
  const repeat = <T>(items: readonly T[]): T[] => Array.from({ length: times }, () => items).flat();
  return { ...trace, nodes: repeat(trace.nodes), cpuNodes: repeat(trace.cpuNodes), pods: repeat(trace.pods) };
}
