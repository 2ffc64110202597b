// SPDX-License-Identifier: Apache-2.0

import { randomBytes } from "node:crypto";
import type { LoginRecord } from "../domain/records.ts";

/** A login ends after a working day, whatever its token. */
export const loginSeconds = 12 * 3600;

/**
 * How long a login is accepted before its record has arrived from the leader. The limit also covers the difference
 * between the controllers' clocks.
 */
const underWaySeconds = 60;

/**
 * How long records of ended logins are kept after the login: until no login of that time is accepted without a record.
 */
export const revokedSeconds = 5 * underWaySeconds;

/** The data about its login that a cookie or token carries. */
export interface LoginStamp {
  readonly id: string;
  readonly madeAt: number;
}

/** Knows which logins have not been ended. Each is recorded before its cookie or token is handed out. */
export class ActiveLogins {
  readonly #find: (id: string) => LoginRecord | undefined;
  readonly #now: () => number;

  /** @param now Unix seconds. */
  constructor(find: (id: string) => LoginRecord | undefined, now: () => number) {
    this.#find = find;
    this.#now = now;
  }

  /** Creates a login, which is not recorded yet. */
  begin(): LoginStamp {
    return { id: randomBytes(8).toString("hex"), madeAt: this.#now() };
  }

  isActive({ id, madeAt }: LoginStamp): boolean {
    const record = this.#find(id);
    return record === undefined ? Math.abs(this.#now() - madeAt) < underWaySeconds : !record.isRevoked;
  }
}
