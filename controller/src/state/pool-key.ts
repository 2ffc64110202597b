// SPDX-License-Identifier: Apache-2.0

import { createCipheriv, createDecipheriv, hash, randomBytes } from "node:crypto";
import { chmodSync, existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { millpondError } from "@millpond/api";
import { makeFileOnce, makePoolKeyText, poolKeyBytes, poolKeyPrefix } from "@millpond/platform";

const idBytes = 8;
const nonceBytes = 12;
const tagBytes = 16;

/** Default name of its file in a state directory. */
export const poolKeyFile = "pool.key";

export function poolKeyPath(directory: string): string {
  return join(directory, poolKeyFile);
}

/**
 * The key that seals a pool's secrets wherever the state is stored: AES-256-GCM. It is in a file of the controllers' hosts,
 * so a copy of the database or a backup discloses nothing.
 */
export class PoolKey {
  /** The beginning of the SHA-256 of the key, hexadecimal. */
  readonly id: string;
  readonly path: string;
  readonly #key: Buffer;

  private constructor(key: Buffer, path: string) {
    this.#key = key;
    this.id = hash("sha256", key, "hex").slice(0, 2 * idBytes);
    this.path = path;
  }

  /**
   * Reads the key from a file.
   *
   * @throws MILLPOND_E_POOL_KEY if there is none; MILLPOND_E_STATE_BROKEN
   */
  static read(path: string): PoolKey {
    if (!existsSync(path)) {
      throw millpondError("MILLPOND_E_POOL_KEY", `there is no pool key in ${path}`);
    }
    try {
      makePrivate(path);
      const text = readFileSync(path, "utf8").trim();
      const key = Buffer.from(text.slice(poolKeyPrefix.length), "base64url");
      if (!text.startsWith(poolKeyPrefix) || key.byteLength !== poolKeyBytes) {
        throw new Error(`it does not hold "${poolKeyPrefix}" and ${poolKeyBytes} bytes in base64url`);
      }
      return new PoolKey(key, path);
    } catch (cause) {
      const message = cause instanceof Error ? cause.message : String(cause);
      throw millpondError("MILLPOND_E_STATE_BROKEN", `the pool key in ${path} cannot be used: ${message}`, {
        remedy: "Restore the file from a copy, with the controller's user as its owner and mode 0600.",
        cause,
      });
    }
  }

  /** Reads the key from a file, or creates the file with mode 0600. */
  static readOrMake(path: string): PoolKey {
    if (existsSync(path)) return PoolKey.read(path);
    try {
      makeFileOnce(path, makePoolKeyText());
    } catch (cause) {
      const message = cause instanceof Error ? cause.message : String(cause);
      throw millpondError("MILLPOND_E_STATE_BROKEN", `the pool key ${path} cannot be created: ${message}`, {
        cause,
      });
    }
    return PoolKey.read(path);
  }

  /** @param purpose The purpose is authenticated with the sealed bytes, which can be opened for no other one. */
  seal(purpose: string, bytes: Uint8Array): Buffer {
    const nonce = randomBytes(nonceBytes);
    const cipher = createCipheriv("aes-256-gcm", this.#key, nonce);
    cipher.setAAD(Buffer.from(purpose, "utf8"));
    const sealed = Buffer.concat([cipher.update(bytes), cipher.final()]);
    return Buffer.concat([Buffer.from(this.id, "hex"), nonce, sealed, cipher.getAuthTag()]);
  }

  /** @throws MILLPOND_E_POOL_KEY if another key sealed it; MILLPOND_E_STATE_BROKEN if it was modified */
  unseal(purpose: string, sealed: Uint8Array): Buffer {
    const bytes = Buffer.from(sealed);
    const id = bytes.subarray(0, idBytes).toString("hex");
    if (id !== this.id) {
      throw millpondError(
        "MILLPOND_E_POOL_KEY",
        `${purpose} is sealed with the pool key ${id}, and ${this.path} has ${this.id}`,
      );
    }
    try {
      const nonce = bytes.subarray(idBytes, idBytes + nonceBytes);
      const decipher = createDecipheriv("aes-256-gcm", this.#key, nonce, { authTagLength: tagBytes });
      decipher.setAAD(Buffer.from(purpose, "utf8"));
      decipher.setAuthTag(bytes.subarray(-tagBytes));
      const opened = decipher.update(bytes.subarray(idBytes + nonceBytes, -tagBytes));
      return Buffer.concat([opened, decipher.final()]);
    } catch (cause) {
      throw millpondError(
        "MILLPOND_E_STATE_BROKEN",
        `${purpose} cannot be unsealed: it was changed since it was written`,
        {
          cause,
        },
      );
    }
  }
}

/** A file on a read-only file system, such as a Secret of Kubernetes, keeps the mode that its mount gives it. */
function makePrivate(path: string): void {
  try {
    chmodSync(path, 0o600);
  } catch (error) {
    if (!(error instanceof Error && "code" in error && error.code === "EROFS")) throw error;
  }
}
