// SPDX-License-Identifier: Apache-2.0

// Logins of the web console. What a browser keeps is its token, sealed by a key that only controllers of this pool have:
// so any of them, also one that was started since, takes up a login, and the page may do what the token may.

import { createCipheriv, createDecipheriv, hkdfSync, type KeyObject, randomBytes } from "node:crypto";
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
  readonly #key: Buffer;
  readonly #now: () => number;
  /** Tokens by the hash of the code that stands for them, oldest first. */
  readonly #codes = new Map<string, { readonly token: string; readonly expiresAt: number }>();

  /**
   * @param ticketKey The private key of the pool's tickets, of which another key is derived.
   * @param now Unix seconds.
   */
  constructor(ticketKey: KeyObject, now: () => number) {
    const secret = ticketKey.export({ format: "der", type: "pkcs8" });
    this.#key = Buffer.from(hkdfSync("sha256", secret, "", "millpond console logins", 32));
    this.#now = now;
  }

  /** The token as it may lie in a browser. */
  seal(token: string): string {
    const nonce = randomBytes(nonceBytes);
    const cipher = createCipheriv("aes-256-gcm", this.#key, nonce);
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
    const decipher = createDecipheriv("aes-256-gcm", this.#key, bytes.subarray(0, nonceBytes), {
      authTagLength: sealBytes,
    });
    decipher.setAuthTag(bytes.subarray(-sealBytes));
    let said: string;
    try {
      const opened = decipher.update(bytes.subarray(nonceBytes, -sealBytes));
      said = Buffer.concat([opened, decipher.final()]).toString("utf8");
    } catch {
      // The seal of another pool, or a forged one.
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
