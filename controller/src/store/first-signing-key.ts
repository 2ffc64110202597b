// SPDX-License-Identifier: Apache-2.0

// The first signing key of a state. States of earlier versions have theirs unsealed, in a column of the pool.

import { createPrivateKey } from "node:crypto";
import type { SigningKeyRecord } from "../domain/records.ts";
import type { PoolKey } from "../state/pool-key.ts";
import { makeSigningKey } from "../state/signing-keys.ts";
import { fromSigningKey, type NewRow } from "./rows.ts";

/**
 * Returns the row of the first key.
 *
 * @param unsealed The key of an earlier version, PKCS #8, DER; empty: a new key is created.
 */
export function firstSigningKey(poolKey: PoolKey, unsealed: Uint8Array, nowMs: number): NewRow {
  const origin = { now: Math.floor(nowMs / 1000), revision: 0 };
  const record: SigningKeyRecord =
    unsealed.byteLength === 0
      ? makeSigningKey(poolKey, origin)
      : makeSigningKey(
          poolKey,
          origin,
          createPrivateKey({ key: Buffer.from(unsealed), format: "der", type: "pkcs8" }),
        );
  return fromSigningKey(record);
}
