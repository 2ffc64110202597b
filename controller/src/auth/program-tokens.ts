// SPDX-License-Identifier: Apache-2.0

import { createHmac, hkdfSync, type KeyObject, randomBytes, timingSafeEqual } from "node:crypto";
import { millpondError } from "@millpond/api";
import type { Caller } from "../domain/caller.ts";
import type { TokenRecord } from "../domain/records.ts";

/** The token that a program token was created with. */
export type CreatorToken = Pick<TokenRecord, "hash" | "expiresAt">;

/**
 * Tokens of programs that create claims for themselves. They are sealed with a key that only controllers of this pool have, so
 * none is stored; the seal covers the hash of the token that they were created with, so none outlives it.
 */
export class ProgramTokens {
  readonly #key: Buffer;
  readonly #find: (creator: string) => CreatorToken | undefined;
  readonly #now: () => number;

  /**
   * @param ticketKey The private key of the pool's tickets, of which another key is derived.
   * @param find A token by its name; undefined: there is none.
   * @param now Unix seconds.
   */
  constructor(ticketKey: KeyObject, find: (creator: string) => CreatorToken | undefined, now: () => number) {
    const secret = ticketKey.export({ format: "der", type: "pkcs8" });
    this.#key = Buffer.from(hkdfSync("sha256", secret, "", "millpond program tokens", 32));
    this.#find = find;
    this.#now = now;
  }

  /** @param tenant Of the claims that are created with it. */
  make(creator: Pick<Caller, "name">, tenant: string): string {
    const token = this.#find(creator.name);
    if (token === undefined) {
      throw millpondError("MILLPOND_E_UNAUTHENTICATED", `the token ${creator.name} was revoked meanwhile`);
    }
    const said = `${randomBytes(16).toString("base64url")}.${tenant}.${creator.name}`;
    return `mp-program-${said}.${this.#seal(said, token)}`;
  }

  /** Undefined where it is none of ours, or the token that it was created with is no more. */
  verify(secret: string): Caller | "expired" | undefined {
    const match = /^mp-program-(([\w-]{22})\.([a-z0-9-]{1,63})\.([a-z0-9:-]{1,63}))\.([\w-]{43})$/.exec(
      secret,
    );
    if (match === null) {
      return undefined;
    }
    const [, said = "", program = "", tenant = "", creator = "", seal = ""] = match;
    const token = this.#find(creator);
    if (token === undefined || !timingSafeEqual(Buffer.from(this.#seal(said, token)), Buffer.from(seal))) {
      return undefined;
    }
    if (token.expiresAt !== null && token.expiresAt <= this.#now()) {
      return "expired";
    }
    return { name: `program:${creator}`, role: "program", tenant, madeAt: 0, program };
  }

  #seal(said: string, { hash }: CreatorToken): string {
    return createHmac("sha256", this.#key).update(`${said}.${hash}`).digest("base64url");
  }
}
