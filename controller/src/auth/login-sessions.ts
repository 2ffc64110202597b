// SPDX-License-Identifier: Apache-2.0

// Logins of the web console. What a browser keeps is its token, sealed by a key that only controllers of this pool have:
// so any of them, also one that was started since, takes up a login, and the page may do what the token may.

import { createCipheriv, createDecipheriv, randomBytes } from "node:crypto";
import type { DerivedSecret, KeyRing } from "./key-ring.ts";
import { hashOf, isToken } from "./tokens.ts";

/** A login ends after a working day, whatever its token. */
export const loginSeconds = 12 * 3600;

/** Lifetime of an unused login code. */
export const codeSeconds = 600;

/** Beyond it the oldest code goes. */
const maxCodes = 1000;

const nonceBytes = 12;
const sealBytes = 16;

export class LoginSessions {
  readonly #keys: KeyRing;
  readonly #now: () => number;
  /** Tokens by the hash of the code that stands for them, oldest first. */
  readonly #codes = new Map<string, { readonly token: string; readonly expiresAt: number }>();

  /** @param now Unix seconds. */
  constructor(keys: KeyRing, now: () => number) {
    this.#keys = keys;
    this.#now = now;
  }

  /** The token as it may lie in a browser. */
  seal(token: string): string {
    const nonce = randomBytes(nonceBytes);
    const cipher = createCipheriv("aes-256-gcm", this.#keys.secret("console logins").secret, nonce);
    const said = JSON.stringify({ token, expiresAt: this.#now() + loginSeconds });
    return Buffer.concat([nonce, cipher.update(said, "utf8"), cipher.final(), cipher.getAuthTag()]).toString(
      "base64url",
    );
  }

  /** The token of a login; undefined where it is over, or none of ours. */
  unseal(text: string): string | undefined {
    const bytes = Buffer.from(text, "base64url");
    if (bytes.byteLength < nonceBytes + sealBytes) {
      return undefined;
    }
    const said = this.#keys
      .secrets("console logins", undefined)
      .filter(({ retiresAt }) => retiresAt === null || this.#now() < retiresAt + loginSeconds)
      .map((secret) => open(bytes, secret))
      .find((opened) => opened !== undefined);
    if (said === undefined) {
      return undefined;
    }
    const { token, expiresAt } = JSON.parse(said) as { readonly token: string; readonly expiresAt: number };
    return expiresAt > this.#now() ? token : undefined;
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

/** Undefined where another key sealed it, of another pool or a forger's. */
function open(bytes: Buffer, { secret }: DerivedSecret): string | undefined {
  const decipher = createDecipheriv("aes-256-gcm", secret, bytes.subarray(0, nonceBytes), {
    authTagLength: sealBytes,
  });
  decipher.setAuthTag(bytes.subarray(-sealBytes));
  try {
    const opened = decipher.update(bytes.subarray(nonceBytes, -sealBytes));
    return Buffer.concat([opened, decipher.final()]).toString("utf8");
  } catch {
    return undefined;
  }
}
