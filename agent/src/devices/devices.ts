// SPDX-License-Identifier: Apache-2.0

import { millpondError } from "@millpond/api";
import { nvlinkDomains } from "./nvlink-domains.ts";
import { type PciTopology, readPciTopology } from "./pci-topology.ts";
import type { WorkerContainment } from "../workers/worker-containment.ts";
import { type Probe, probeDriver } from "../workers/worker-process.ts";

/** A device of this node and the driver library that drives it. */
export interface DiscoveredDevice {
  /** Ordinal on this node. */
  readonly index: number;
  readonly driver: string;
  readonly driverVersion: string;
  readonly cudaVersion: number;
  readonly description: Probe["devices"][number];
  readonly topology: Topology;
}

/** How a device is connected with others of its node. */
export interface Topology extends PciTopology {
  /** Name of the group of devices that reach each other over NVLink; empty: none, or not known. */
  readonly nvlinkDomain: string;
}

/** Memory that a context takes for each multiprocessor, as measured on an H200 with driver 580.159.04. */
const contextBytesPerMultiprocessor = 4 * 2 ** 20;

/**
 * Memory, in bytes, that a driver takes on a device for a session of a claim beside the claim's own. `configured`: what an
 * administrator has measured on this node. The software GPU takes none.
 */
export function overheadOf(
  { description: { kind, multiprocessors } }: Pick<DiscoveredDevice, "description">,
  configured: number | undefined,
): number {
  if (configured !== undefined) return configured;
  return kind === "nvidia" ? multiprocessors * contextBytesPerMultiprocessor : 0;
}

/** The number of devices that fit into a ticket. */
const maxDevices = 32;
const probeTimeoutMs = 60_000;

/**
 * Asks each driver library for its devices, in the order given.
 *
 * @throws MILLPOND_E_DRIVER when a library does not work, when there is no device, or when two have the same UUID.
 */
export async function discoverDevices(options: {
  readonly worker: string;
  readonly drivers: readonly string[];
  readonly containment: WorkerContainment;
}): Promise<readonly DiscoveredDevice[]> {
  const devices: DiscoveredDevice[] = [];
  for (const driver of options.drivers) {
    const probe = await probeOne(options.worker, driver, options.containment);
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
