// SPDX-License-Identifier: Apache-2.0

import { millpondError } from "@millpond/api";
import type { Logger } from "pino";
import { nvlinkDomains } from "./nvlink-domains.ts";
import { type PciTopology, readPciTopology } from "./pci-topology.ts";
import type { WorkerContainment } from "../workers/worker-containment.ts";
import { type DriverCosts, measureDriver, type Probe, probeDriver } from "../workers/driver-probe.ts";
import { errorText } from "../process/error-text.ts";

/** A device of this node and the driver library that drives it. */
export interface DiscoveredDevice {
  /** Ordinal on this node. */
  readonly index: number;
  readonly driver: string;
  readonly driverVersion: string;
  readonly cudaVersion: number;
  readonly description: Probe["devices"][number];
  readonly topology: Topology;
  /** Memory that its driver takes of it; undefined: it could not be measured. */
  readonly costs: DriverCosts | undefined;
}

/** How a device is connected with others of its node. */
export interface Topology extends PciTopology {
  /** Name of the group of devices that reach each other over NVLink; empty: none, or not known. */
  readonly nvlinkDomain: string;
}

/** Memory that an NVIDIA driver takes for each multiprocessor, as measured on an H200 and an H100 with driver 580.159.04. */
const usualCosts: DriverCosts = {
  contextBytes: 4 * 2 ** 20,
  printsBytes: 512 * 2 ** 10,
  allocatesBytes: 1152 * 2 ** 10,
};
/** A larger result is wrong: other processes took memory at the same time. */
const mostOfDevice = 1 / 4;

/**
 * Returns the memory, in bytes, that a driver takes of a device: the measured size or, on a card, the usual one if that
 * is larger. A claim gets the context of one session in addition to its own memory. `configured`: the size of a context
 * that an administrator has set for this node.
 */
export function costsOf(
  { description, costs }: Pick<DiscoveredDevice, "description" | "costs">,
  configured: number | undefined,
): DriverCosts {
  const { kind, multiprocessors, memoryBytes } = description;
  const of = (name: keyof DriverCosts): number => {
    const measured = costs?.[name] ?? 0;
    const usual = kind === "nvidia" ? multiprocessors * usualCosts[name] : 0;
    return measured > memoryBytes * mostOfDevice ? usual : Math.max(measured, usual);
  };
  return {
    contextBytes: configured ?? of("contextBytes"),
    printsBytes: of("printsBytes"),
    allocatesBytes: of("allocatesBytes"),
  };
}

/** The most devices that fit into a ticket. */
const maxDevices = 32;
const probeTimeoutMs = 60_000;
/** A driver may hang when one of its devices has failed: the others are then served with the usual costs. */
const measureTimeoutMs = 20_000;

/**
 * Asks each driver library for its devices, in the order given.
 *
 * @throws MILLPOND_E_DRIVER when a library does not work, when there is no device, or when two have the same UUID.
 */
export async function discoverDevices(options: {
  readonly worker: string;
  readonly drivers: readonly string[];
  readonly containment: WorkerContainment;
  readonly log: Logger;
}): Promise<readonly DiscoveredDevice[]> {
  const devices: DiscoveredDevice[] = [];
  for (const driver of options.drivers) {
    const probe = await probeOne(options.worker, driver, options.containment);
    const costs = await measureOne(options, driver);
    const domains = nvlinkDomains(probe.nvlinks);
    for (const description of probe.devices) {
      const twin = devices.find((device) => device.description.uuid === description.uuid);
      if (twin !== undefined) {
        throw millpondError(
          "MILLPOND_E_DRIVER",
          `${driver} and ${twin.driver} both have a device ${description.uuid}`,
          { remedy: "Give the agent each driver once." },
        );
      }
      devices.push({
        index: devices.length,
        driver,
        driverVersion: probe.driver,
        cudaVersion: probe.cudaVersion,
        description,
        topology: {
          ...readPciTopology(description.pciBusId),
          nvlinkDomain: domains.get(description.uuid) ?? "",
        },
        costs: costs.get(description.uuid),
      });
    }
  }
  if (devices.length === 0) {
    throw millpondError("MILLPOND_E_DRIVER", `${options.drivers.join(" and ")} found no device`);
  }
  if (devices.length > maxDevices) {
    throw millpondError(
      "MILLPOND_E_DRIVER",
      `${devices.length} devices are more than the ${maxDevices} of a node`,
      {
        remedy: "Run two agents, each with a part of the devices (CUDA_VISIBLE_DEVICES).",
      },
    );
  }
  return devices;
}

async function probeOne(worker: string, driver: string, containment: WorkerContainment): Promise<Probe> {
  try {
    return await probeDriver({ worker, driver, timeoutMs: probeTimeoutMs, containment });
  } catch (cause) {
    const why = cause instanceof Error ? cause.message : String(cause);
    throw millpondError("MILLPOND_E_DRIVER", `the driver ${driver} cannot be used: ${why}`, { cause });
  }
}

/** Empty if it fails: whether a driver works is decided by the probe. */
async function measureOne(
  { worker, containment, log }: Pick<Parameters<typeof discoverDevices>[0], "worker" | "containment" | "log">,
  driver: string,
): Promise<ReadonlyMap<string, DriverCosts>> {
  try {
    return await measureDriver({ worker, driver, timeoutMs: measureTimeoutMs, containment });
  } catch (error) {
    log.warn({ driver }, `the memory that the driver takes could not be measured: ${errorText(error)}`);
    return new Map();
  }
}
