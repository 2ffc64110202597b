// SPDX-License-Identifier: Apache-2.0

// A share of a large device is more memory than the same share of a small one, and so many bytes are a greater share of
// a small one: where devices differ, a quota may allow a unit on some of them only.

import { shareOf } from "../request.ts";
import type { Snapshot } from "../snapshot.ts";
import { type Amount, amountOf } from "./quota.ts";
import type { Unit } from "./unit.ts";

/**
 * The pool as if devices were closed of a size on which the unit may not have what it asks for.
 *
 * @returns undefined when that is so of all sizes, or of none
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

/** What the unit would have if all of it lay on devices of one size. */
function amountOnSize({ members }: Unit, deviceMemoryBytes: bigint): Amount {
  return amountOf(
    members.flatMap(({ request }) => {
      const share = shareOf(request, { memoryBytes: deviceMemoryBytes });
      return Array.from({ length: request.gpus }, () => ({ ...share, deviceMemoryBytes }));
    }),
  );
}
