// SPDX-License-Identifier: Apache-2.0

import type { KeyObject } from "node:crypto";
import {
  type FindKeys,
  millpondError,
  parseTicketPublicKey,
  type SyncResponse,
  ticketKeyId,
} from "@millpond/api";

interface TicketKey {
  readonly text: string;
  readonly key: KeyObject;
  /** Unix seconds; 0: no end. */
  readonly acceptedUntil: number;
}

/** The controller's keys that tickets may be signed with, by id. */
export class TicketKeys {
  #keys: ReadonlyMap<string, TicketKey> = new Map();

  /**
   * Stores the keys of an answer; changes nothing when it throws.
   *
   * @throws MILLPOND_E_INVALID if a key cannot be read
   */
  learn({ ticketKeys, ticketPublicKey }: Pick<SyncResponse, "ticketKeys" | "ticketPublicKey">): void {
    const known = new Map([...this.#keys.values()].map(({ text, key }) => [text, key]));
    // A controller of an earlier release has only one key, which it does not name.
    const given =
      ticketKeys.length > 0 ? ticketKeys : [{ id: "", publicKey: ticketPublicKey, acceptedUntil: 0n }];
    this.#keys = new Map(
      given.map(({ id, publicKey: text, acceptedUntil }): [string, TicketKey] => {
        const key = known.get(text) ?? parseTicketPublicKey(text);
        const ownId = ticketKeyId(key);
        if (id !== "" && id !== ownId) {
          throw millpondError("MILLPOND_E_INVALID", `the controller names the ticket key ${ownId} ${id}`);
        }
        return [ownId, { text, key, acceptedUntil: Number(acceptedUntil) }];
      }),
    );
  }

  /** Empty until the controller has answered. */
  get ids(): readonly string[] {
    return [...this.#keys.keys()];
  }

  /** Finds the keys that are accepted at a given time. */
  at(nowSeconds: number): FindKeys {
    return (id) =>
      [...this.#keys]
        .filter(([each]) => id === undefined || each === id)
        .filter(([, { acceptedUntil }]) => acceptedUntil === 0 || nowSeconds < acceptedUntil)
        .map(([, { key }]) => key);
  }
}
