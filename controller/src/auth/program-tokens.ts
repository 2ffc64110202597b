// SPDX-License-Identifier: Apache-2.0

import { randomBytes, timingSafeEqual } from "node:crypto";
import { millpondError } from "@millpond/api";
import { type Caller, oidcPrefix } from "../domain/caller.ts";
import type { TokenRecord } from "../domain/records.ts";
import type { DerivedSecret, KeyRing } from "./key-ring.ts";
import { sealOf } from "./tokens.ts";

/** The token that a program token was created with. */
export type CreatorToken = Pick<TokenRecord, "hash" | "expiresAt">;

/** How long programs' tokens are valid after the key of which they were made has retired. */
const afterRetirementSeconds = 7 * 86_400;

/**
 * Tokens of programs that create claims for themselves. They are sealed with a key that only controllers of this pool have, so
 * none is stored; the seal covers the hash of the token that they were created with, so none outlives it.
 */
export class ProgramTokens {
  readonly #keys: KeyRing;
  readonly #find: (creator: string) => CreatorToken | undefined;
  readonly #now: () => number;

  /**
   * @param find A token by its name; undefined: there is none.
   * @param now Unix seconds.
   */
  constructor(keys: KeyRing, find: (creator: string) => CreatorToken | undefined, now: () => number) {
    this.#keys = keys;
    this.#find = find;
    this.#now = now;
  }

  /** @param tenant Of the claims that are created with it. */
  make(creator: Pick<Caller, "name">, tenant: string): string {
    if (creator.name.startsWith(oidcPrefix)) {
      throw millpondError("MILLPOND_E_FORBIDDEN", "a login by OpenID Connect makes no tokens of programs", {
        remedy: "Use a token: an administrator makes one with `millpond token create`.",
      });
    }
    const token = this.#find(creator.name);
    if (token === undefined) {
      throw millpondError("MILLPOND_E_UNAUTHENTICATED", `the token ${creator.name} was revoked meanwhile`);
    }
    const secret = this.#keys.secret("program tokens");
    const said = `${randomBytes(16).toString("base64url")}.${tenant}.${creator.name}.${secret.id}`;
    return `mp-program-${said}.${seal(said, token, secret)}`;
  }

  /** Undefined if the token is not ours, or the token from which it was created no longer exists. */
  verify(text: string): Caller | "expired" | undefined {
    const match =
      /^mp-program-(([\w-]{22})\.([a-z0-9-]{1,63})\.([a-z0-9:-]{1,63})(?:\.([0-9a-f]{16}))?)\.([\w-]{43})$/.exec(
        text,
      );
    if (match === null) {
      return undefined;
    }
    const [, said = "", program = "", tenant = "", creator = "", id, code = ""] = match;
    const token = this.#find(creator);
    const isOurs =
      token !== undefined &&
      this.#keys
        .secrets("program tokens", id)
        .some(
          (secret) =>
            (secret.retiresAt === null || this.#now() < secret.retiresAt + afterRetirementSeconds) &&
            timingSafeEqual(Buffer.from(seal(said, token, secret)), Buffer.from(code)),
        );
    if (!isOurs) {
      return undefined;
    }
    if (token.expiresAt !== null && token.expiresAt <= this.#now()) {
      return "expired";
    }
    return { name: `program:${creator}`, role: "program", tenant, madeAt: 0, program, creator };
  }
}

function seal(said: string, { hash }: CreatorToken, secret: DerivedSecret): string {
  return sealOf(`${said}.${hash}`, secret);
}
