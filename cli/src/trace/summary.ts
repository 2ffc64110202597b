// SPDX-License-Identifier: Apache-2.0

import { type Place, copyOf, launchedBy } from "./copies.ts";
import type { Call, Header } from "./line.ts";
import type { Entry } from "./read.ts";

/** The summary of a trace, as `-o json` prints it. Times are microseconds. */
export interface Summary {
  readonly files: readonly FileSummary[];
  readonly processes: readonly ProcessSummary[];
  readonly threads: readonly ThreadSummary[];
  readonly calls: readonly CallSummary[];
  readonly copies: readonly CopySummary[];
  readonly launches: readonly LaunchSummary[];
  readonly failedCalls: number;
  /** The line number of the first of them. */
  readonly failures: readonly Failure[];
  /** The longest times that a thread spent in the program, between two calls. */
  readonly gaps: readonly Gap[];
}

export interface FileSummary {
  readonly file: string;
  readonly calls: number;
  /** The last line is incomplete: the program was killed, or is still running. */
  readonly isCut: boolean;
}

export interface ProcessSummary extends Header {
  readonly file: string;
  readonly calls: number;
}

export interface ThreadSummary {
  readonly process: number;
  readonly thread: number;
  readonly calls: number;
  /** From the start of its first call to the end of its last. */
  readonly span: number;
  readonly inCalls: number;
  /** The part of `inCalls` spent in calls that waited for the worker. */
  readonly inWaits: number;
}

export interface CallSummary {
  readonly name: string;
  readonly count: number;
  readonly total: number;
  readonly mean: number;
  readonly p50: number;
  readonly p99: number;
  readonly max: number;
  /** How often it waited for the worker. */
  readonly waits: number;
  readonly errors: number;
}

export interface CopySummary {
  readonly from: Place;
  readonly to: Place;
  readonly count: number;
  readonly bytes: number;
  /** Time spent in the calls; an asynchronous copy continues after its call. */
  readonly total: number;
}

export interface LaunchSummary {
  /** As in the image. */
  readonly kernel: string;
  /** As in the source, if it is another one. */
  readonly readable?: string;
  readonly count: number;
  readonly total: number;
}

export interface Failure {
  readonly file: string;
  readonly line: number;
  readonly name: string;
  readonly result: string;
  /** Whether it is the failure of an earlier, asynchronous call. */
  readonly isEarlierFailure: boolean;
  readonly text: string;
}

export interface Gap {
  readonly file: string;
  /** Line of the call after the gap. */
  readonly line: number;
  readonly process: number;
  readonly thread: number;
  readonly time: number;
  readonly after: string;
  readonly before: string;
}

const mostFailures = 1000;
const mostGaps = 10;

const micro = (nanoseconds: number): number => nanoseconds / 1000;

interface ProcessTotal extends Header {
  readonly file: string;
  calls: number;
}

interface ThreadTotal {
  readonly process: number;
  readonly thread: number;
  readonly first: number;
  last: number;
  lastName: string;
  calls: number;
  inCalls: number;
  inWaits: number;
}

interface CallTotal {
  readonly durations: number[];
  waits: number;
  errors: number;
}

/** Sums up the entries of files as they are read. */
export class Summarizer {
  readonly #files: FileSummary[] = [];
  readonly #processes: ProcessTotal[] = [];
  readonly #threads: ThreadTotal[] = [];
  readonly #calls = new Map<string, CallTotal>();
  readonly #copies = new Map<
    string,
    { from: Place; to: Place; count: number; bytes: number; total: number }
  >();
  readonly #launches = new Map<string, { count: number; total: number }>();
  readonly #failures: Failure[] = [];
  #failedCalls = 0;
  #gaps: Gap[] = [];

  async addFile(file: string, entries: AsyncIterable<Entry>): Promise<void> {
    // A process number may be reused by another process, which writes its own header first.
    const processes = new Map<number, ProcessTotal>();
    const threads = new Map<number, ThreadTotal>();
    let calls = 0;
    let isCut = false;
    for await (const entry of entries) {
      if (entry.kind === "header") {
        const total = { ...headerOf(entry.header), file, calls: 0 };
        this.#processes.push(total);
        processes.set(total.process, total);
        for (const [number, thread] of threads) if (thread.process === total.process) threads.delete(number);
      } else if (entry.kind === "cut") {
        isCut = true;
      } else if (entry.kind === "call") {
        calls++;
        const process = processes.get(entry.call.process);
        if (process !== undefined) process.calls++;
        this.#addToThread(file, entry.line, entry.call, threads);
        this.#addCall(entry.call);
        if (isFailure(entry.call)) this.#addFailure(file, entry);
      }
    }
    this.#files.push({ file, calls, isCut });
  }

  summary(): Summary {
    const sorted = [...this.#calls].map(([name, total]) => callSummary(name, total));
    return {
      files: this.#files,
      processes: this.#processes,
      threads: this.#threads.map(({ process, thread, first, last, calls, inCalls, inWaits }) => ({
        process,
        thread,
        calls,
        span: micro(last - first),
        inCalls: micro(inCalls),
        inWaits: micro(inWaits),
      })),
      calls: sorted.toSorted((a, b) => b.total - a.total || (a.name < b.name ? -1 : 1)),
      copies: [...this.#copies.values()]
        .map((copy) => ({ ...copy, total: micro(copy.total) }))
        .toSorted((a, b) => b.bytes - a.bytes),
      launches: [...this.#launches]
        .map(([kernel, { count, total }]) => ({ kernel, count, total: micro(total) }))
        .toSorted((a, b) => b.count - a.count || (a.kernel < b.kernel ? -1 : 1)),
      failedCalls: this.#failedCalls,
      failures: this.#failures,
      gaps: this.#gaps,
    };
  }

  #addToThread(file: string, line: number, call: Call, threads: Map<number, ThreadTotal>): void {
    const end = call.start + call.duration;
    let own = threads.get(call.thread);
    if (own === undefined) {
      own = {
        process: call.process,
        thread: call.thread,
        first: call.start,
        last: call.start,
        lastName: "",
        calls: 0,
        inCalls: 0,
        inWaits: 0,
      };
      threads.set(call.thread, own);
      this.#threads.push(own);
    } else {
      this.#addGap({
        file,
        line,
        process: call.process,
        thread: call.thread,
        time: micro(call.start - own.last),
        after: own.lastName,
        before: call.name,
      });
    }
    own.calls++;
    own.inCalls += call.duration;
    if (call.waits > 0) own.inWaits += call.duration;
    own.last = end;
    own.lastName = call.name;
  }

  #addGap(gap: Gap): void {
    const shortest = this.#gaps.at(-1);
    if (this.#gaps.length >= mostGaps && shortest !== undefined && gap.time <= shortest.time) return;
    this.#gaps = [...this.#gaps, gap].toSorted((a, b) => b.time - a.time).slice(0, mostGaps);
  }

  #addCall(call: Call): void {
    const total = this.#calls.get(call.name) ?? { durations: [], waits: 0, errors: 0 };
    this.#calls.set(call.name, total);
    total.durations.push(call.duration);
    total.waits += call.waits;
    if (isFailure(call)) total.errors++;
    if (call.result !== "CUDA_SUCCESS") return;
    const copy = copyOf(call);
    if (copy !== undefined) {
      const key = `${copy.from} ${copy.to}`;
      const sum = this.#copies.get(key) ?? { from: copy.from, to: copy.to, count: 0, bytes: 0, total: 0 };
      this.#copies.set(key, sum);
      sum.count++;
      sum.bytes += copy.bytes;
      sum.total += call.duration;
    }
    const kernel = launchedBy(call);
    if (kernel !== undefined) {
      const sum = this.#launches.get(kernel) ?? { count: 0, total: 0 };
      this.#launches.set(kernel, sum);
      sum.count++;
      sum.total += call.duration;
    }
  }

  #addFailure(file: string, { line, call, text }: Extract<Entry, { kind: "call" }>): void {
    this.#failedCalls++;
    if (this.#failures.length >= mostFailures) return;
    const { name, result, isEarlierFailure } = call;
    this.#failures.push({ file, line, name, result, isEarlierFailure, text });
  }
}

const headerOf = ({ process, started, program }: Header): Header => ({ process, started, program });

/** CUDA_ERROR_NOT_READY is an answer, not a failure. */
const isFailure = ({ result }: Call): boolean =>
  result !== "CUDA_SUCCESS" && result !== "CUDA_ERROR_NOT_READY";

function callSummary(name: string, { durations, waits, errors }: CallTotal): CallSummary {
  const sorted = Float64Array.from(durations).sort();
  // The nearest rank, so that the result is a time that was measured.
  const at = (share: number): number => micro(sorted[Math.max(0, Math.ceil(share * sorted.length) - 1)] ?? 0);
  const total = sorted.reduce((sum, each) => sum + each, 0);
  return {
    name,
    count: sorted.length,
    total: micro(total),
    mean: micro(total / sorted.length),
    p50: at(0.5),
    p99: at(0.99),
    max: at(1),
    waits,
    errors,
  };
}
