// SPDX-License-Identifier: Apache-2.0

// The expected ends on each node, in order. Results are cached by the holdings of a node.

import type { Holdings, QueueSnapshot, RunningClaim } from "./claim.ts";
import type { Statement } from "../statement.ts";

/** A claim, or a released allocation, that will free what it holds. */
export interface Ending {
  readonly statement: Statement;
  /** Null: unknown. */
  readonly endsAt: number | null;
  /** Among unknown ends, the claim that began first is expected to end first. */
  readonly beganAt: number;
}

/** By the name of a node, in the expected order. */
export type EndingsOn = (node: string) => readonly Ending[];

/** Derived from the holdings of a node. */
interface Outlook {
  readonly endings: readonly Ending[];
  /** Released allocations, and claims that have been given notice. */
  readonly noticed: readonly Ending[];
  /** Running claims that have been given notice. */
  readonly ending: readonly RunningClaim[];
  /** Running claims that may be preempted, except those with notice; gangs as a whole. */
  readonly takeable: readonly RunningClaim[];
  /** When the last of the running claims was bound. */
  readonly lastBoundAt: number;
}

const nothing: Holdings = { running: [], leftovers: [] };
const none: readonly Ending[] = [];
const outlooks = new WeakMap<Holdings, Outlook>();

/** The holdings of the snapshot, by the name of a node. */
export function holdingsOf(
  snapshot: Pick<QueueSnapshot, "running" | "leftovers" | "holdings">,
): (node: string) => Holdings {
  if (snapshot.holdings !== undefined) {
    return snapshot.holdings;
  }
  const { running, leftovers } = snapshot;
  const known = new Map<string, { running: RunningClaim[]; leftovers: Holdings["leftovers"][number][] }>();
  const entry = (node: string) => {
    const own = known.get(node) ?? { running: [], leftovers: [] };
    known.set(node, own);
    return own;
  };
  for (const each of running) {
    entry(each.statement.node).running.push(each);
  }
  for (const each of leftovers) {
    entry(each.statement.node).leftovers.push(each);
  }
  return (node) => known.get(node) ?? nothing;
}

/** Known ends by time, then unknown ones, oldest first. */
export function compareEndings(a: Ending, b: Ending): number {
  const [first, second] = [a.endsAt ?? Number.POSITIVE_INFINITY, b.endsAt ?? Number.POSITIVE_INFINITY];
  if (first !== second) {
    return first - second;
  }
  return a.beganAt - b.beganAt || (a.statement.claim < b.statement.claim ? -1 : 1);
}

export function outlookOf(holdings: Holdings): Outlook {
  let outlook = outlooks.get(holdings);
  if (outlook === undefined) {
    outlook = makeOutlook(holdings);
    outlooks.set(holdings, outlook);
  }
  return outlook;
}

function makeOutlook({ running, leftovers }: Holdings): Outlook {
  const all = [
    ...running.map(({ statement, endsAt, boundAt, isEnding }) => ({
      isNoticed: isEnding,
      ending: { statement, endsAt, beganAt: boundAt },
    })),
    ...leftovers.map(({ statement, endsAt }) => ({
      isNoticed: endsAt !== null,
      ending: { statement, endsAt, beganAt: 0 },
    })),
  ].sort((a, b) => compareEndings(a.ending, b.ending));
  const noticed = all.filter(({ isNoticed }) => isNoticed).map(({ ending }) => ending);
  return {
    endings: all.length === 0 ? none : all.map(({ ending }) => ending),
    noticed: noticed.length === 0 ? none : noticed,
    ending: running.filter(({ isEnding }) => isEnding),
    takeable: running.filter((claim) => claim.gang !== "" || canBePreempted(claim)),
    lastBoundAt: running.reduce((last, { boundAt }) => Math.max(last, boundAt), Number.NEGATIVE_INFINITY),
  };
}

export function canBePreempted({ isEnding, isPreemptible, isBestEffort }: RunningClaim): boolean {
  return !isEnding && (isPreemptible || isBestEffort);
}
