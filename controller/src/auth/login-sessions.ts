// SPDX-License-Identifier: Apache-2.0

// Logins of the web console. A browser keeps its token, sealed: the page may do what the token may.

import { randomBytes } from "node:crypto";
import type { KeyRing } from "./key-ring.ts";
import { SealedTexts } from "./sealed-texts.ts";
import { hashOf, isToken } from "./tokens.ts";

/** A login ends after a working day, whatever its token. */
export const loginSeconds = 12 * 3600;

/** Lifetime of an unused login code. */
export const codeSeconds = 600;

/** Beyond it the oldest code goes. */
const maxCodes = 1000;

export class LoginSessions {
  readonly #tokens: SealedTexts<string>;
  readonly #now: () => number;
  /** Tokens by the hash of the code that stands for them, oldest first. */
  readonly #codes = new Map<string, { readonly token: string; readonly expiresAt: number }>();

  /** @param now Unix seconds. */
  constructor(keys: KeyRing, now: () => number) {
    this.#tokens = new SealedTexts({
      keys,
      now,
      purpose: "console logins",
      lifetimeSeconds: loginSeconds,
    });
    this.#now = now;
  }

  /** The token in the form that a browser may store. */
  seal(token: string): string {
    return this.#tokens.seal(token);
  }

  /** The token of a login; undefined where it is over, or none of ours. */
  unseal(text: string): string | undefined {
    return this.#tokens.unseal(text);
  }

  /** A code that stands for a token, once: it may be in a link, as the token may not. */
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

  /** The token that a code stands for, the first time and before it ends; undefined: it stands for none. */
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
