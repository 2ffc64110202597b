// SPDX-License-Identifier: Apache-2.0

import { randomBytes } from "node:crypto";
import type { LoginRecord } from "../domain/records.ts";

/** A login ends after a working day, whatever its token. */
export const loginSeconds = 12 * 3600;

/**
 * How long a login is accepted without a record, which may be under way from the controller that leads: the clocks of controllers
 * differ, too.
 */
const underWaySeconds = 60;

/** Records of ended logins are kept for this long after the logins were made: until none is accepted without a record. */
export const revokedSeconds = 5 * underWaySeconds;

/** What a cookie or a token says of its login. */
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

  /** A new one, which is not recorded yet. */
  begin(): LoginStamp {
    return { id: randomBytes(8).toString("hex"), madeAt: this.#now() };
  }

  isActive({ id, madeAt }: LoginStamp): boolean {
    const record = this.#find(id);
    return record === undefined ? Math.abs(this.#now() - madeAt) < underWaySeconds : !record.isRevoked;
  }
}
