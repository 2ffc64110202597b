// SPDX-License-Identifier: Apache-2.0

import { randomBytes } from "node:crypto";
import { hostname, userInfo } from "node:os";
import { setTimeout as delay } from "node:timers/promises";
import {
  type Claim,
  ClaimState,
  type ClaimValues,
  countOf,
  errorCodeOf,
  formatDuration,
  millpondError,
  toClaimMessage,
} from "@millpond/api";
import { bootId } from "../host/boot-id.ts";
import { describeRequest, withOptionNames } from "./claim-request.ts";
import { type Connection, isSilent, isUnreachable } from "../connection/connection.ts";
import { errorParts } from "../command-line/errors.ts";
import type { Standing } from "./waiting-display.ts";

/** Long enough for a restart of the controller, and short enough not to block others after a crash of this process. */
const leaseSeconds = 30;
/** Every call renews the lease when it begins and when it ends. */
const pollSeconds = 5;
const retryMs = 300;
/** How long to wait for a restarting controller when the claim is created and when it is released. */
const patienceMs = 30_000;
const releasePatienceMs = 5000;
const releaseTimeoutMs = 5000;
/** Time after which the call is repeated, perhaps at another controller. That is safe because the claim has a name. */
const createTimeoutMs = 10_000;
/** The expected start time changes slowly, and is costly for a controller to compute. */
const expectationMs = 30_000;

export interface CreateOptions {
  /** Empty: a name is generated. */
  readonly name: string;
  /** Waits neither for room nor for a controller that does not answer. */
  readonly noWait: boolean;
  readonly program: string;
  /** The address, `host:port`, at which the other members of its gang reach the program. Empty: none. */
  readonly rendezvous: string;
  /** Seconds to wait for a controller that does not answer, 30 at most; 0: 30. */
  readonly timeoutSeconds: number;
  readonly signal: AbortSignal;
  /** Receives the reason of the wait. */
  readonly onWaiting: OnWaiting;
}

/** Receives the reason for waiting, for display; for a claim also its position. */
export type OnWaiting = (why: string, standing?: Standing) => void;

export interface WaitOptions {
  /** Seconds to wait for room; 0: forever. */
  readonly timeoutSeconds: number;
  /** Ends the wait; `release` then releases the claim. */
  readonly signal: AbortSignal;
  /** Receives the reason why the claim waits, first and at each change. */
  readonly onWaiting: OnWaiting;
}

/** A claim of this process: created, waited for, kept alive, and released. */
export class ClaimHolder {
  readonly #connection: Connection;
  /** Undefined: the claim existed before. */
  readonly #request: ClaimValues | undefined;
  #claim: Claim;
  #expectedAt = 0;
  #expectationAskedAt = Number.NEGATIVE_INFINITY;

  private constructor(connection: Connection, request: ClaimValues | undefined, claim: Claim) {
    this.#connection = connection;
    this.#request = request;
    this.#claim = claim;
  }

  /** @throws the errors of the controller: MILLPOND_E_IMPOSSIBLE, MILLPOND_E_NO_CAPACITY with `noWait`, … */
  static async create(
    connection: Connection,
    request: ClaimValues,
    options: CreateOptions,
  ): Promise<ClaimHolder> {
    const { noWait, signal } = options;
    // With a name chosen by this process, a request can be repeated if its answer was lost.
    const name = options.name === "" ? `claim-${randomBytes(8).toString("hex")}` : options.name;
    const owner = `${userName()}@${hostname()}:${process.pid} ${options.program}`.slice(0, 256);
    const seconds = options.timeoutSeconds === 0 ? Number.POSITIVE_INFINITY : options.timeoutSeconds;
    const deadline = Date.now() + Math.min(patienceMs, seconds * 1000);
    for (let isFirst = true; ; isFirst = false) {
      try {
        const { claim } = await connection.claims.createClaim(
          {
            claim: {
              ...toClaimMessage(request),
              name,
              owner,
              leaseSeconds,
              clientHost: bootId(),
              rendezvous: options.rendezvous,
            },
            noWait,
          },
          { signal, timeoutMs: createTimeoutMs },
        );
        return new ClaimHolder(connection, request, requireClaim(claim));
      } catch (error) {
        const made = isFirst ? undefined : await findMade(connection, name, owner, { error, signal });
        if (made !== undefined) return new ClaimHolder(connection, request, made);
        if (noWait || !isSilent(error) || Date.now() > deadline) throw withOptionNames(error);
      }
      options.onWaiting(`waiting for the controller at ${connection.controller}, which does not answer`);
      await delay(retryMs, undefined, { signal });
    }
  }

  /**
   * Joins an existing claim, which others may use too: it is not released at the end.
   *
   * @throws MILLPOND_E_NOT_FOUND, MILLPOND_E_CLAIM_ENDED
   */
  static async join(connection: Connection, name: string, signal: AbortSignal): Promise<ClaimHolder> {
    const { claim } = await connection.claims.getClaim({ name }, { signal });
    const holder = new ClaimHolder(connection, undefined, requireClaim(claim));
    holder.#assertAlive();
    return holder;
  }

  get claim(): Claim {
    return this.#claim;
  }

  /** Whether the controller has reported the claim's end. */
  get hasEnded(): boolean {
    const { state } = this.#claim;
    return state === ClaimState.RELEASED || state === ClaimState.FAILED;
  }

  /**
   * Waits until the claim is bound. Does not wait for a lazy claim: its program waits when it needs vGPUs.
   *
   * @throws MILLPOND_E_WAIT_TIMEOUT, MILLPOND_E_CLAIM_ENDED
   */
  async waitUntilBound(options: WaitOptions): Promise<void> {
    const { name } = this.#claim;
    const deadline =
      options.timeoutSeconds === 0 ? Number.POSITIVE_INFINITY : Date.now() + options.timeoutSeconds * 1000;
    for (;;) {
      options.signal.throwIfAborted();
      if (this.#claim.state === ClaimState.BOUND) return;
      this.#assertAlive();
      if (this.#claim.lazy) return;
      const why = this.#claim.reason === "" ? "the pool has no room" : this.#claim.reason;
      const ahead = this.#claim.queuePosition - 1;
      const place = ahead > 0 ? ` (${ahead} ahead of it)` : "";
      options.onWaiting(`claim ${name} is waiting for ${this.#wanted}: ${why}${place}`, {
        head: `claim ${name}${ahead > 0 ? `, ${ahead} ahead of it` : ""}`,
        rest: `${this.#wanted}: ${why}`,
        expectedAt: await this.#expectation(options.signal),
      });
      const leftMs = deadline - Date.now();
      if (leftMs <= 0) {
        throw millpondError(
          "MILLPOND_E_WAIT_TIMEOUT",
          `no room for ${this.#wanted} within ${formatDuration(options.timeoutSeconds)}: ${why}`,
        );
      }
      await this.#refresh(leftMs, options.signal, options.onWaiting);
    }
  }

  /**
   * Renews the claim's lease until `signal` is aborted. Resolves early, with the reason, when its allocation is lost.
   *
   * @param onNotice called once when the allocation is about to be preempted, with the remaining seconds and the reason
   */
  async keep(
    signal: AbortSignal,
    onNotice: (seconds: number, why: string) => void,
  ): Promise<string | undefined> {
    const { requeues } = this.#claim;
    let hasHadNotice = false;
    while (!signal.aborted) {
      try {
        const { preemptAt, reason } = this.#claim;
        if (preemptAt !== 0n && !hasHadNotice) {
          hasHadNotice = true;
          onNotice(Math.max(0, Number(preemptAt) - Math.floor(Date.now() / 1000)), reason);
        }
        await this.#refresh(Number.POSITIVE_INFINITY, signal, () => undefined);
        this.#assertAlive();
        if (this.#claim.requeues > requeues) return "they were preempted";
      } catch (error) {
        if (signal.aborted) return undefined;
        return errorParts(error).what;
      }
    }
    return undefined;
  }

  /**
   * Gives up an allocation that is about to be preempted, so that the claim waits for room again.
   *
   * @param requeues how often the claim had returned to the queue when the program was started
   * @returns whether the claim waits again; false when its time limit is over, or when it has ended
   */
  async yieldNow(requeues: number, signal: AbortSignal): Promise<boolean> {
    const { name } = this.#claim;
    await this.#connection.claims.releaseClaim({ name, requeue: true }, { signal });
    const { claim } = await this.#connection.claims.getClaim({ name }, { signal });
    this.#claim = requireClaim(claim);
    return !this.hasEnded && this.#claim.requeues > requeues;
  }

  /**
   * Releases the claim, and waits for a restarting controller. Never throws: resolves with a description of the problem, or
   * undefined.
   */
  async release(): Promise<string | undefined> {
    if (!this.isOwn) return undefined;
    const { name } = this.#claim;
    const deadline = Date.now() + releasePatienceMs;
    for (;;) {
      try {
        await this.#connection.claims.releaseClaim({ name }, { timeoutMs: releaseTimeoutMs });
        return undefined;
      } catch (error) {
        if (errorCodeOf(error) === "MILLPOND_E_NOT_FOUND") return undefined;
        if (!isSilent(error) || Date.now() > deadline) {
          return `claim ${name} could not be released and expires within ${leaseSeconds} s: ${errorParts(error).what}`;
        }
      }
      await delay(retryMs);
    }
  }

  /**
   * Returns the token of the claim's programs, which opens sessions of this claim and nothing else. Repeats the call while
   * the controller does not answer.
   */
  async programToken(signal: AbortSignal): Promise<string> {
    const deadline = Date.now() + patienceMs;
    for (;;) {
      try {
        const { name } = this.#claim;
        const { secret } = await this.#connection.claims.createClaimToken({ name }, { signal });
        return secret;
      } catch (error) {
        if (!isSilent(error) || Date.now() > deadline) throw error;
      }
      await delay(retryMs, undefined, { signal });
    }
  }

  /** Whether it was created here, so that it ends with the program. */
  get isOwn(): boolean {
    return this.#request !== undefined;
  }

  get #wanted(): string {
    if (this.#request !== undefined) return describeRequest(this.#request);
    const { gpus } = this.#claim;
    return `its ${countOf(gpus, "vGPU")}`;
  }

  /** Latest time at which room is expected, Unix seconds; 0: unknown. Refreshed from time to time. */
  async #expectation(signal: AbortSignal): Promise<number> {
    const now = Date.now();
    if (now - this.#expectationAskedAt < expectationMs) return this.#expectedAt;
    this.#expectationAskedAt = now;
    try {
      const { name } = this.#claim;
      const { expectedAt } = await this.#connection.claims.explainClaim(
        { name },
        { signal, timeoutMs: createTimeoutMs },
      );
      this.#expectedAt = Number(expectedAt);
    } catch (error) {
      signal.throwIfAborted();
      // The next call for the claim itself runs into the same problem if it matters.
      if (errorCodeOf(error) === undefined) throw error;
      this.#expectedAt = 0;
    }
    return this.#expectedAt;
  }

  #assertAlive(): void {
    const { name, reason } = this.#claim;
    if (this.hasEnded) {
      throw millpondError("MILLPOND_E_CLAIM_ENDED", `claim ${name} has ended: ${reason}`);
    }
  }

  /** Makes one long poll; repeats it while the controller does not answer. */
  async #refresh(leftMs: number, signal: AbortSignal, onWaiting: OnWaiting): Promise<void> {
    const enough = Math.min(leftMs, pollSeconds * 1000);
    const until = AbortSignal.timeout(enough + 5000);
    try {
      const { claim } = await this.#connection.claims.waitClaim(
        {
          name: this.#claim.name,
          knownVersion: this.#claim.version,
          timeoutSeconds: Math.ceil(enough / 1000),
        },
        { signal: AbortSignal.any([signal, until]) },
      );
      if (claim !== undefined) this.#claim = claim;
    } catch (error) {
      signal.throwIfAborted();
      if (!isUnreachable(error) && !until.aborted) throw error;
      onWaiting(`waiting for the controller at ${this.#connection.controller}, which does not answer`);
      await delay(Math.min(retryMs, leftMs), undefined, { signal });
    }
  }
}

/** Returns the claim if an earlier call, whose answer was lost, has created it. */
async function findMade(
  connection: Connection,
  name: string,
  owner: string,
  { error, signal }: { readonly error: unknown; readonly signal: AbortSignal },
): Promise<Claim | undefined> {
  if (errorCodeOf(error) !== "MILLPOND_E_ALREADY_EXISTS") return undefined;
  const { claim } = await connection.claims.getClaim({ name }, { signal });
  return claim?.owner === owner ? claim : undefined;
}

function requireClaim(claim: Claim | undefined): Claim {
  if (claim === undefined)
    throw millpondError("MILLPOND_E_VERSION", "the controller answered without a claim");
  return claim;
}

function userName(): string {
  try {
    return userInfo().username;
  } catch {
    return String(process.getuid?.() ?? ""); // A user id without an entry in the user database, as in containers.
  }
}
