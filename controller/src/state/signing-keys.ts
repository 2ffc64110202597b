// SPDX-License-Identifier: Apache-2.0

// The life cycle of signing keys. A key is `current` until the next one is created, then `retiring` until the tickets
// that it signed have expired, then `retired`: only tokens derived from it for claims of its time are still accepted.

import { createPrivateKey, createPublicKey, generateKeyPairSync, type KeyObject } from "node:crypto";
import { formatTicketPublicKey, ticketKeyId, ticketLifetimeSeconds } from "@millpond/api";
import type { SigningKeyRecord } from "../domain/records.ts";
import type { PoolKey } from "./pool-key.ts";

/** How long agents have to receive a new key before all tickets are signed with it. They call at least every 2 s. */
const publicationSeconds = 60;

/** How long earlier keys are accepted after a rotation: until tickets that they signed in the meantime have expired. */
export const rotationOverlapSeconds = publicationSeconds + ticketLifetimeSeconds;

/** Creates a key, or makes a record of an earlier private key. */
export function makeSigningKey(
  poolKey: PoolKey,
  { now, revision }: { readonly now: number; readonly revision: number },
  privateKey: KeyObject = generateKeyPairSync("ed25519").privateKey,
): SigningKeyRecord {
  const id = ticketKeyId(privateKey);
  const secret = privateKey.export({ format: "der", type: "pkcs8" });
  return {
    id,
    publicKey: formatTicketPublicKey(createPublicKey(privateKey)),
    sealed: poolKey.seal(`signing-key/${id}`, secret).toString("base64"),
    createdAt: now,
    retiresAt: null,
    isRevoked: false,
    revision,
  };
}

/** @throws MILLPOND_E_POOL_KEY, MILLPOND_E_STATE_BROKEN */
export function openSigningKey(poolKey: PoolKey, { id, sealed }: SigningKeyRecord): KeyObject {
  const key = poolKey.unseal(`signing-key/${id}`, Buffer.from(sealed, "base64"));
  return createPrivateKey({ key, format: "der", type: "pkcs8" });
}

/** Whether agents accept tickets that are signed with the key. */
export function isAccepted({ retiresAt, isRevoked }: SigningKeyRecord, now: number): boolean {
  return !isRevoked && (retiresAt === null || now < retiresAt);
}

/** Whether a ticket that is signed with the key now expires before the key is refused. */
export function maySign(key: SigningKeyRecord, now: number): boolean {
  return key.sealed !== "" && isAccepted(key, now + ticketLifetimeSeconds);
}
