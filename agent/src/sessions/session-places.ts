// SPDX-License-Identifier: Apache-2.0

import { countOf, maxSessionsPerDevice, millpondError, type TicketPayload } from "@millpond/api";
import type { SessionRecord } from "../run-directory/run-directory.ts";
import type { WorkerPhase } from "../workers/worker.ts";

/** A session whose worker process still runs. */
export interface RunningSession {
  readonly phase: WorkerPhase;
  readonly session: Pick<SessionRecord, "session" | "epoch">;
}

type Applicant = Pick<TicketPayload, "session" | "claim" | "epoch" | "devices">;

/** A program that waits for a place. */
interface Waiting {
  readonly applicant: Applicant;
  /** Reserves the place for it. */
  readonly admit: () => void;
}

/** How long a program waits for a place: longer than the end of another program takes to arrive here. */
const defaultPatienceMs = 2000;

/**
 * Limits the sessions of each allocation, both running ones and those being opened. A session that is ending has
 * released its place, so that the next program can start immediately; its worker still counts against twice the limit,
 * because it may take a while to end. A program that finds no place waits briefly, in order of arrival, because the
 * end of another one may not have been noticed yet; at most as many wait as may have sessions.
 */
export class SessionPlaces {
  readonly #running: () => readonly RunningSession[];
  readonly #patienceMs: number;
  readonly #opening = new Map<string, number>();
  #waiting: readonly Waiting[] = [];

  constructor(running: () => readonly RunningSession[], patienceMs = defaultPatienceMs) {
    this.#running = running;
    this.#patienceMs = patienceMs;
  }

  /**
   * Reserves a place until the result is disposed of; by then the session runs or has failed. Waits for one if all are
   * taken, until `signal` is aborted.
   *
   * @throws MILLPOND_E_TOO_MANY_SESSIONS when no place has become free in time; the signal's reason
   */
  async take(applicant: Applicant, signal?: AbortSignal): Promise<Disposable> {
    signal?.throwIfAborted();
    const before = this.#waiting.filter(({ applicant: { epoch } }) => epoch === applicant.epoch).length;
    if (before > 0 || !this.#hasRoom(applicant)) {
      if (before >= limitOf(applicant)) throw this.#refusal(applicant);
      await this.#wait(applicant, signal);
    } else {
      this.#opening.set(applicant.session, applicant.epoch);
    }
    return {
      [Symbol.dispose]: () => {
        this.#opening.delete(applicant.session);
        this.changed();
      },
    };
  }

  /** Gives places that have become free to those that wait. Called after each change of the running sessions. */
  changed(): void {
    const full = new Set<number>();
    for (const { applicant, admit } of this.#waiting) {
      if (full.has(applicant.epoch)) continue;
      if (this.#hasRoom(applicant)) admit();
      else full.add(applicant.epoch);
    }
  }

  #wait(applicant: Applicant, signal: AbortSignal | undefined): Promise<void> {
    return new Promise((resolve, reject) => {
      const leave = (): void => {
        clearTimeout(timer);
        signal?.removeEventListener("abort", abandon);
        this.#waiting = this.#waiting.filter((each) => each !== waiting);
      };
      const abandon = (): void => {
        leave();
        reject(signal?.reason as Error);
      };
      const waiting = {
        applicant,
        admit: () => {
          leave();
          this.#opening.set(applicant.session, applicant.epoch);
          resolve();
        },
      };
      const timer = setTimeout(() => {
        leave();
        reject(this.#refusal(applicant));
      }, this.#patienceMs);
      signal?.addEventListener("abort", abandon);
      this.#waiting = [...this.#waiting, waiting];
    });
  }

  #hasRoom(applicant: Applicant): boolean {
    const { live, all } = this.#count(applicant);
    const limit = limitOf(applicant);
    return live < limit && all < 2 * limit;
  }

  /** The sessions of an allocation that have places, and all that have not ended. */
  #count({ epoch }: Applicant): { readonly live: number; readonly all: number } {
    const workers = this.#running().filter(({ session: { epoch: own } }) => own === epoch);
    const opening = [...this.#opening].flatMap(([id, of]) => (of === epoch ? [id] : []));
    const idsOf = (running: readonly RunningSession[]) =>
      new Set([...opening, ...running.map(({ session: { session: id } }) => id)]);
    const live = idsOf(workers.filter(({ phase }) => phase !== "closing" && phase !== "ended")).size;
    return { live, all: idsOf(workers).size };
  }

  #refusal(applicant: Applicant): Error {
    const { live, all } = this.#count(applicant);
    const { claim, devices } = applicant;
    const ending = all > live ? `, and ${all - live} that are ending` : "";
    return millpondError(
      "MILLPOND_E_TOO_MANY_SESSIONS",
      `the claim ${claim} has ${countOf(live, "session")}${ending}; with ${countOf(devices.length, "vGPU")} it may have ${limitOf(applicant)}`,
    );
  }
}

function limitOf({ devices }: Applicant): number {
  return maxSessionsPerDevice * devices.length;
}
