// SPDX-License-Identifier: Apache-2.0

import { availableParallelism, cpus, loadavg, release } from "node:os";
import type { Probe } from "@millpond/agent";
import manifest from "../../../package.json" with { type: "json" };

/** Hardware and software on which the figures were measured. */
export interface Machine {
  /** The device. */
  readonly hardware: string;
  readonly cpu: string;
  readonly cores: number;
  /** The driver's version; empty for a software GPU. */
  readonly driver: string;
  readonly versions: {
    readonly millpond: string;
    /** CUDA version that the driver offers, 13000 for 13.0. */
    readonly cuda: number;
    readonly linux: string;
    readonly node: string;
  };
  /** Processors of the client and of the worker; empty: all. */
  readonly clientCpus?: string;
  readonly workerCpus?: string;
  /** The delay of TCP and TLS, each way. */
  readonly delayMicroseconds?: number;
  /** Load average of the minute before the measurement: runnable processes. */
  readonly load: number;
}

/** Describes this machine. */
export function describeHost() {
  return {
    cpu: cpus()[0]?.model.trim() ?? "unknown",
    cores: availableParallelism(),
    versions: {
      millpond: manifest.version,
      linux: release().replace(/-.*/, ""),
      node: process.versions.node,
    },
  };
}

/** Describes this machine and the device that `probe` found on it. */
export function describeMachine(probe: Probe, device: Probe["devices"][number]): Machine {
  const { cpu, cores, versions } = describeHost();
  return {
    hardware: device.name,
    cpu,
    cores,
    driver: probe.driver,
    versions: {
      millpond: versions.millpond,
      cuda: probe.cudaVersion,
      linux: versions.linux,
      node: versions.node,
    },
    load: Number((loadavg()[0] ?? 0).toFixed(2)),
  };
}
