// SPDX-License-Identifier: Apache-2.0

// Which devices of a node have fast links to each other.

/** Where a device is attached, as far as its node reports it. Equal values mean the same place. */
export interface Topology {
  /** Devices with the same value reach each other over NVLink. */
  readonly nvlinkDomain?: string;
  /** Devices with the same value are below one PCIe switch. */
  readonly pcieSwitch?: string;
  /** Devices with the same value are attached to one NUMA node. */
  readonly numaNode?: string;
}

interface Placed {
  readonly topology?: Topology | undefined;
}

/** Distance of two devices: 0 NVLink or unknown; 1 one switch; 2 one NUMA node; 3 farther. */
function distance({ topology: a }: Placed, { topology: b }: Placed): number {
  if (a === undefined || b === undefined) {
    return 0;
  }
  if (a.nvlinkDomain !== undefined && a.nvlinkDomain === b.nvlinkDomain) {
    return 0;
  }
  if (a.pcieSwitch !== undefined && a.pcieSwitch === b.pcieSwitch) {
    return 1;
  }
  return a.numaNode !== undefined && a.numaNode === b.numaNode ? 2 : 3;
}

/** The sum of the distances between all of them. */
export function spanOf(devices: readonly Placed[]): number {
  return devices.reduce(
    (sum, device, position) =>
      sum + devices.slice(position + 1).reduce((rest, other) => rest + distance(device, other), 0),
    0,
  );
}

/**
 * `count` devices that are as close together as possible, found by growing a group around each device; among equally close
 * groups the one whose members rank first.
 *
 * @param ranked the candidates, best first
 * @returns in the order of `ranked`; undefined when there are too few
 */
export function closest<T extends Placed>(ranked: readonly T[], count: number): readonly T[] | undefined {
  if (ranked.length < count) {
    return undefined;
  }
  if (count === 1 || ranked.every(({ topology }) => topology === undefined)) {
    return ranked.slice(0, count);
  }
  let best: readonly T[] = [];
  let bestSpan = Number.POSITIVE_INFINITY;
  for (const seed of ranked) {
    const group = [seed];
    const rest = ranked.filter((each) => each !== seed);
    while (group.length < count) {
      const added = rest.map((each) => group.reduce((sum, member) => sum + distance(each, member), 0));
      const [nearest] = rest.splice(added.indexOf(Math.min(...added)), 1);
      group.push(nearest as T);
    }
    const span = spanOf(group);
    if (span < bestSpan) {
      bestSpan = span;
      best = group;
    }
  }
  return ranked.filter((each) => best.includes(each));
}
