// SPDX-License-Identifier: Apache-2.0

// A profile as Chrome trace events, with the categories and arguments that PyTorch's profiler uses: Perfetto,
// chrome://tracing and TensorBoard open it.

import { closeSync, openSync, writeSync } from "node:fs";
import type { Argument, Call, Header, Value } from "../trace/line.ts";
import { launchedBy } from "../trace/copies.ts";
import type { CopyRecord, FillRecord, KernelRecord, ProfileHeader, ProfileRecord } from "./records.ts";

/** Devices get process numbers that Linux never assigns, with room for the devices of each process. */
const firstDeviceTrack = 2 ** 22;
const mostDevices = 64;
/** Length in bytes at which the trace of calls truncates kernel names. */
const mostTracedName = 120;
const flushBytes = 1 << 18;

const directions: Readonly<Record<number, string>> = {
  1: "HtoD",
  2: "DtoH",
  3: "HtoA",
  4: "AtoH",
  5: "AtoA",
  6: "AtoD",
  7: "DtoA",
  8: "DtoD",
  9: "HtoH",
  10: "PtoP",
};
const memories: Readonly<Record<number, string>> = {
  1: "Pageable",
  2: "Pinned",
  3: "Device",
  4: "Array",
  5: "Managed",
  6: "Device",
  7: "Managed",
};

export interface ProfileCounts {
  calls: number;
  kernels: number;
  copies: number;
  fills: number;
}

/** One end of an arrow from a launch to its kernel. */
interface Anchor {
  readonly order: number;
  readonly process: number;
  readonly thread: number;
  readonly at: number;
}

interface Launches {
  readonly calls: Anchor[];
  readonly kernels: Anchor[];
}

/** Writes events as they arrive; `close` adds data that is known only at the end. */
export class ChromeTrace {
  readonly counts: ProfileCounts = { calls: 0, kernels: 0, copies: 0, fills: 0 };
  readonly #file: number;
  #buffer = "";
  #isFirst = true;
  /** The time 0 of the events, in nanoseconds since 1970. */
  #base: bigint | undefined;
  readonly #starts = new Map<number, bigint>();
  readonly #devices = new Map<number, Set<string>>();
  readonly #deviceTracks: number[] = [];
  readonly #launches = new Map<string, Launches>();

  constructor(path: string) {
    this.#file = openSync(path, "w");
    this.#buffer = '{"schemaVersion":1,"displayTimeUnit":"ns","traceEvents":[\n';
  }

  process({ process, started, program }: Header): void {
    const micro = /\.(\d{6})Z$/.exec(started)?.[1] ?? "000000";
    const start = BigInt(Date.parse(started.replace(/\.\d+Z$/, "Z"))) * 1_000_000n + BigInt(micro) * 1000n;
    this.#starts.set(process, start);
    this.#base ??= start;
    this.#meta("process_name", process, { name: program });
    this.#meta("process_labels", process, { labels: "CPU" });
  }

  call(call: Call): void {
    const start = this.#starts.get(call.process);
    if (start === undefined) return;
    const at = this.#since(start) + call.start / 1000;
    this.counts.calls++;
    const { process, thread } = call;
    this.#event({
      ph: "X",
      cat: "cuda_driver",
      name: call.name,
      pid: process,
      tid: thread,
      ts: round(at),
      dur: round(call.duration / 1000),
      args: {
        result: call.result,
        ...(call.waits > 0 ? { waits: call.waits } : {}),
        ...textsOf(call.arguments),
      },
    });
    const kernel = call.result === "CUDA_SUCCESS" ? launchedBy(call) : undefined;
    if (kernel !== undefined)
      this.#launchesOf(process, kernel).calls.push({ order: call.start, process, thread, at });
  }

  record(header: ProfileHeader, record: ProfileRecord): void {
    const at = this.#since(record.start - header.lead);
    const track = this.#track(header.process, record.device, record.stream);
    const common = {
      ph: "X",
      pid: track,
      tid: record.stream,
      ts: round(at),
      dur: Number(record.end - record.start) / 1000,
    };
    const place = {
      device: record.device,
      context: record.context,
      stream: record.stream,
      correlation: record.correlation,
    };
    switch (record.kind) {
      case "kernel": {
        this.counts.kernels++;
        this.#event({
          ...common,
          cat: "kernel",
          name: record.name,
          args: { ...place, ...kernelArguments(record) },
        });
        const { correlation: order, stream: thread, symbol } = record;
        this.#launchesOf(header.process, tracedName(symbol)).kernels.push({
          order,
          process: track,
          thread,
          at,
        });
        return;
      }
      case "copy":
        this.counts.copies++;
        this.#event({
          ...common,
          cat: "gpu_memcpy",
          name: copyName(record),
          args: { ...place, ...rate(record) },
        });
        return;
      case "fill":
        this.counts.fills++;
        this.#event({
          ...common,
          cat: "gpu_memset",
          name: "Memset (Device)",
          args: { ...place, ...rate(record) },
        });
        return;
      default:
        record satisfies never;
    }
  }

  close(): void {
    this.#flows();
    this.#buffer += `\n],"baseTimeNanoseconds":${this.#base ?? 0n}}\n`;
    this.#flush();
    closeSync(this.#file);
  }

  /** Microseconds from time 0. */
  #since(time: bigint): number {
    this.#base ??= time;
    return Number(time - this.#base) / 1000;
  }

  #track(process: number, device: number, stream: number): number {
    let index = this.#deviceTracks.indexOf(process);
    if (index < 0) index = this.#deviceTracks.push(process) - 1;
    const track = firstDeviceTrack + index * mostDevices + (device % mostDevices);
    let streams = this.#devices.get(track);
    if (streams === undefined) {
      streams = new Set();
      this.#devices.set(track, streams);
      this.#meta("process_name", track, { name: `process ${process}` });
      this.#meta("process_labels", track, { labels: `GPU ${device}` });
      this.#meta("process_sort_index", track, { sort_index: track });
    }
    if (!streams.has(String(stream))) {
      streams.add(String(stream));
      this.#event({
        ph: "M",
        name: "thread_name",
        pid: track,
        tid: stream,
        args: { name: `stream ${stream}` },
      });
    }
    return track;
  }

  #launchesOf(process: number, kernel: string): Launches {
    const key = `${process} ${kernel}`;
    let launches = this.#launches.get(key);
    if (launches === undefined) {
      launches = { calls: [], kernels: [] };
      this.#launches.set(key, launches);
    }
    return launches;
  }

  /**
   * Arrows from launches to kernels. The launches of a kernel and its runs are in the same order. If their numbers differ,
   * because graphs launch the kernel too or records were lost, launches cannot be matched to runs.
   */
  #flows(): void {
    let id = 0;
    for (const { calls, kernels } of this.#launches.values()) {
      if (calls.length !== kernels.length) continue;
      calls.sort((a, b) => a.order - b.order);
      kernels.sort((a, b) => a.order - b.order);
      for (const [index, call] of calls.entries()) {
        const kernel = kernels[index];
        if (kernel === undefined) continue;
        const flow = { cat: "ac2g", name: "ac2g", id: ++id };
        this.#event({ ph: "s", ...flow, pid: call.process, tid: call.thread, ts: round(call.at) });
        this.#event({
          ph: "f",
          bp: "e",
          ...flow,
          pid: kernel.process,
          tid: kernel.thread,
          ts: round(kernel.at),
        });
      }
    }
  }

  #meta(name: string, pid: number, args: Readonly<Record<string, string | number>>): void {
    this.#event({ ph: "M", name, pid, tid: 0, args });
  }

  #event(event: Readonly<Record<string, unknown>>): void {
    this.#buffer += `${this.#isFirst ? "" : ",\n"}${JSON.stringify(event)}`;
    this.#isFirst = false;
    if (this.#buffer.length >= flushBytes) this.#flush();
  }

  #flush(): void {
    writeSync(this.#file, this.#buffer);
    this.#buffer = "";
  }
}

/** Whole nanoseconds. */
const round = (micro: number): number => Math.round(micro * 1000) / 1000;

/** The name of a kernel as it appears in the trace of calls. */
function tracedName(symbol: string): string {
  return Buffer.byteLength(symbol) > mostTracedName
    ? `${Buffer.from(symbol).subarray(0, mostTracedName).toString()}…`
    : symbol;
}

function kernelArguments({ grid, block, registers, staticShared, dynamicShared }: KernelRecord): object {
  return {
    grid,
    block,
    "registers per thread": registers,
    "static shared memory": staticShared,
    "dynamic shared memory": dynamicShared,
  };
}

function copyName({ direction, from, to }: CopyRecord): string {
  return `Memcpy ${directions[direction] ?? "unknown"} (${memories[from] ?? "Unknown"} -> ${memories[to] ?? "Unknown"})`;
}

function rate({ bytes, start, end }: CopyRecord | FillRecord): object {
  const ns = Number(end - start);
  return ns > 0 ? { bytes, "memory bandwidth (GB/s)": Number((bytes / ns).toFixed(3)) } : { bytes };
}

function textsOf(all: readonly Argument[]): Record<string, string> {
  return Object.fromEntries(all.map(({ name, value }) => [name, textOf(value)]));
}

function textOf(value: Value): string {
  switch (value.kind) {
    case "word":
      return value.text === undefined ? value.word : `${value.word} ${value.text.text}`;
    case "text":
      return value.isCut ? `${value.text}…` : value.text;
    case "target":
      return textOf(value.value);
    case "struct":
      return value.fields.map((field) => `${field.name}=${textOf(field.value)}`).join(", ");
    case "list":
      return [...value.values.map(textOf), ...(value.isCut ? ["…"] : [])].join(", ");
    case "bytes":
      return `${value.bytes} bytes`;
    default:
      return value satisfies never;
  }
}
