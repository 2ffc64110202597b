// SPDX-License-Identifier: Apache-2.0

// The part of an agent's report that a restored state must adopt before the controller may answer.

import { errorCodeOf, maxTicketSpecLength, type TicketPayload } from "@millpond/api";
import { type ClaimSpec, defaultClaimSpec } from "../domain/claim-spec.ts";
import type { AgentReport } from "../domain/agent-report.ts";
import type { ClaimRecord } from "../domain/records.ts";
import type { Pool } from "../pool/pool.ts";
import { adopt, isMissingFromBackup, type TicketedSession } from "../reconcile/adopt.ts";
import type { Restoration } from "../state/store.ts";
import type { Transaction } from "../state/transaction.ts";
import { readMembers, writeMembers } from "../domain/members.ts";

/**
 * Reads a ticket of this pool, even an expired one.
 *
 * @throws MILLPOND_E_TICKET_INVALID
 */
export type ReadTicket = (ticket: string) => TicketPayload;

/** Minimal lease of an adopted claim. */
const leastLeaseSeconds = 30;

/** The sessions of a report that run on allocations made after the backup. */
export class AdoptionPlan {
  readonly #node: string;
  readonly #restoration: Restoration | undefined;
  readonly #sessions: readonly TicketedSession[];

  private constructor(
    node: string,
    restoration: Restoration | undefined,
    sessions: readonly TicketedSession[],
  ) {
    this.#node = node;
    this.#restoration = restoration;
    this.#sessions = sessions;
  }

  /** Undefined when the state was never restored, or the agent has obeyed a controller since. */
  static of(
    { ledger: { restoration } }: Pool,
    { node, knownTerm, sessions }: AgentReport,
    readTicket: ReadTicket,
  ): AdoptionPlan {
    if (restoration === undefined || knownTerm > restoration.resumedAt) {
      return new AdoptionPlan(node, undefined, []);
    }
    const ticketed = sessions.flatMap((facts): TicketedSession[] => {
      const ticket = facts.ticket === "" ? undefined : tryRead(facts.ticket, readTicket);
      const isIts =
        ticket?.session === facts.id &&
        ticket.claim === facts.claim &&
        ticket.epoch === facts.epoch &&
        ticket.node === node;
      return isIts ? [{ facts, ticket }] : [];
    });
    return new AdoptionPlan(node, restoration, ticketed);
  }

  /** Number of sessions on allocations unknown to the backup. */
  get adoptable(): number {
    const restoration = this.#restoration;
    return restoration === undefined
      ? 0
      : this.#sessions.filter(({ ticket }) => isMissingFromBackup(restoration, ticket.epoch)).length;
  }

  /** Whether an answer based on the present pool would end programs or resize them. */
  isUrgent(pool: Pool): boolean {
    return (
      this.#restoration !== undefined &&
      this.#sessions.length > 0 &&
      !(pool.liveness.of(this.#node)?.hasBeenAnswered ?? false)
    );
  }

  carryOut(pool: Pool, transaction: Transaction): void {
    const restoration = this.#restoration;
    if (restoration === undefined || this.#sessions.length === 0) {
      return;
    }
    const adopted = adopt(transaction, pool.observe(), {
      restoration,
      node: this.#node,
      sessions: this.#sessions,
      readSpec: readTicketSpec,
    });
    for (const { name, leaseSeconds } of adopted.claims) {
      pool.leases.renew(name, Math.max(leaseSeconds, leastLeaseSeconds));
    }
    for (const allocation of adopted.allocations) {
      pool.markTicketed(allocation);
    }
  }
}

function tryRead(text: string, readTicket: ReadTicket): TicketPayload | undefined {
  try {
    return readTicket(text);
  } catch (error) {
    // A session of another pool, which its agent has left. It is not adopted.
    if (errorCodeOf(error) === "MILLPOND_E_TICKET_INVALID") {
      return undefined;
    }
    throw error;
  }
}

/** Fields that belong to a claim's state, not to its request. */
const passing = ["name", "toldModels", "toldHost", "isNoticeFinal"] as const;

/** Members that may be long. */
const lists = ["models", "labels", "nodeLabels", "affinity", "antiAffinity"] as const;

/** At most this many devices fit into a ticket together with the claim's request. */
const mostDevices = 24;

/** The members that are kept when everything else would be too long. */
const least: ReadonlySet<keyof ClaimSpec> = new Set(["tenant", "queue"]);
const members = Object.keys(defaultClaimSpec) as (keyof ClaimSpec)[];

/**
 * A ticket's copy of its claim's request: all, all without lists, or only its owner; the longest that fits.
 */
export function ticketSpec(claim: ClaimRecord, devices: number): { readonly spec?: string } {
  const room = devices > mostDevices ? maxTicketSpecLength / 4 : maxTicketSpecLength / 2;
  const leftOut = [[...passing], [...passing, ...lists], members.filter((member) => !least.has(member))];
  const texts = leftOut.map((each) => writeMembers<ClaimSpec>(claim, defaultClaimSpec, each));
  const spec = texts.find((text) => JSON.stringify(text).length <= room);
  return spec === undefined ? {} : { spec };
}

function readTicketSpec({ claim: name, spec = "{}" }: TicketPayload): ClaimSpec {
  return { ...readMembers(spec, defaultClaimSpec), name };
}
