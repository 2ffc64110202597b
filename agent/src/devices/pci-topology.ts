// SPDX-License-Identifier: Apache-2.0

// Where a PCI device sits in its machine, as the kernel shows it.

import { readFileSync, realpathSync } from "node:fs";
import { join } from "node:path";

export interface PciTopology {
  /** Number of the NUMA node to which it is attached; empty: unknown, or there is only one. */
  readonly numaNode: string;
  /** PCI address of the switch above it; empty: unknown, or there is none. */
  readonly pcieSwitch: string;
}

const pciAddress = /^[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$/;

/**
 * Reads where a PCI device is attached. A member that is not known is empty: a container may hide it, a software GPU has
 * none.
 *
 * @param busId as the driver gives it, `0000:01:00.0` or `00000000:01:00.0`, in either case
 * @param root where the kernel shows its devices
 */
export function readPciTopology(busId: string, root = "/sys/bus/pci/devices"): PciTopology {
  // The driver pads the domain to eight digits where the kernel has four.
  const address = busId.toLowerCase().replace(/^0000(?=[0-9a-f]{4}:)/, "");
  if (!pciAddress.test(address)) {
    return { numaNode: "", pcieSwitch: "" };
  }
  const directory = join(root, address);
  const numaNode = readOr(() => readFileSync(join(directory, "numa_node"), "utf8").trim());
  // Bridge by bridge from the root complex: …/root port/switch, its upper side/switch, its lower side/device.
  const path = readOr(() => realpathSync(directory)).split("/");
  const above = path.at(-3) ?? "";
  return {
    numaNode: /^\d+$/.test(numaNode) ? numaNode : "",
    pcieSwitch: pciAddress.test(above) ? above : "",
  };
}

function readOr(read: () => string): string {
  try {
    return read();
  } catch {
    // A file that is missing or hidden means "not known" here.
    return "";
  }
}
