// SPDX-License-Identifier: Apache-2.0

// The hash chain of the audit: the hash of each record covers the previous record, so that a modified, removed or inserted
// record is detected. Databases compute the same hash in their own language.

import { createHash } from "node:crypto";

/** The input of a record's hash, besides the hash of the previous record. */
export interface ChainedRecord {
  readonly at: number | bigint;
  readonly who: string;
  readonly role: string;
  readonly tenant: string;
  readonly what: string;
  readonly subject: string;
  readonly why: string;
  readonly result: string;
}

/**
 * SHA-256, hexadecimal, over the previous hash and each member as `<bytes>:<text>`, so that no two records have the same text.
 *
 * @param previous Hash of the previous record; empty: it is the first.
 */
export function auditHash(previous: string, record: ChainedRecord): string {
  const { at, who, role, tenant, what, subject, why, result } = record;
  const hash = createHash("sha256");
  for (const text of [previous, String(at), who, role, tenant, what, subject, why, result]) {
    hash.update(`${Buffer.byteLength(text)}:${text}`);
  }
  return hash.digest("hex");
}

/** A link of the chain, as read. */
export interface AuditLink extends ChainedRecord {
  readonly id: number | bigint;
  /** Empty: the record was written before records were chained. */
  readonly hash: string;
  /** Hash of the previous record. */
  readonly previousHash: string;
}

/** Checks records in order of their ids. */
export class AuditChain {
  #last: AuditLink | undefined;
  #records = 0;
  #unchained = 0;

  /** The last record that was added. */
  get last(): AuditLink | undefined {
    return this.#last;
  }

  /** The number of records in the chain. */
  get records(): number {
    return this.#records;
  }

  /** The number of records that were written before records were chained. */
  get unchained(): number {
    return this.#unchained;
  }

  /** @returns what is wrong with the record, for display; undefined: nothing */
  add(record: AuditLink): string | undefined {
    const last = this.#last;
    this.#last = record;
    if (record.hash === "" && (last === undefined || last.hash === "")) {
      this.#unchained += 1;
      return undefined;
    }
    this.#records += 1;
    if (record.hash !== auditHash(record.previousHash, record)) {
      return `record ${record.id} was changed after it was written`;
    }
    // Older records have been dropped, so the predecessor of the first record cannot be checked.
    if (last !== undefined && record.previousHash !== last.hash) {
      return `records between ${last.id} and ${record.id} were removed, added or reordered`;
    }
    return undefined;
  }
}
