// SPDX-License-Identifier: Apache-2.0

// A given share of a large device is more memory than the same share of a small one, and a given number of bytes is a greater
// share of a small device. If devices differ, a quota may therefore allow a unit on some of them only.

import { shareOf } from "../request.ts";
import type { Snapshot } from "../snapshot.ts";
import { type Amount, amountOf } from "./quota.ts";
import type { Unit } from "./unit.ts";

/**
 * The pool in which the devices are closed whose size would take the unit beyond its quota.
 *
 * @returns undefined when this applies to all sizes, or to none
 */
export function onAllowedSizes(
  pool: Snapshot,
  unit: Unit,
  isAllowed: (amount: Amount) => boolean,
): Snapshot | undefined {
  const sizes = new Map<bigint, boolean>();
  for (const { devices } of pool.nodes) {
    for (const { memoryBytes } of devices) {
      if (!sizes.has(memoryBytes)) {
        sizes.set(memoryBytes, isAllowed(amountOnSize(unit, memoryBytes)));
      }
    }
  }
  const verdicts = new Set(sizes.values());
  if (!verdicts.has(true) || !verdicts.has(false)) {
    return undefined;
  }
  return {
    ...pool,
    nodes: pool.nodes.map((node) => {
      const isClosed = ({ memoryBytes }: { readonly memoryBytes: bigint }) =>
        sizes.get(memoryBytes) === false;
      return node.devices.some(isClosed)
        ? {
            ...node,
            devices: node.devices.map((each) => (isClosed(each) ? { ...each, isCordoned: true } : each)),
          }
        : node;
    }),
  };
}

/** The amount of the unit if all of it were placed on devices of one size. */
function amountOnSize({ members }: Unit, deviceMemoryBytes: bigint): Amount {
  return amountOf(
    members.flatMap(({ request }) => {
      const share = shareOf(request, { memoryBytes: deviceMemoryBytes });
      return Array.from({ length: request.gpus }, () => ({ ...share, deviceMemoryBytes }));
    }),
  );
}
