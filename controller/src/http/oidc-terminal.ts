// SPDX-License-Identifier: Apache-2.0

// Logins of a command line by an OpenID provider, as RFC 8252 describes them: a browser goes through the provider's
// pages and is redirected to a port of its own host, where the command waits. The redirect carries a code that is valid
// for a minute, once, and only with the verifier that the command has kept (PKCE, RFC 7636).

import { timingSafeEqual } from "node:crypto";
import { millpondError } from "@millpond/api";
import type { KeyRing } from "../auth/key-ring.ts";
import { ValueSealer } from "../auth/value-sealer.ts";
import { hashOf } from "../auth/tokens.ts";
import { UsedCodes } from "../auth/used-codes.ts";

const codeSeconds = 60;

/** Longer messages are truncated, because they are part of an address. */
const maxMessageLength = 1000;

/** The command that waits for a login. */
export interface Terminal {
  /** The command's port on 127.0.0.1, on the browser's host. */
  readonly port: number;
  /** The state by which the command recognizes the browser. */
  readonly state: string;
  /** SHA-256 of its verifier, base64url. */
  readonly challenge: string;
}

/**
 * Reads the command for which a browser logs in; undefined: the browser logs in for itself.
 *
 * @throws MILLPOND_E_INVALID
 */
export function readTerminal(query: URLSearchParams): Terminal | undefined {
  const port = query.get("port");
  if (port === null) {
    return undefined;
  }
  const state = query.get("state") ?? "";
  const challenge = query.get("challenge") ?? "";
  const isPort = /^\d{4,5}$/.test(port) && Number(port) >= 1024 && Number(port) <= 65_535;
  if (!isPort || !/^[\w-]{43}$/.test(state) || !/^[\w-]{43}$/.test(challenge)) {
    throw millpondError("MILLPOND_E_INVALID", "this is not the address that `millpond login` showed", {
      remedy: "Copy all of it.",
    });
  }
  return { port: Number(port), state, challenge };
}

/** The answer to the command. */
export interface TerminalLogin {
  readonly token: string;
  /** Unix seconds. */
  readonly expiresAt: number;
}

/** The address to which the browser brings the answer. */
export function addressOf(
  { port, state }: Terminal,
  answer: { readonly code: string } | { readonly error: string },
): string {
  const url = new URL(`http://127.0.0.1:${port}/`);
  for (const [name, value] of Object.entries({ state, ...answer })) {
    url.searchParams.set(name, value.slice(0, name === "error" ? maxMessageLength : undefined));
  }
  return url.href;
}

/** Codes for tokens. They are sealed, so that any controller of the pool accepts one. */
export class TerminalCodes {
  readonly #codes: ValueSealer<TerminalLogin & { readonly challenge: string }>;
  readonly #spent = new UsedCodes();

  /** @param now Unix seconds. */
  constructor(keys: KeyRing, now: () => number) {
    this.#codes = new ValueSealer({
      keys,
      now,
      purpose: "oidc terminal codes",
      lifetimeSeconds: codeSeconds,
    });
  }

  make(login: TerminalLogin, { challenge }: Terminal): string {
    return this.#codes.seal({ ...login, challenge });
  }

  /** @throws MILLPOND_E_UNAUTHENTICATED */
  redeem(code: string, verifier: string): TerminalLogin {
    const kept = this.#codes.unseal(code);
    const challenge = Buffer.from(hashOf(verifier), "hex").toString("base64url");
    if (
      kept === undefined ||
      !timingSafeEqual(Buffer.from(challenge), Buffer.from(kept.challenge)) ||
      !this.#spent.add(code)
    ) {
      throw millpondError(
        "MILLPOND_E_UNAUTHENTICATED",
        "the code of this login has been used, has expired, or is for another command",
        { remedy: "Run `millpond login --oidc` again." },
      );
    }
    const { token, expiresAt } = kept;
    return { token, expiresAt };
  }
}
