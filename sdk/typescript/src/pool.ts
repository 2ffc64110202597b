// SPDX-License-Identifier: Apache-2.0

import { setTimeout as delay } from "node:timers/promises";
import { type Caller, type CallOptions, type Method, MillpondError } from "./call.ts";
import { Claim, type ClaimOptions } from "./claim.ts";
import type { Claim as ClaimMessage, Services } from "./gen/api.ts";

/** The address of a controller, and the credentials for it. */
export interface Endpoint {
  /** Base URL; several that share a state, separated by commas. */
  readonly controller: string;
  /** Default: none. */
  readonly token?: string | undefined;
}

/** By then another controller leads, if there is one. */
const takeoverMs = 10_000;
const retryMs = 300;
const answerMs = 20_000;

/**
 * A pool. If the certificate's authority is not a public one, start Node with NODE_EXTRA_CA_CERTS. If one of several
 * controllers does not answer, or is a follower, the others are tried for ten seconds; a call that changes something is
 * repeated only if the controller has refused it.
 */
export class Pool implements Caller {
  readonly controller: string;
  readonly #addresses: readonly string[];
  readonly #token: string;
  #preferred: string;

  /** @throws TypeError for a controller that is not an http or https URL */
  constructor({ controller, token = "" }: Endpoint) {
    this.controller = controller;
    this.#addresses = controller.split(",").map((each) => each.trim().replace(/\/+$/, ""));
    for (const each of this.#addresses) {
      if (!/^https?:$/.test(new URL(each).protocol))
        throw new TypeError(`${each} is not an http or https URL`);
    }
    this.#preferred = this.#addresses[0] ?? "";
    this.#token = token;
  }

  /**
   * The pool named by MILLPOND_CONTROLLER and MILLPOND_TOKEN.
   *
   * @throws TypeError if they are not set
   */
  static fromEnvironment(environment: NodeJS.ProcessEnv = process.env): Pool {
    const controller = environment["MILLPOND_CONTROLLER"];
    if (controller === undefined || controller === "") {
      throw new TypeError("MILLPOND_CONTROLLER is not set [MILLPOND_E_NOT_CONFIGURED]");
    }
    return new Pool({ controller, token: environment["MILLPOND_TOKEN"] });
  }

  /**
   * Makes any call of the API (docs/reference/api.md): `pool.call("ClaimService", "GetClaim", { name: "train" })`.
   *
   * @throws MillpondError
   */
  async call<S extends keyof Services, M extends keyof Services[S] & string>(
    service: S,
    method: M,
    request: Method<S, M>["request"],
    options: CallOptions = {},
  ): Promise<Method<S, M>["answer"]> {
    const deadline = Date.now() + takeoverMs;
    const isRepeatable = /^(?:Get|List|Explain|Wait)/.test(method);
    for (;;) {
      const address = this.#preferred;
      try {
        const path = `millpond.v1.${service}/${method}`;
        return await this.#send<Method<S, M>["answer"]>(`${address}/${path}`, request, options);
      } catch (error) {
        if (!(error instanceof MillpondError)) throw error;
        const mayRepeat = (error.status === 0 && isRepeatable) || error.code === "MILLPOND_E_NOT_LEADER";
        if (this.#addresses.length < 2 || !mayRepeat || Date.now() > deadline) throw error;
        this.#preferred = this.#other(address, error.leader.replace(/\/+$/, ""));
      }
      await delay(retryMs, undefined, options.signal === undefined ? {} : { signal: options.signal });
    }
  }

  /**
   * Requests vGPUs, waits for them, and keeps them until the claim is released or disposed of.
   *
   * @throws MillpondError
   */
  claim(spec: ClaimMessage, options: ClaimOptions = {}): Promise<Claim> {
    return Claim.create(this, spec, options);
  }

  /** The token is sent only to addresses that the user has named. */
  #other(address: string, leader: string): string {
    if (this.#addresses.includes(leader)) return leader;
    return this.#addresses[(this.#addresses.indexOf(address) + 1) % this.#addresses.length] ?? address;
  }

  async #send<Answer>(url: string, request: unknown, options: CallOptions): Promise<Answer> {
    const timeout = AbortSignal.timeout(options.timeoutMs ?? answerMs);
    let status: number;
    let leader: string;
    let text: string;
    try {
      const response = await fetch(url, {
        method: "POST",
        headers: {
          "content-type": "application/json",
          "connect-protocol-version": "1",
          ...(this.#token === "" ? {} : { authorization: `Bearer ${this.#token}` }),
          ...(options.reason === undefined ? {} : { "millpond-reason": encodeURIComponent(options.reason) }),
        },
        body: JSON.stringify(request),
        redirect: "error",
        signal: options.signal === undefined ? timeout : AbortSignal.any([options.signal, timeout]),
      });
      status = response.status;
      leader = response.headers.get("millpond-leader") ?? "";
      text = await response.text();
    } catch (cause) {
      options.signal?.throwIfAborted();
      const why =
        cause instanceof Error ? (cause.cause instanceof Error ? cause.cause : cause).message : String(cause);
      throw new MillpondError(`the controller at ${new URL(url).origin} does not answer: ${why}`, {
        status: 0,
        code: "MILLPOND_E_UNREACHABLE",
        cause,
      });
    }
    const body = parse(text);
    if (status === 200 && body !== undefined) return body as Answer;
    const said = body !== undefined && "message" in body ? body.message : undefined;
    throw new MillpondError(
      typeof said === "string"
        ? said
        : `${new URL(url).origin} answered ${status}: is it a Millpond controller?`,
      { status, leader },
    );
  }
}

/** An object; undefined for any other text. */
function parse(text: string): object | undefined {
  try {
    const parsed: unknown = JSON.parse(text);
    return typeof parsed === "object" && parsed !== null ? parsed : undefined;
  } catch (error) {
    if (error instanceof SyntaxError) return undefined;
    throw error;
  }
}
