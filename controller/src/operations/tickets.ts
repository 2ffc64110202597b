// SPDX-License-Identifier: Apache-2.0

// Tickets for claims: programs need them to open a session, or to query an agent about their claim.

import { randomUUID } from "node:crypto";
import {
  countOf,
  maxSessionsPerDevice,
  millpondError,
  reason,
  refusal,
  signTicket,
  signViewTicket,
  ticketLifetimeSeconds,
} from "@millpond/api";
import type { ClientFacts } from "../agents/node-liveness.ts";
import type { KeyRing } from "../auth/key-ring.ts";
import { seesAll, type Visibility } from "../auth/visibility.ts";
import { openSessions, unusedTickets } from "../domain/observed-state.ts";
import { type AllocationRecord, type ClaimRecord, isLive } from "../domain/records.ts";
import { usableSizes } from "../domain/session-sizes.ts";
import type { Pool } from "../pool/pool.ts";
import { unixSeconds } from "../timers/clock.ts";
import { ticketSpec } from "./adopt-sessions.ts";
import { hasEnded, renew, requireClaim } from "./claims.ts";

/** How long a ticket waits for its agent to receive the current key, after earlier ones were revoked. */
const keyPatienceMs = 5_000;

/** Signs with a key that the agent has. */
export type TicketSigner = Pick<KeyRing, "signer">;

export interface Ticket {
  readonly ticket: string;
  readonly agentUrl: string;
  readonly session: string;
}

export interface CreateTicketOptions {
  readonly client: ClientFacts;
  readonly signal: AbortSignal;
  /**
   * Session of the client's last ticket, with which it could not reach the agent. The new ticket is for that session while
   * none was opened with it: the agent accepts only one ticket of a session. Default: a session of its own.
   */
  readonly unopened?: string;
  /** For which claims the caller may get tickets. Default: all. */
  readonly sees?: Visibility;
}

/**
 * Creates a ticket for one session.
 *
 * @throws MILLPOND_E_NOT_FOUND, MILLPOND_E_CLAIM_NOT_BOUND, MILLPOND_E_CLAIM_ENDED, MILLPOND_E_NODE_NOT_READY,
 *   MILLPOND_E_DEVICE_UNHEALTHY, MILLPOND_E_TOO_MANY_SESSIONS; the signal's reason when that is aborted
 */
export async function createTicket(
  pool: Pool,
  keys: TicketSigner,
  name: string,
  { client, signal, unopened = "", sees = seesAll }: CreateTicketOptions,
): Promise<Ticket> {
  const endMs = pool.clock.monotonicMs() + keyPatienceMs;
  for (;;) {
    const outcome = await tryTicket(pool, keys, name, { client, unopened, sees });
    if (!("keyless" in outcome)) {
      return outcome;
    }
    const { keyless: node } = outcome;
    const wake = await pool.nodeWatchers.wait(node, endMs - pool.clock.monotonicMs(), signal);
    if (wake === "aborted") {
      throw signal.reason;
    }
    if (wake === "timeout") {
      throw millpondError(
        "MILLPOND_E_NODE_NOT_READY",
        `the agent of node ${node} has not received the current signing key yet`,
        { remedy: "Try again in a few seconds; see `millpond get nodes` where that does not help." },
      );
    }
  }
}

async function tryTicket(
  pool: Pool,
  keys: TicketSigner,
  name: string,
  { client, unopened, sees }: Required<Omit<CreateTicketOptions, "signal">>,
): Promise<Ticket | { readonly keyless: string }> {
  // Between changes, so that no pending change that ends the claim relies on there being no ticket.
  return await pool.ledger.read(() => {
    const claim = requireClaim(pool, name, sees);
    // Before all else: even a request that is refused because the node is not ready shows that the claim is in use.
    renew(pool, claim);
    const allocation = requireAllocation(pool, claim);
    const { description, ticketKeys } = requireReadyNode(pool, allocation);
    const { agentUrl } = description;
    const isAgain = pool.liveness.unusedTickets.get(unopened)?.epoch === allocation.epoch;
    if (!isAgain) refuseTooManySessions(pool, allocation);
    const key = keys.signer(ticketKeys);
    if (key === undefined) {
      return { keyless: allocation.node };
    }
    const session = isAgain ? unopened : randomUUID();
    const issued = unixSeconds(pool.clock);
    const ticket = signTicket(
      {
        session,
        claim: name,
        tenant: claim.tenant,
        ...ticketGrant(allocation),
        ...(allocation.sizeRevision === 0 ? {} : { sizeRevision: allocation.sizeRevision }),
        serviceClass: claim.serviceClass,
        ...(claim.priority === 0 ? {} : { priority: claim.priority }),
        ...(claim.lazyIdleSeconds === 0 ? {} : { parkAfterSeconds: claim.lazyIdleSeconds }),
        ...ticketSpec(claim, allocation.devices.length),
        term: pool.ledger.term,
        order: pool.nextOrder(),
        issued,
        expires: issued + ticketLifetimeSeconds,
      },
      key,
    );
    pool.liveness.expectSession(session, { epoch: allocation.epoch, node: allocation.node, client });
    pool.markTicketed(allocation);
    return { ticket, agentUrl, session };
  });
}

/** Lets a program query the agent of a node about a claim. */
export interface View {
  readonly claim: ClaimRecord;
  /** Absent while the claim is not bound, or its node's agent is not in contact or lacks the current signing key. */
  readonly pass?: Pick<Ticket, "ticket" | "agentUrl">;
}

/**
 * Reads a claim and makes a view ticket for it. A viewer does not use the claim: no lease is renewed.
 *
 * @throws MILLPOND_E_NOT_FOUND
 */
export function viewClaim(pool: Pool, keys: TicketSigner, name: string, sees: Visibility = seesAll): View {
  const claim = requireClaim(pool, name, sees);
  const allocation = isLive(claim) ? pool.ledger.allocations.ofClaim(name) : undefined;
  const presence = allocation === undefined ? undefined : pool.liveness.of(allocation.node);
  if (allocation === undefined || presence === undefined || !presence.isReady) return { claim };
  const key = keys.signer(presence.ticketKeys);
  if (key === undefined) return { claim };
  const issued = unixSeconds(pool.clock);
  const grant = {
    claim: name,
    ...ticketGrant(allocation),
    term: pool.ledger.term,
    order: pool.nextOrder(),
    issued,
    expires: issued + ticketLifetimeSeconds,
  };
  return { claim, pass: { ticket: signViewTicket(grant, key), agentUrl: presence.description.agentUrl } };
}

function ticketGrant(allocation: AllocationRecord) {
  return {
    node: allocation.node,
    epoch: allocation.epoch,
    devices: usableSizes(allocation).map(({ uuid, memoryBytes, computePercent }) => ({
      uuid,
      memoryBytes: Number(memoryBytes),
      computePercent,
    })),
  };
}

function requireAllocation(pool: Pool, claim: ClaimRecord): AllocationRecord {
  if (!isLive(claim)) {
    throw hasEnded(claim);
  }
  const allocation = pool.ledger.allocations.ofClaim(claim.name);
  if (allocation === undefined) {
    const isDormant = claim.state === "dormant";
    const why = isDormant ? claim.reason : pool.waiting.of(claim.name)?.reason;
    throw refusal(
      "MILLPOND_E_CLAIM_NOT_BOUND",
      reason(isDormant ? "claim-dormant" : "claim-waits", {
        claim: claim.name,
        reason: why ?? reason("not-planned-yet"),
      }),
    );
  }
  return allocation;
}

/**
 * The agent, which counts exactly, would refuse these anyway. Sessions that just ended may not be reported
 * yet, so twice as many are allowed here.
 */
function refuseTooManySessions(pool: Pool, allocation: AllocationRecord): void {
  const { claim, epoch, devices } = allocation;
  const observed = pool.observe();
  const open = openSessions(observed, allocation);
  const unused = unusedTickets(observed, epoch);
  const limit = maxSessionsPerDevice * devices.length;
  if (open + unused >= 2 * limit) {
    throw millpondError(
      "MILLPOND_E_TOO_MANY_SESSIONS",
      `the claim ${claim} has ${countOf(open, "session")} and ${countOf(unused, "ticket")} that may still open one; with ${countOf(devices.length, "vGPU")} it may have ${limit} sessions`,
    );
  }
}

function requireReadyNode(pool: Pool, allocation: AllocationRecord) {
  const { node, claim } = allocation;
  const liveness = pool.liveness.of(node);
  if (liveness === undefined || !liveness.isReady) {
    const since =
      liveness === undefined
        ? "since the controller started"
        : `for ${Math.round((pool.clock.monotonicMs() - liveness.lastContactMs) / 1000)} s`;
    throw millpondError(
      "MILLPOND_E_NODE_NOT_READY",
      `node ${node} of claim ${claim} has been silent ${since}`,
    );
  }
  const uuids = new Set(allocation.devices.map(({ uuid }) => uuid));
  const ill = pool.ledger.nodes
    .get(node)
    ?.devices.find(({ uuid, isHealthy }) => uuids.has(uuid) && !isHealthy);
  if (ill !== undefined) {
    throw millpondError(
      "MILLPOND_E_DEVICE_UNHEALTHY",
      `device ${node}/${ill.index} of claim ${claim} is unhealthy: ${ill.healthReason}`,
    );
  }
  return liveness;
}
