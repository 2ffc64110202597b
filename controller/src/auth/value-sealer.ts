// SPDX-License-Identifier: Apache-2.0

// Texts stored in a browser that only controllers of this pool can create and read, including controllers that start
// later.

import { createCipheriv, createDecipheriv, randomBytes } from "node:crypto";
import type { DerivedSecret, KeyRing, SecretPurpose } from "./key-ring.ts";

const nonceBytes = 12;
const sealBytes = 16;

export interface ValueSealerOptions {
  readonly keys: KeyRing;
  /** Unix seconds. */
  readonly now: () => number;
  readonly purpose: SecretPurpose;
  readonly lifetimeSeconds: number;
}

/** Seals values of one kind with AES-256-GCM, for a limited time. */
export class ValueSealer<T> {
  readonly #options: ValueSealerOptions;

  constructor(options: ValueSealerOptions) {
    this.#options = options;
  }

  seal(value: T): string {
    const { keys, now, purpose, lifetimeSeconds } = this.#options;
    const nonce = randomBytes(nonceBytes);
    const cipher = createCipheriv("aes-256-gcm", keys.secret(purpose).secret, nonce);
    const text = JSON.stringify({ value, expiresAt: now() + lifetimeSeconds });
    return Buffer.concat([nonce, cipher.update(text, "utf8"), cipher.final(), cipher.getAuthTag()]).toString(
      "base64url",
    );
  }

  /** Undefined when the text has expired or was not sealed by this pool. */
  unseal(text: string): T | undefined {
    const { keys, now, purpose, lifetimeSeconds } = this.#options;
    const bytes = Buffer.from(text, "base64url");
    if (bytes.byteLength < nonceBytes + sealBytes) {
      return undefined;
    }
    const opened = keys
      .secrets(purpose, undefined)
      .filter(({ retiresAt }) => retiresAt === null || now() < retiresAt + lifetimeSeconds)
      .map((secret) => open(bytes, secret))
      .find((each) => each !== undefined);
    if (opened === undefined) {
      return undefined;
    }
    // The seal proves that a controller of this pool wrote it.
    const { value, expiresAt } = JSON.parse(opened) as { readonly value: T; readonly expiresAt: number };
    return expiresAt > now() ? value : undefined;
  }
}

/** Undefined when another key sealed it: another pool's, or a forger's. */
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
