// SPDX-License-Identifier: Apache-2.0

// A unit is placed as a whole or not at all: a claim, or the waiting members of a gang.

import type { HolderRef } from "@millpond/api";
import { nodesForLabels, settleAffinity } from "../constraints.ts";
import { type Candidate, candidatesOn } from "../filter.ts";
import { place } from "../place.ts";
import { shapeOf } from "../request.ts";
import type { DeviceState, Snapshot } from "../snapshot.ts";
import { applyStatement, type Statement } from "../statement.ts";
import type { QueueSnapshot, RunningTotals, WaitingClaim } from "./claim.ts";
import { add, type Amount, amountOf, nothing } from "./quota.ts";
import { userKey } from "./tree.ts";

export interface Unit {
  /** `claim NAME` or `gang NAME`: unique. */
  readonly name: string;
  /** The same in structured form. */
  readonly holder: HolderRef;
  /** At least one, in order of arrival; all have the same queue, tenant, user and priority. */
  readonly members: readonly WaitingClaim[];
  readonly first: WaitingClaim;
  /** Since when it has waited and could have been placed. */
  readonly waitingSince: number;
  /** How many members have not arrived; 0 when it can be placed. */
  readonly missing: number;
}

/** The waiting claims as units, in order of arrival of their first member. */
export function makeUnits(
  waiting: readonly WaitingClaim[],
  { gangs: present }: Pick<RunningTotals, "gangs">,
): Unit[] {
  const sorted = waiting.toSorted((a, b) => a.arrival - b.arrival);
  const gangs = Map.groupBy(sorted, ({ gang }) => gang);
  const units: Unit[] = [];
  for (const claim of sorted) {
    const { gang, gangSize, waitingSince } = claim;
    const members = gang === "" ? [claim] : (gangs.get(gang) ?? []);
    if (members[0] !== claim) {
      continue;
    }
    const { tenant } = claim;
    const holder: HolderRef =
      gang === ""
        ? { kind: "claim", name: claim.request.claim, tenant }
        : { kind: "gang", name: gang, tenant };
    units.push({
      name: `${holder.kind} ${holder.name}`,
      holder,
      members,
      first: claim,
      waitingSince: members.reduce((latest, each) => Math.max(latest, each.waitingSince), waitingSince),
      missing: gang === "" ? 0 : Math.max(0, gangSize - members.length - (present.get(gang) ?? 0)),
    });
  }
  return units;
}

/** Places all members, or none. */
export function placeUnit(snapshot: Snapshot, unit: Unit): Statement[] | undefined {
  if (unit.members.length === 1 || !unit.first.isSameNode) {
    return placeAll(snapshot, unit.members);
  }
  for (const node of snapshot.nodes.toSorted((a, b) => (a.name < b.name ? -1 : 1))) {
    const statements = placeAll({ ...snapshot, nodes: [node] }, unit.members);
    if (statements !== undefined) {
      return statements;
    }
  }
  return undefined;
}

function placeAll(snapshot: Snapshot, members: readonly WaitingClaim[]): Statement[] | undefined {
  const best = placeEach(snapshot, members, placeOne);
  // The best devices for each member may leave too few for the last one: then devices are chosen that leave the most room.
  const isTangled = members.length > 1 && members.some(({ request }) => request.gpus > 1);
  return best === undefined && isTangled ? placeEach(snapshot, members, placeRoomily) : best;
}

function placeEach(
  snapshot: Snapshot,
  members: readonly WaitingClaim[],
  placeMember: typeof placeOne,
): Statement[] | undefined {
  const statements: Statement[] = [];
  let current = snapshot;
  for (const member of members) {
    const last = statements.at(-1);
    current = last === undefined ? snapshot : applyStatement(current, last);
    const statement = placeMember(current, member);
    if (statement === undefined) {
      return undefined;
    }
    statements.push(statement);
  }
  return statements;
}

function placeOne(snapshot: Snapshot, { request, preferredHost }: WaitingClaim): Statement | undefined {
  if (preferredHost !== "" && snapshot.nodes.some(({ bootId }) => bootId === preferredHost)) {
    const constraints = { ...request.constraints, onlyHost: preferredHost };
    const statement = place(snapshot, { ...request, constraints });
    if (statement !== undefined) {
      return statement;
    }
  }
  return place(snapshot, request);
}

/**
 * Places a claim on the devices of a node that have room for the most claims of its kind. When all members request the same,
 * they fit in this way if they fit at all, so the reservation of a gang is sufficient for it, wherever it would score best by
 * then.
 */
function placeRoomily({ nodes }: Snapshot, { request: asked }: WaitingClaim): Statement | undefined {
  const constraints = settleAffinity(asked.constraints, nodes);
  const request = constraints === undefined ? asked : { ...asked, constraints };
  const open = nodesForLabels(nodes, request.labels);
  for (const node of open.toSorted((a, b) => (a.name < b.name ? -1 : 1))) {
    const candidates = candidatesOn(node, request);
    if (candidates.length >= request.gpus) {
      const devices = candidates
        .map((candidate) => ({ ...candidate, count: countFitting(candidate) }))
        .sort((a, b) => b.count - a.count || a.device.index - b.device.index)
        .slice(0, request.gpus)
        .map(({ device: { uuid, index }, share }) => ({ uuid, index, ...share }))
        .sort((a, b) => a.index - b.index);
      const { claim, labels } = request;
      return { claim, node: node.name, devices, ...(labels === undefined ? {} : { labels }) };
    }
  }
  return undefined;
}

/** How many vGPUs of its size a device has room for. */
function countFitting({ device: { overheadBytes = 0n }, free, share }: Candidate): number {
  // The first one fits, and so does each of the others with its overhead.
  const byMemory = 1 + Number((free.memoryBytes - share.memoryBytes) / (share.memoryBytes + overheadBytes));
  return share.computePercent === 0
    ? byMemory
    : Math.min(byMemory, Math.floor(free.computePercent / share.computePercent));
}

/** The total amount that the statements hold. */
export function amountOfStatements(snapshot: Snapshot, statements: readonly Statement[]): Amount {
  // Statements are few, so searching for their nodes is cheaper than an index of all nodes.
  return statements.reduce((sum, statement) => {
    const node = snapshot.nodes.find(({ name }) => name === statement.node);
    return add(sum, amountOn(node, statement));
  }, nothing);
}

/** Sums over the running claims. */
export function totalsOf(snapshot: Pick<QueueSnapshot, "pool" | "running" | "totals">): RunningTotals {
  if (snapshot.totals !== undefined) {
    return snapshot.totals;
  }
  const nodes = new Map(snapshot.pool.nodes.map((node) => [node.name, node]));
  const queues = new Map<string, Amount>();
  const firm = new Map<string, Amount>();
  const tenants = new Map<string, Amount>();
  const users = new Map<string, Amount>();
  const gangs = new Map<string, number>();
  for (const { queue, tenant, user, gang, isPreemptible, statement } of snapshot.running) {
    const amount = amountOn(nodes.get(statement.node), statement);
    queues.set(queue, add(queues.get(queue) ?? nothing, amount));
    if (!isPreemptible) {
      firm.set(queue, add(firm.get(queue) ?? nothing, amount));
    }
    tenants.set(tenant, add(tenants.get(tenant) ?? nothing, amount));
    if (user !== "") {
      const key = userKey({ tenant, user });
      users.set(key, add(users.get(key) ?? nothing, amount));
    }
    if (gang !== "") {
      gangs.set(gang, (gangs.get(gang) ?? 0) + 1);
    }
  }
  return { queues, firm, tenants, users, gangs };
}

interface DeviceSizes {
  readonly devices: readonly Pick<DeviceState, "uuid" | "memoryBytes">[];
}

const amounts = new WeakMap<
  Statement["devices"],
  { readonly devices: DeviceSizes["devices"] | undefined; readonly amount: Amount }
>();

/** The amount that a statement holds of its node. A missing device counts as if the vGPU filled it. */
export function amountOn(node: DeviceSizes | undefined, statement: Pick<Statement, "devices">): Amount {
  const known = amounts.get(statement.devices);
  if (known !== undefined && known.devices === node?.devices) {
    return known.amount;
  }
  const amount = computeAmount(node, statement);
  amounts.set(statement.devices, { devices: node?.devices, amount });
  return amount;
}

function computeAmount(node: DeviceSizes | undefined, { devices }: Pick<Statement, "devices">): Amount {
  return amountOf(
    devices.map(({ uuid, memoryBytes, computePercent }) => ({
      memoryBytes,
      computePercent,
      deviceMemoryBytes: node?.devices.find((device) => device.uuid === uuid)?.memoryBytes ?? memoryBytes,
    })),
  );
}

/** Units with the same shape fit into the same pools. */
export function shapeOfUnit({ members, first }: Unit): string {
  const shapes = members.map(({ request, preferredHost }) => `${preferredHost} ${shapeOf(request)}`);
  return `${first.isSameNode} ${shapes.join(" ")}`;
}
