// SPDX-License-Identifier: Apache-2.0

import { hkdfSync, type KeyObject } from "node:crypto";
import { type FindKeys, parseTicketPublicKey, ticketKeyId } from "@millpond/api";
import type { SigningKeyRecord } from "../domain/records.ts";
import type { PoolKey } from "../state/pool-key.ts";
import { isAccepted, maySign, openSigningKey } from "../state/signing-keys.ts";

/** The purpose of a secret: secrets for different purposes have nothing in common. */
export type SecretPurpose =
  | "claim tokens"
  | "program tokens"
  | "console logins"
  | "oidc tokens"
  | "oidc flows"
  | "oidc terminal codes";

/** A secret that is derived from a signing key. */
export interface DerivedSecret {
  readonly id: string;
  readonly secret: Buffer;
  /** See `SigningKeyRecord`. */
  readonly retiresAt: number | null;
}

/** How long a new key is known before anything is derived from it: by then the followers have it. */
const followSeconds = 5;

/** The current signing keys of the state, opened with the pool key. */
export class KeyRing {
  readonly #poolKey: PoolKey;
  readonly #records: () => ReadonlyMap<string, SigningKeyRecord>;
  readonly #now: () => number;
  readonly #privateKeys = new Map<string, KeyObject>();
  readonly #publicKeys = new Map<string, KeyObject>();
  readonly #secrets = new Map<string, Buffer>();

  /**
   * @param records In order of their creation.
   * @param now Unix seconds.
   * @throws MILLPOND_E_POOL_KEY where they are sealed with another pool key
   */
  constructor(poolKey: PoolKey, records: () => ReadonlyMap<string, SigningKeyRecord>, now: () => number) {
    this.#poolKey = poolKey;
    this.#records = records;
    this.#now = now;
    for (const record of this.#usable()) {
      this.#privateKey(record);
    }
  }

  /**
   * The newest key that may sign, among those that an agent has; undefined: the agent has none.
   *
   * @param known Ids that the agent has reported; empty: it has reported none.
   */
  signer(known: ReadonlySet<string>): KeyObject | undefined {
    const now = this.#now();
    const record = this.#usable().findLast(
      (each) => maySign(each, now) && (known.size === 0 || known.has(each.id)),
    );
    return record && this.#privateKey(record);
  }

  /** The keys that agents accept, newest first. */
  accepted(): SigningKeyRecord[] {
    const now = this.#now();
    return [...this.#records().values()].filter((record) => isAccepted(record, now)).toReversed();
  }

  /** Finds the key of a ticket that proves an earlier grant: any key that was not revoked. */
  readonly findEarlier: FindKeys = (id) =>
    [...this.#records().values()]
      .filter((record) => !record.isRevoked && (id === undefined || record.id === id))
      .map((record) => this.#publicKey(record));

  /** The secret from which new tokens are derived. */
  secret(purpose: SecretPurpose): DerivedSecret {
    const usable = this.#usable();
    const settled = usable.findLast(({ createdAt }) => createdAt + followSeconds <= this.#now());
    const record = settled ?? usable.at(-1);
    if (record === undefined) {
      throw new Error("a state has a current signing key at all times");
    }
    return this.#derive(record, purpose);
  }

  /** The secrets from which a token may have been derived, newest first; with an id, only the secret of that key. */
  secrets(purpose: SecretPurpose, id: string | undefined): DerivedSecret[] {
    return this.#usable()
      .filter((record) => id === undefined || record.id === id)
      .toReversed()
      .map((record) => this.#derive(record, purpose));
  }

  /** The keys with a private half. */
  #usable(): SigningKeyRecord[] {
    return [...this.#records().values()].filter(({ sealed, isRevoked }) => sealed !== "" && !isRevoked);
  }

  #derive(record: SigningKeyRecord, purpose: SecretPurpose): DerivedSecret {
    const { id, retiresAt } = record;
    const name = `${id} ${purpose}`;
    let secret = this.#secrets.get(name);
    if (secret === undefined) {
      const key = this.#privateKey(record).export({ format: "der", type: "pkcs8" });
      secret = Buffer.from(hkdfSync("sha256", key, "", `millpond ${purpose}`, 32));
      this.#secrets.set(name, secret);
    }
    return { id, secret, retiresAt };
  }

  #privateKey(record: SigningKeyRecord): KeyObject {
    return remember(this.#privateKeys, record.id, () => openSigningKey(this.#poolKey, record));
  }

  #publicKey({ id, publicKey }: SigningKeyRecord): KeyObject {
    return remember(this.#publicKeys, id, () => parseTicketPublicKey(publicKey));
  }
}

function remember(keys: Map<string, KeyObject>, id: string, make: () => KeyObject): KeyObject {
  let key = keys.get(id);
  if (key === undefined) {
    key = make();
    // The id is computed from the key, so that a writer of the database cannot replace the key under it.
    if (ticketKeyId(key) !== id) {
      throw new Error(`the signing key ${id} is another key`);
    }
    keys.set(id, key);
  }
  return key;
}
