// SPDX-License-Identifier: Apache-2.0

import { randomBytes } from "node:crypto";
import { readFileSync } from "node:fs";
import { hostname, userInfo } from "node:os";
import { setTimeout as delay } from "node:timers/promises";
import { type Caller, MillpondError } from "./call.ts";
import type { Claim as ClaimMessage } from "./gen/api.ts";

/** Long enough for a restart of the controller, short enough not to block others after a crash. */
const leaseSeconds = 30;
const pollSeconds = 5;
const retryMs = 300;
const releaseMs = 5000;

export interface ClaimOptions {
  /** Fail instead of waiting if there is no room now. */
  readonly noWait?: boolean;
  /** Ends the wait, and releases the claim. */
  readonly signal?: AbortSignal;
  /** Called with the reason for waiting, at first and at each change. */
  readonly onWaiting?: (why: string) => void;
  /** Called once when the vGPUs are going to be preempted, or are gone: with the remaining seconds, and the reason. */
  readonly onLost?: (seconds: number, why: string) => void;
}

/** vGPUs of a pool, kept until they are released: `await using claim = await pool.claim({ gpus: 1 })`. */
export class Claim implements AsyncDisposable {
  readonly #pool: Caller;
  readonly #over = new AbortController();
  #state: ClaimMessage;
  #kept: Promise<void> = Promise.resolve();

  private constructor(pool: Caller, state: ClaimMessage) {
    this.#pool = pool;
    this.#state = state;
  }

  /** As `Pool.claim`. */
  static async create(pool: Caller, spec: ClaimMessage, options: ClaimOptions): Promise<Claim> {
    const name = spec.name ?? `claim-${randomBytes(8).toString("hex")}`;
    const owner = `${userInfo().username}@${hostname()}:${process.pid} node`.slice(0, 256);
    const { claim: state } = await pool.call("ClaimService", "CreateClaim", {
      claim: { owner, leaseSeconds, clientHost: bootId(), ...spec, name },
      noWait: options.noWait ?? false,
    });
    const claim = new Claim(pool, state ?? { name });
    try {
      await claim.#wait(options);
    } catch (error) {
      await claim.release();
      throw error;
    }
    claim.#kept = claim.#keep(options);
    return claim;
  }

  /** The claim as the API describes it, at most some seconds old. */
  get state(): ClaimMessage {
    return this.#state;
  }

  get name(): string {
    return this.#state.name ?? "";
  }

  /**
   * The environment variables by which a program finds the vGPUs, with a token for this claim and nothing else.
   *
   * @param clientDirectory Folder of Millpond's client library on the program's machine, which is put before LD_LIBRARY_PATH.
   * @throws MillpondError
   */
  async environment(clientDirectory: string): Promise<Record<string, string>> {
    const { secret = "" } = await this.#pool.call("ClaimService", "CreateClaimToken", { name: this.name });
    const before = process.env["LD_LIBRARY_PATH"] ?? "";
    return {
      MILLPOND_CONTROLLER: this.#pool.controller,
      MILLPOND_CLAIM: this.name,
      MILLPOND_TOKEN: secret,
      LD_LIBRARY_PATH: before === "" ? clientDirectory : `${clientDirectory}:${before}`,
    };
  }

  /** Releases the vGPUs; does nothing the second time. Retries for some seconds while the controller does not answer. */
  async release(): Promise<void> {
    if (this.#over.signal.aborted) return;
    this.#over.abort();
    await this.#kept;
    const deadline = Date.now() + releaseMs;
    for (;;) {
      try {
        await this.#pool.call("ClaimService", "ReleaseClaim", { name: this.name }, { timeoutMs: releaseMs });
        return;
      } catch (error) {
        if (!(error instanceof MillpondError)) throw error;
        if (error.code === "MILLPOND_E_NOT_FOUND") return;
        if (error.status !== 0 || Date.now() > deadline) throw error;
      }
      await delay(retryMs);
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.release();
  }

  get #hasEnded(): boolean {
    const { state } = this.#state;
    return state === "CLAIM_STATE_RELEASED" || state === "CLAIM_STATE_FAILED";
  }

  async #wait({ signal, onWaiting }: ClaimOptions): Promise<void> {
    let told: string | undefined;
    while (this.#state.state !== "CLAIM_STATE_BOUND" && this.#state.lazy !== true) {
      const why = this.#state.reason ?? "";
      if (this.#hasEnded) {
        throw new MillpondError(`claim ${this.name} has ended: ${why} [MILLPOND_E_CLAIM_ENDED]`, {
          status: 0,
        });
      }
      if (why !== told) onWaiting?.(why);
      told = why;
      await this.#refresh(signal);
    }
  }

  /** Renews the lease until the claim is released. */
  async #keep({ onLost }: ClaimOptions): Promise<void> {
    const { requeues = 0 } = this.#state;
    let isTold = false;
    const tell = (seconds: number): void => {
      if (!isTold) onLost?.(seconds, this.#state.reason ?? "");
      isTold = true;
    };
    while (!this.#over.signal.aborted) {
      try {
        await this.#refresh(this.#over.signal);
      } catch (error) {
        if (this.#over.signal.aborted) return;
        if (!(error instanceof MillpondError)) throw error;
        onLost?.(0, error.message);
        return;
      }
      const at = Number(this.#state.preemptAt ?? 0);
      if (at > 0) tell(Math.max(0, at - Date.now() / 1000));
      if (this.#hasEnded || (this.#state.requeues ?? 0) > requeues) {
        tell(0);
        if (this.#hasEnded) return;
      }
    }
  }

  /** One long poll; retried after a moment while the controller does not answer. */
  async #refresh(signal: AbortSignal | undefined): Promise<void> {
    const { version = 0 } = this.#state;
    try {
      const { claim } = await this.#pool.call(
        "ClaimService",
        "WaitClaim",
        { name: this.name, knownVersion: version, timeoutSeconds: pollSeconds },
        { timeoutMs: (pollSeconds + 5) * 1000, ...(signal === undefined ? {} : { signal }) },
      );
      if (claim !== undefined) this.#state = claim;
    } catch (error) {
      signal?.throwIfAborted();
      if (!(error instanceof MillpondError) || error.status !== 0) throw error;
      await delay(retryMs, undefined, signal === undefined ? {} : { signal });
    }
  }
}

/** Identifies this boot of the machine; empty if the kernel does not provide an id. */
function bootId(): string {
  try {
    return readFileSync("/proc/sys/kernel/random/boot_id", "utf8").trim();
  } catch {
    return ""; // Without it every node counts as another machine.
  }
}
