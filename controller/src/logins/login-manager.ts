// SPDX-License-Identifier: Apache-2.0

// Where browsers log in and out. Any controller of the pool makes logins; the leader records them.

import type { DescMethodUnary, MessageInitShape } from "@bufbuild/protobuf";
import { AccessService } from "@millpond/api";
import type { CallLimits } from "../auth/call-limits.ts";
import type { Caller } from "../domain/caller.ts";
import type { Pool } from "../pool/pool.ts";
import { audited, AuditedCall } from "../state/audit.ts";
import { createLogin, type NewLogin, revokeLogin } from "./logins.ts";

/** A user, with the token that the controller has just verified. */
export interface VerifiedUser {
  readonly token: string;
  readonly caller: Caller;
}

/** The leader, as followers call it. */
export interface LeaderCalls {
  /** Calls the leader on behalf of a user. */
  callAs<I extends DescMethodUnary>(
    method: I,
    request: MessageInitShape<I["input"]>,
    token: string,
  ): Promise<void>;
}

export interface LoginManagerOptions {
  readonly pool: () => Pool;
  readonly isLeading: () => boolean;
  readonly leader: LeaderCalls;
  readonly limits: CallLimits;
}

export class LoginManager {
  readonly #options: LoginManagerOptions;

  constructor(options: LoginManagerOptions) {
    this.#options = options;
  }

  /**
   * Records a login. Its cookie or token is handed out afterwards.
   *
   * @throws MILLPOND_E_TOO_MANY_CALLS; MILLPOND_E_NOT_LEADER when no controller leads
   */
  async open({ token, caller }: VerifiedUser, { id, kind }: NewLogin): Promise<void> {
    if (!this.#options.isLeading()) {
      await this.#options.leader.callAs(AccessService.method.createLogin, { id, kind }, token);
      return;
    }
    await this.#change(
      caller,
      "CreateLogin",
      id,
      async (pool) => await createLogin(pool, caller, { id, kind }),
    );
  }

  /**
   * Ends a login.
   *
   * @throws as `open`, and MILLPOND_E_NOT_FOUND
   */
  async end({ token, caller }: VerifiedUser, id: string): Promise<void> {
    if (!this.#options.isLeading()) {
      await this.#options.leader.callAs(AccessService.method.revokeLogin, { id }, token);
      return;
    }
    await this.#change(caller, "RevokeLogin", id, async (pool) => {
      await revokeLogin(pool, caller, id);
    });
  }

  /** Makes a change as the method of the API would: within the limits of the caller, and recorded in the audit. */
  async #change(
    caller: Caller,
    method: string,
    id: string,
    change: (pool: Pool) => Promise<void>,
  ): Promise<void> {
    const { pool, limits } = this.#options;
    using _admission = await limits.enter(caller, "change");
    const call = new AuditedCall(caller, {
      what: `AccessService/${method}`,
      subject: `login/${id}`,
      why: "",
    });
    await audited(
      call,
      async () => await change(pool()),
      async (result) => {
        await pool().ledger.change({
          make: (transaction) => {
            transaction.audit.push(call.toEntry(transaction.now, result));
          },
        });
      },
    );
  }
}
