// SPDX-License-Identifier: Apache-2.0

import {
  type Allocation,
  type FindKeys,
  millpondError,
  serviceClassWord,
  type SyncResponse,
  type TicketPayload,
  verifyTicket,
  verifyViewTicket,
  type ViewTicketPayload,
} from "@millpond/api";
import type { RunDirectory, SessionRecord } from "../run-directory/run-directory.ts";
import type { WantedSizes } from "../workers/session-assignment.ts";
import { TicketKeys } from "./ticket-keys.ts";

/** The members of a session that decide whether it may continue. */
export type SessionGrant = Pick<SessionRecord, "claim" | "epoch" | "term" | "order">;

/**
 * Decides which tickets open a session and which sessions may continue, from the controller's last answer and
 * from the terms, epochs and used tickets that the run directory keeps over restarts of the agent.
 */
export class Admission {
  readonly #node: string;
  readonly #run: RunDirectory;
  readonly #keys = new TicketKeys();
  #allocations: ReadonlyMap<string, Allocation> = new Map();
  /** Position of the last answer in the order of the controllers' decisions. */
  #known = { term: 0, order: 0 };

  constructor(options: { readonly node: string; readonly run: RunDirectory }) {
    this.#node = options.node;
    this.#run = options.run;
  }

  /**
   * Applies the controller's answer; changes nothing when it throws.
   *
   * @throws MILLPOND_E_NOT_LEADER when another controller has become the leader since; MILLPOND_E_INVALID when the ticket
   *   key cannot be read
   */
  learn(answer: SyncResponse, nowSeconds: number): void {
    const term = Number(answer.term);
    if (this.#run.isOfPool(answer.controller) && term < this.#run.term) {
      throw millpondError(
        "MILLPOND_E_NOT_LEADER",
        `the answer is of term ${term}, and a controller of term ${this.#run.term} has answered before`,
        {
          remedy:
            "It is no longer the leader. If its state was restored from a copy, use `millpond restore`, which begins a new term.",
        },
      );
    }
    this.#keys.learn(answer);
    this.#run.enterPool(answer.controller);
    this.#run.raiseTerm(term);
    const allocations = new Map(answer.allocations.map((allocation) => [allocation.claim, allocation]));
    // An allocation that is no longer listed has been replaced: a later one for its claim has a higher epoch.
    for (const [claim, { epoch }] of this.#allocations) {
      if (!allocations.has(claim)) this.#run.raiseEpoch(claim, Number(epoch) + 1, nowSeconds);
    }
    for (const [claim, { epoch }] of allocations) {
      if (this.#allocations.get(claim)?.epoch !== epoch)
        this.#run.raiseEpoch(claim, Number(epoch), nowSeconds);
    }
    this.#allocations = allocations;
    this.#known = { term, order: Number(answer.order) };
  }

  /** Ids of the keys that tickets may be signed with; empty until the controller has answered. */
  get ticketKeyIds(): readonly string[] {
    return this.#keys.ids;
  }

  /** Whether a session may begin or continue, according to the controller's last answer. */
  isGranted(grant: SessionGrant): boolean {
    const allocation = this.#allocations.get(grant.claim);
    if (allocation !== undefined && Number(allocation.epoch) === grant.epoch) return true;
    if (grant.epoch < this.#run.epochOf(grant.claim)) return false;
    // Granted after that answer was made: the next answer decides.
    return this.#isNewer(grant);
  }

  /**
   * The sizes of a session in the controller's last answer; undefined: its ticket is newer, and the sizes in the ticket
   * apply.
   */
  sizesOf(grant: SessionGrant): WantedSizes | undefined {
    const allocation = this.#allocations.get(grant.claim);
    const isKnown = allocation !== undefined && Number(allocation.epoch) === grant.epoch;
    if (!isKnown || this.#isNewer(grant)) return undefined;
    return {
      revision: Number(allocation.sizeRevision),
      devices: allocation.devices.map(({ uuid, memoryBytes, computePercent }) => ({
        uuid,
        memoryBytes: Number(memoryBytes),
        computePercent,
        serviceClass: serviceClassWord(allocation.serviceClass),
      })),
    };
  }

  /**
   * Checks a ticket and uses it up.
   *
   * @throws MILLPOND_E_NODE_NOT_READY and the MILLPOND_E_TICKET_… errors
   */
  admit(ticket: string, nowSeconds: number): TicketPayload {
    const payload = verifyTicket(ticket, this.#requireKeys(nowSeconds), { nowSeconds });
    this.#assertHere(payload);
    if (!this.#run.useTicket(payload.session, payload.expires)) {
      throw millpondError("MILLPOND_E_TICKET_USED", `the ticket of claim ${payload.claim} was used before`);
    }
    this.#run.raiseEpoch(payload.claim, payload.epoch, nowSeconds);
    return payload;
  }

  /**
   * Checks a view ticket, which may be used any number of times.
   *
   * @throws MILLPOND_E_NODE_NOT_READY and the MILLPOND_E_TICKET_… errors
   */
  admitView(ticket: string, nowSeconds: number): ViewTicketPayload {
    const payload = verifyViewTicket(ticket, this.#requireKeys(nowSeconds), { nowSeconds });
    this.#assertHere(payload);
    return payload;
  }

  /** The parts of a device that allocations hold, according to the controller's last answer. */
  allocationsOn(
    uuid: string,
  ): readonly { readonly claim: string; readonly epoch: number; readonly memoryBytes: number }[] {
    return [...this.#allocations.values()].flatMap(({ claim, epoch, devices }) =>
      devices
        .filter((device) => device.uuid === uuid)
        .map(({ memoryBytes }) => ({ claim, epoch: Number(epoch), memoryBytes: Number(memoryBytes) })),
    );
  }

  /** Whether no other allocation holds a part of a device, according to the controller's last answer. */
  hasAlone(claim: string, uuid: string): boolean {
    return [...this.#allocations.values()].every(
      (other) => other.claim === claim || other.devices.every((device) => device.uuid !== uuid),
    );
  }

  #requireKeys(nowSeconds: number): FindKeys {
    if (this.#keys.ids.length > 0) return this.#keys.at(nowSeconds);
    throw millpondError(
      "MILLPOND_E_NODE_NOT_READY",
      `the agent of ${this.#node} has not been in contact with its controller yet`,
    );
  }

  /** @throws MILLPOND_E_TICKET_WRONG_NODE, MILLPOND_E_TICKET_STALE */
  #assertHere(payload: SessionGrant & { readonly node: string }): void {
    if (payload.node !== this.#node) {
      throw millpondError(
        "MILLPOND_E_TICKET_WRONG_NODE",
        `the ticket is for node ${payload.node}, this is ${this.#node}`,
      );
    }
    const seen = this.#run.epochOf(payload.claim);
    if (payload.epoch < seen) {
      throw millpondError(
        "MILLPOND_E_TICKET_STALE",
        `the ticket of claim ${payload.claim} is of epoch ${payload.epoch}; only epoch ${seen} or later is valid now`,
      );
    }
    this.assertGranted(payload);
  }

  /** Records that a used ticket opens no session. */
  forgo({ session, claim, epoch }: Pick<TicketPayload, "session" | "claim" | "epoch">): void {
    this.#run.addEndedSession({ session, claim, epoch, hadClient: false });
  }

  /** Whether its ticket was issued after the controller's last answer was made. */
  #isNewer(grant: SessionGrant): boolean {
    const { term, order } = this.#known;
    return grant.term > term || (grant.term === term && grant.order > order);
  }

  /** @throws MILLPOND_E_TICKET_STALE when the allocation has been revoked */
  assertGranted(grant: SessionGrant): void {
    if (this.isGranted(grant)) return;
    throw millpondError("MILLPOND_E_TICKET_STALE", `the allocation of claim ${grant.claim} was taken away`);
  }

  /** Forgets tickets and epochs that can no longer matter. */
  forget(nowSeconds: number): void {
    this.#run.forget(nowSeconds - memorySeconds, new Set(this.#allocations.keys()));
  }
}

/** Far longer than the life of any ticket. */
const memorySeconds = 86_400;
