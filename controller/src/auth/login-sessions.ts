// SPDX-License-Identifier: Apache-2.0

// Logins of the web console. A browser keeps its token, sealed: the page may do what the token may.

import { randomBytes } from "node:crypto";
import { type ActiveLogins, loginSeconds, type LoginStamp } from "./active-logins.ts";
import type { KeyRing } from "./key-ring.ts";
import { ValueSealer } from "./value-sealer.ts";
import { hashOf, isToken } from "./tokens.ts";

/** Lifetime of an unused login code. */
export const codeSeconds = 600;

/** Beyond this number the oldest code is dropped. */
const maxCodes = 1000;

/** The data that a browser stores. */
export interface StoredLogin {
  readonly token: string;
  /** Absent: the token itself belongs to one login by an OpenID provider. */
  readonly login?: LoginStamp;
}

export class LoginSessions {
  readonly #kept: ValueSealer<StoredLogin>;
  readonly #active: ActiveLogins;
  readonly #now: () => number;
  /** Tokens by the hash of the code that may be exchanged for them, oldest first. */
  readonly #codes = new Map<string, { readonly token: string; readonly expiresAt: number }>();

  /** @param now Unix seconds. */
  constructor(keys: KeyRing, active: ActiveLogins, now: () => number) {
    this.#active = active;
    this.#kept = new ValueSealer({
      keys,
      now,
      purpose: "console logins",
      lifetimeSeconds: loginSeconds,
    });
    this.#now = now;
  }

  /** A login in the form that a browser may store. */
  seal(login: StoredLogin): string {
    return this.#kept.seal(login);
  }

  /** Undefined when the login has ended, or is not one of this pool. */
  unseal(text: string): StoredLogin | undefined {
    const kept = this.#kept.unseal(text);
    return kept?.login === undefined || this.#active.isActive(kept.login) ? kept : undefined;
  }

  /** Creates a single-use code for a token: a code may appear in a link, a token may not. */
  makeCode(token: string): { readonly code: string; readonly expiresAt: number } {
    const now = this.#now();
    for (const [hash, { expiresAt }] of this.#codes) {
      if (expiresAt <= now || this.#codes.size >= maxCodes) {
        this.#codes.delete(hash);
      }
    }
    const code = `mp-login-${randomBytes(32).toString("base64url")}`;
    const expiresAt = now + codeSeconds;
    this.#codes.set(hashOf(code), { token, expiresAt });
    return { code, expiresAt };
  }

  /** Exchanges a code for its token, once and before it expires; undefined: the code is not valid. */
  takeCode(code: string): string | undefined {
    if (!isToken(code)) {
      return undefined;
    }
    const hash = hashOf(code);
    const kept = this.#codes.get(hash);
    this.#codes.delete(hash);
    return kept !== undefined && kept.expiresAt > this.#now() ? kept.token : undefined;
  }
}
