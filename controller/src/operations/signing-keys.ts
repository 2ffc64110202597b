// SPDX-License-Identifier: Apache-2.0

// Administrators' operations on signing keys.

import { millpondError, reason } from "@millpond/api";
import { isLive, type SigningKeyRecord } from "../domain/records.ts";
import type { Pool } from "../pool/pool.ts";
import type { PoolKey } from "../state/pool-key.ts";
import { isAccepted, makeSigningKey, rotationOverlapSeconds } from "../state/signing-keys.ts";
import type { Transaction } from "../state/transaction.ts";

/** The most keys that agents keep, and that controllers try for a token. */
const maxUsableKeys = 64;

/** How long program tokens derived from a retired key are accepted (auth/program-tokens.ts). */
const programTokenSeconds = 7 * 86_400;

export interface RotateKeyOptions {
  /** Earlier keys are no longer accepted for anything. */
  readonly isRevoking: boolean;
}

/**
 * Creates a signing key. Unless the earlier ones are revoked, tickets that they signed remain valid until they expire, and
 * tokens that are derived from them for as long as the claims of their time live.
 *
 * @throws MILLPOND_E_VERSION where an agent accepts one key only, MILLPOND_E_IN_USE
 */
export async function rotateKey(
  pool: Pool,
  poolKey: PoolKey,
  { isRevoking }: RotateKeyOptions,
): Promise<SigningKeyRecord> {
  if (!isRevoking) {
    refuseEarlierAgents(pool);
  }
  return await pool.mutate((transaction) => {
    const { now, revision } = transaction;
    const created = makeSigningKey(poolKey, { now, revision });
    const earlier = transaction.signingKeys.all().map((key) => retire(transaction, key, isRevoking));
    const usable = earlier.filter(({ sealed }) => sealed !== "").length;
    if (usable >= maxUsableKeys) {
      throw millpondError(
        "MILLPOND_E_IN_USE",
        `claims or programs still hold tokens of ${usable} signing keys, and at most ${maxUsableKeys} are kept`,
        { remedy: "Release the oldest claims, or revoke the earlier keys with --revoke." },
      );
    }
    for (const key of [...earlier, created]) {
      transaction.signingKeys.set(key.id, key);
    }
    transaction.addEvent(
      "SigningKeyRotated",
      "controller",
      reason("signing-key-rotated", { id: created.id }),
    );
    return created;
  });
}

/** The signing keys, newest first. */
export function listKeys(pool: Pool): SigningKeyRecord[] {
  return [...pool.ledger.signingKeys.values()].toReversed();
}

function retire(transaction: Transaction, key: SigningKeyRecord, isRevoking: boolean): SigningKeyRecord {
  const { now } = transaction;
  if (isRevoking) {
    return { ...key, sealed: "", retiresAt: Math.min(key.retiresAt ?? now, now), isRevoked: true };
  }
  const retiresAt = key.retiresAt ?? now + rotationOverlapSeconds;
  const isNeeded =
    isAccepted(key, now) || now < retiresAt + programTokenSeconds || hasClaims(transaction, retiresAt);
  return { ...key, retiresAt, sealed: isNeeded ? key.sealed : "" };
}

/**
 * Whether a claim that was created before a key retired is live: its programs may have tokens derived from that key.
 */
function hasClaims(transaction: Transaction, retiresAt: number): boolean {
  return transaction.allClaims().some((claim) => isLive(claim) && claim.createdAt <= retiresAt);
}

/**
 * An agent of an earlier release accepts only one key. Tickets of the new key would fail before the agent has it, and
 * tickets of the old key afterwards.
 */
function refuseEarlierAgents(pool: Pool): void {
  const names = [...pool.liveness.nodes]
    .filter(
      ([, { isReady, hasBeenAnswered, ticketKeys }]) => isReady && hasBeenAnswered && ticketKeys.size === 0,
    )
    .map(([name]) => name);
  if (names.length > 0) {
    throw millpondError(
      "MILLPOND_E_VERSION",
      `${names.length === 1 ? "an agent is" : `${names.length} agents are`} of a release that knows one signing key only${names.length === 1 ? `: ${names[0]}` : `, ${names[0]} among them`}`,
      {
        remedy: "Upgrade them first, or pass --revoke; then programs that are starting at that moment fail.",
      },
    );
  }
}
