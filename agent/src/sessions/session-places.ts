// SPDX-License-Identifier: Apache-2.0

import { countOf, maxSessionsPerDevice, millpondError, type TicketPayload } from "@millpond/api";
import type { SessionRecord } from "../run-directory/run-directory.ts";
import type { WorkerPhase } from "../workers/worker.ts";

/** A session whose worker process still runs. */
export interface RunningSession {
  readonly phase: WorkerPhase;
  readonly session: Pick<SessionRecord, "session" | "epoch">;
}

/**
 * Limits the sessions of each allocation, both running ones and those being opened. A session that is ending has
 * released its place, so that the next program can start immediately; its worker still counts against twice the limit,
 * because it may take a while to end.
 */
export class SessionPlaces {
  readonly #running: () => readonly RunningSession[];
  readonly #opening = new Map<string, number>();

  constructor(running: () => readonly RunningSession[]) {
    this.#running = running;
  }

  /**
   * Reserves a place until the result is disposed of; by then the session runs or has failed.
   *
   * @throws MILLPOND_E_TOO_MANY_SESSIONS
   */
  take({
    session,
    claim,
    epoch,
    devices,
  }: Pick<TicketPayload, "session" | "claim" | "epoch" | "devices">): Disposable {
    const limit = maxSessionsPerDevice * devices.length;
    const workers = this.#running().filter(({ session: { epoch: own } }) => own === epoch);
    const opening = [...this.#opening].flatMap(([id, of]) => (of === epoch ? [id] : []));
    const idsOf = (running: readonly RunningSession[]) =>
      new Set([...opening, ...running.map(({ session: { session: id } }) => id)]);
    const live = idsOf(workers.filter(({ phase }) => phase !== "closing" && phase !== "ended")).size;
    const all = idsOf(workers).size;
    if (live >= limit || all >= 2 * limit) {
      const ending = all > live ? `, and ${all - live} that are ending` : "";
      throw millpondError(
        "MILLPOND_E_TOO_MANY_SESSIONS",
        `the claim ${claim} has ${countOf(live, "session")}${ending}; with ${countOf(devices.length, "vGPU")} it may have ${limit}`,
      );
    }
    this.#opening.set(session, epoch);
    return { [Symbol.dispose]: () => this.#opening.delete(session) };
  }
}
