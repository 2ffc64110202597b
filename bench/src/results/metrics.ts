// SPDX-License-Identifier: Apache-2.0

/** How a program reaches the device; `tls` is TCP, encrypted. */
export const transports = ["native", "shm", "tcp", "tls"] as const;
export type Transport = (typeof transports)[number];
/** How a program reaches a worker. */
export type Carrier = Exclude<Transport, "native">;

/** The target of a measured figure. */
export interface Bar {
  readonly kind: "atMost" | "atLeast";
  readonly value: number;
}

export interface Metric {
  /** The name in the output of the measuring programs and in result files. */
  readonly name: string;
  readonly title: string;
  readonly unit: "µs" | "ms" | "1/s" | "GB/s" | "MiB" | "×";
  readonly bars?: Partial<Record<Transport, Bar>>;
}

const asynchronous = { shm: { kind: "atMost", value: 0.5 } } as const;
const roundTrip = { shm: { kind: "atMost", value: 5 }, tcp: { kind: "atMost", value: 30 } } as const;
const copyRate = { tcp: { kind: "atLeast", value: 3 } } as const;
const copyRatio = { shm: { kind: "atLeast", value: 0.8 } } as const;

/** Everything that is measured, in the order of the table. */
export const metrics: readonly Metric[] = [
  { name: "post", title: "a command that does not wait, by itself", unit: "µs", bars: asynchronous },
  { name: "launch_call", title: "cuLaunchKernel, three parameters", unit: "µs", bars: asynchronous },
  { name: "event_record_call", title: "cuEventRecord", unit: "µs", bars: asynchronous },
  { name: "memset_call", title: "cuMemsetD32Async, 1 KiB", unit: "µs", bars: asynchronous },
  { name: "marker", title: "a command that waits, by itself", unit: "µs", bars: roundTrip },
  { name: "stream_synchronize", title: "cuStreamSynchronize, idle", unit: "µs", bars: roundTrip },
  { name: "stream_query", title: "cuStreamQuery, idle", unit: "µs", bars: roundTrip },
  { name: "launch_and_wait", title: "launch and cuStreamSynchronize", unit: "µs" },
  { name: "read_word", title: "cuMemcpyDtoH, 4 bytes", unit: "µs" },
  { name: "launches_enqueued", title: "launches enqueued", unit: "1/s" },
  { name: "launches_finished", title: "launches finished", unit: "1/s" },
  { name: "memcpy_rate", title: "memcpy", unit: "GB/s" },
  { name: "to_device_pageable_rate", title: "to the device, pageable", unit: "GB/s", bars: copyRate },
  { name: "to_device_pageable_ratio", title: "  beside memcpy", unit: "×", bars: copyRatio },
  { name: "to_device_pinned_rate", title: "to the device, pinned", unit: "GB/s", bars: copyRate },
  { name: "to_device_pinned_ratio", title: "  beside memcpy", unit: "×", bars: copyRatio },
  { name: "from_device_pageable_rate", title: "from the device, pageable", unit: "GB/s", bars: copyRate },
  { name: "from_device_pageable_ratio", title: "  beside memcpy", unit: "×", bars: copyRatio },
  { name: "from_device_pinned_rate", title: "from the device, pinned", unit: "GB/s", bars: copyRate },
  { name: "from_device_pinned_ratio", title: "  beside memcpy", unit: "×", bars: copyRatio },
  { name: "to_device_async_rate", title: "to the device, pinned, in a stream", unit: "GB/s", bars: copyRate },
  { name: "to_device_async_ratio", title: "  beside memcpy", unit: "×" },
  {
    name: "from_device_async_rate",
    title: "from the device, pinned, in a stream",
    unit: "GB/s",
    bars: copyRate,
  },
  { name: "from_device_async_ratio", title: "  beside memcpy", unit: "×" },
  { name: "init", title: "cuInit", unit: "ms" },
  { name: "first_kernel", title: "cuInit to the first kernel's result", unit: "ms" },
  { name: "first_kernel_pool", title: "  through controller and agent", unit: "ms" },
  { name: "worker_memory", title: "idle worker, proportional share", unit: "MiB" },
  { name: "worker_resident", title: "idle worker, resident", unit: "MiB" },
  { name: "client_memory", title: "client library after cuInit", unit: "MiB" },
  { name: "client_memory_context", title: "  with context and module", unit: "MiB" },
];

/** Whether a figure meets its target. */
export function isMet(bar: Bar, figure: number): boolean {
  return bar.kind === "atMost" ? figure <= bar.value : figure >= bar.value;
}
