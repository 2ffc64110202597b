// SPDX-License-Identifier: Apache-2.0

// A state restored from a backup lacks later grants, while programs continue to run. Allocations of their sessions are
// adopted from the reports of agents, and replace the backup's allocations on the same devices.

import { reason, type TicketPayload } from "@millpond/api";
import { requeueClaim } from "./claim-lifecycle.ts";
import { makeDefaultQueue } from "../domain/default-queue.ts";
import {
  type ClaimSpec,
  defaultClaimSpec,
  defaultQueueName,
  defaultTenantName,
} from "../domain/claim-spec.ts";
import type { SessionFacts } from "../domain/agent-report.ts";
import { openSessions, type ObservedState } from "../domain/observed-state.ts";
import {
  type AllocationRecord,
  type ClaimRecord,
  isLive,
  type NodeRecord,
  type VirtualGpuRecord,
} from "../domain/records.ts";
import { combineSizes, usableSizes } from "../domain/session-sizes.ts";
import type { Restoration } from "../state/store.ts";
import type { Transaction } from "../state/transaction.ts";

/** A running session with the ticket of this pool that opened it. */
export interface TicketedSession {
  readonly facts: SessionFacts;
  readonly ticket: TicketPayload;
}

/** The report of an agent that has obeyed no controller since the restore. */
export interface RestoreReport {
  readonly restoration: Restoration;
  readonly node: string;
  readonly sessions: readonly TicketedSession[];
  /** The spec of the claim in a ticket. */
  readonly readSpec: (ticket: TicketPayload) => ClaimSpec;
}

/** Whether the restored state cannot contain an allocation: it was granted after the backup and before the restore. */
export function isMissingFromBackup({ epoch, resumedAt }: Restoration, granted: number): boolean {
  return granted > epoch && granted <= resumedAt;
}

/** @returns the claims that were adopted, and the allocations whose sizes were taken over */
export function adopt(
  transaction: Transaction,
  observed: ObservedState,
  testimony: RestoreReport,
): { readonly claims: readonly ClaimRecord[]; readonly allocations: readonly AllocationRecord[] } {
  const { restoration, node, sessions } = testimony;
  const claims: ClaimRecord[] = [];
  const allocations: AllocationRecord[] = [];
  const byEpoch = Map.groupBy(sessions, ({ ticket }) => ticket.epoch);
  // In the order in which they were granted: a later grant used the capacity that earlier ones left.
  for (const [epoch, own] of [...byEpoch].toSorted(([a], [b]) => a - b)) {
    const known = transaction.allocations.get(epoch);
    const [first] = own;
    if (first === undefined) {
      continue;
    }
    if (known !== undefined) {
      if (known.releasedRevision === null && known.node === node) {
        takeSizes(transaction, observed, known, sizesOf(own));
      }
      continue;
    }
    if (!isMissingFromBackup(restoration, epoch)) {
      continue;
    }
    const refused = refusalOf(transaction, observed, testimony, first.ticket, sizesOf(own));
    if (refused !== undefined) {
      const text = reason("not-adopted", { session: first.facts.id, text: refused });
      transaction.addEvent("ClaimNotAdopted", `node/${node}`, text);
      continue;
    }
    const adopted = adoptClaim(transaction, observed, testimony, own);
    claims.push(adopted.claim);
    allocations.push(adopted.allocation);
  }
  return { claims, allocations };
}

/** The limits that the workers of an allocation enforce: during a resize, the larger ones. */
function sizesOf(sessions: readonly TicketedSession[]): readonly VirtualGpuRecord[] {
  const of = ({ facts, ticket }: TicketedSession) =>
    ticket.devices.map(({ uuid, memoryBytes, computePercent }) => {
      const { limits } = facts;
      return limits.get(uuid) ?? { uuid, memoryBytes: BigInt(memoryBytes), computePercent };
    });
  return sessions.map(of).reduce((all, own) => combineSizes(all, own, "greater"));
}

/** An allocation that the backup contains, and that has been resized since. */
function takeSizes(
  transaction: Transaction,
  observed: ObservedState,
  known: AllocationRecord,
  sizes: readonly VirtualGpuRecord[],
): void {
  const claim = transaction.claim(known.claim);
  if (claim === undefined || isSame(usableSizes(known), sizes)) {
    return;
  }
  if (!makeRoom(transaction, observed, { node: known.node, own: known, sizes })) {
    return;
  }
  const devices = known.devices.map((device) => sizes.find(({ uuid }) => uuid === device.uuid) ?? device);
  transaction.putAllocation({
    ...known,
    devices,
    resizing: null,
    sizeRevision: transaction.revision,
  });
  transaction.putClaim({ ...claim, ...askedOf(devices) });
}

/** Why an unknown session cannot be adopted; undefined: it can be. */
function refusalOf(
  transaction: Transaction,
  observed: ObservedState,
  { restoration, node }: RestoreReport,
  ticket: TicketPayload,
  sizes: readonly VirtualGpuRecord[],
): string | undefined {
  const claim = transaction.claim(ticket.claim);
  const held = transaction.allocation(ticket.claim);
  const isNew = claim !== undefined && isLive(claim) && claim.arrival > restoration.resumedAt;
  if (isNew || (held !== undefined && held.epoch > restoration.resumedAt)) {
    return `claim ${ticket.claim} has been granted again since the state was restored`;
  }
  const missing = sizes.find(
    ({ uuid }) => !transaction.nodes.get(node)?.devices.some((device) => device.uuid === uuid),
  );
  if (missing !== undefined) {
    return `its device ${missing.uuid} is missing`;
  }
  return makeRoom(transaction, observed, { node, own: held, sizes })
    ? undefined
    : "other programs use its devices";
}

function adoptClaim(
  transaction: Transaction,
  observed: ObservedState,
  { restoration, node, readSpec }: RestoreReport,
  sessions: readonly TicketedSession[],
): { readonly claim: ClaimRecord; readonly allocation: AllocationRecord } {
  const tickets = sessions.map(({ ticket }) => ticket);
  const [ticket] = tickets;
  if (ticket === undefined) {
    throw new RangeError("an adopted claim has at least one session");
  }
  const { claim: name, epoch } = ticket;
  const devices = sizesOf(sessions);
  const before = transaction.allocation(name);
  if (before !== undefined) {
    // Its allocation in the backup was released before this one was granted.
    leave(transaction, observed, before);
  }
  const spec = readSpec(ticket);
  const known = transaction.claim(name);
  const isKnown =
    known !== undefined && isLive(known) && known.tenant === spec.tenant && known.owner === spec.owner;
  const isAsAsked = isSame(
    devices,
    ticket.devices.map((each) => ({ ...each, memoryBytes: BigInt(each.memoryBytes) })),
  );
  addMissing(transaction, spec);
  const { now } = transaction;
  const grantedAt = Math.min(now, ...tickets.map(({ issued }) => issued));
  const claim = transaction.putClaim({
    ...(isKnown
      ? known
      : {
          ...spec,
          name,
          // After the claims of the backup and before newer ones, in the order in which they were granted.
          arrival: restoration.resumedAt - adoptedArrivals + (epoch - restoration.epoch),
          version: transaction.revision,
          createdAt: grantedAt,
          endedAt: null,
          requeues: 0,
        }),
    ...(isAsAsked ? {} : askedOf(devices)),
    gpus: devices.length,
    state: "bound",
    reason: undefined,
    boundAt: grantedAt,
    waitingSince: null,
    preemptAt: null,
    isNoticeFinal: false,
  });
  const allocation: AllocationRecord = {
    claim: name,
    node,
    epoch,
    grantedAt,
    activeSeconds: 0,
    countedMs: 0,
    releasedRevision: null,
    sizeRevision: 0,
    resizing: null,
    devices,
  };
  transaction.putAllocation(allocation);
  const names = namesOf(transaction.nodes.get(node), devices);
  transaction.addEvent("ClaimAdopted", `claim/${name}`, reason("adopted", { devices: names }));
  return { claim, allocation };
}

/** A restore advances revisions by more than this, which leaves unused numbers for the order of arrival of adopted claims. */
export const adoptedArrivals = 1_000_000_000;

/** If the claim was created after the backup, so may have been its tenant and its queue. */
function addMissing(transaction: Transaction, { tenant, queue }: ClaimSpec): void {
  if (tenant !== defaultTenantName && transaction.tenants.get(tenant) === undefined) {
    transaction.tenants.set(tenant, { name: tenant, limit: {} });
  }
  if (queue !== defaultQueueName && transaction.queues.get(queue) === undefined) {
    transaction.queues.set(queue, makeDefaultQueue(queue));
  }
}

/**
 * Takes the capacity for the sizes from claims of the backup without running sessions: they had released it before it
 * was granted to the running sessions.
 *
 * @returns whether the sizes fit afterwards
 */
function makeRoom(
  transaction: Transaction,
  observed: ObservedState,
  {
    node,
    own,
    sizes,
  }: {
    readonly node: string;
    /** The allocation of the same claim. */
    readonly own: AllocationRecord | undefined;
    readonly sizes: readonly VirtualGpuRecord[];
  },
): boolean {
  const others = () => transaction.allocations.onNode(node).filter(({ epoch }) => epoch !== own?.epoch);
  const record = transaction.nodes.get(node);
  for (const idle of others().toSorted((a, b) => a.epoch - b.epoch)) {
    if (fits(record, others(), sizes)) {
      return true;
    }
    const shares = idle.devices.some(({ uuid }) => sizes.some((size) => size.uuid === uuid));
    if (shares && openSessions(observed, idle) === 0) {
      leave(transaction, observed, idle);
    }
  }
  return fits(record, others(), sizes);
}

/** Releases an allocation of the backup that had been released after the backup was made. */
function leave(transaction: Transaction, observed: ObservedState, allocation: AllocationRecord): void {
  const claim = transaction.claim(allocation.claim);
  const [device] = namesOf(transaction.nodes.get(allocation.node), allocation.devices);
  if (claim !== undefined && transaction.allocation(allocation.claim)?.epoch === allocation.epoch) {
    requeueClaim(transaction, observed, claim, reason("granted-to-others", { device: device ?? "" }));
  }
  const left = transaction.allocations.get(allocation.epoch);
  const isHere = observed.nodes.get(allocation.node)?.isReady ?? false;
  if (left !== undefined && isHere && openSessions(observed, left) === 0) {
    transaction.removeAllocation(left);
  }
}

function fits(
  node: NodeRecord | undefined,
  others: readonly AllocationRecord[],
  sizes: readonly VirtualGpuRecord[],
): boolean {
  return sizes.every(({ uuid, memoryBytes, computePercent }) => {
    const device = node?.devices.find((each) => each.uuid === uuid);
    const taken = others.flatMap(({ devices }) => devices.filter((each) => each.uuid === uuid));
    const memory = taken.reduce((sum, each) => sum + each.memoryBytes, memoryBytes);
    const compute = taken.reduce((sum, each) => sum + each.computePercent, computePercent);
    return device !== undefined && memory <= device.memoryBytes && compute <= 100;
  });
}

function isSame(these: readonly VirtualGpuRecord[], others: readonly VirtualGpuRecord[]): boolean {
  return these.every(({ uuid, memoryBytes, computePercent }) => {
    const other = others.find((each) => each.uuid === uuid);
    return other?.memoryBytes === memoryBytes && other.computePercent === computePercent;
  });
}

/** The request that corresponds to a claim with these vGPUs. */
function askedOf([device]: readonly VirtualGpuRecord[]): Pick<
  ClaimSpec,
  "memoryBytes" | "memoryPercent" | "computePercent"
> {
  const { memoryBytes, computePercent } = device ?? defaultClaimSpec;
  return { memoryBytes, memoryPercent: 0, computePercent };
}

function namesOf(node: NodeRecord | undefined, devices: readonly VirtualGpuRecord[]): string[] {
  return devices.map(({ uuid }) => {
    const device = node?.devices.find((each) => each.uuid === uuid);
    return device === undefined ? uuid : `${node?.name}/${device.index}`;
  });
}
