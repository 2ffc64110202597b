// SPDX-License-Identifier: Apache-2.0

import { randomBytes, timingSafeEqual } from "node:crypto";
import { millpondError } from "@millpond/api";
import { type Caller, oidcPrefix, type OidcLogin } from "../domain/caller.ts";
import type { TokenRecord } from "../domain/records.ts";
import type { DerivedSecret, KeyRing } from "./key-ring.ts";
import { sealOf } from "./tokens.ts";

/** The token that a program token was created with. */
export type CreatorToken = Pick<TokenRecord, "hash" | "expiresAt">;

/** How long a program's token stays valid after the key from which it was derived has retired. */
const afterRetirementSeconds = 7 * 86_400;

/** Looks up the credential that a program token depends on. */
export interface Creators {
  /** A token by its name; undefined: it does not exist. */
  readonly find: (name: string) => CreatorToken | undefined;
  /** Whether neither the login by an OpenID provider nor its rule has been ended. */
  readonly holds: (login: OidcLogin & { readonly expiresAt: number }) => boolean;
}

/** The credential that created a program token, as the token records it and in its current state. */
interface Creator extends CreatorToken {
  readonly name: string;
}

/**
 * Tokens of programs that create claims for themselves. They are sealed with a key that only controllers of this pool
 * have, so none is stored. No token outlives the credential that created it: the seal covers the hash of a stored
 * token, or a login with its rule and its end.
 */
export class ProgramTokens {
  readonly #keys: KeyRing;
  readonly #creators: Creators;
  readonly #now: () => number;

  /** @param now Unix seconds. */
  constructor(keys: KeyRing, creators: Creators, now: () => number) {
    this.#keys = keys;
    this.#creators = creators;
    this.#now = now;
  }

  /**
   * @param tenant The tenant of the claims that it may create.
   * @returns The token, and the Unix seconds at which it ends; null: it ends with its creator's token.
   * @throws MILLPOND_E_UNAUTHENTICATED
   */
  make(
    caller: Pick<Caller, "name" | "login" | "expiresAt">,
    tenant: string,
  ): { readonly secret: string; readonly expiresAt: number | null } {
    const reference = referenceOf(caller);
    const creator = this.#creatorOf(reference);
    if (creator === undefined) {
      throw millpondError("MILLPOND_E_UNAUTHENTICATED", `the token ${caller.name} was revoked meanwhile`);
    }
    const key = this.#keys.secret("program tokens");
    const said = `${randomBytes(16).toString("base64url")}.${tenant}.${reference}.${key.id}`;
    return { secret: `mp-program-${said}.${seal(said, creator, key)}`, expiresAt: creator.expiresAt };
  }

  /** Undefined if the token is not ours, or the credential that created it no longer exists. */
  verify(text: string): Caller | "expired" | undefined {
    const match =
      /^mp-program-(([\w-]{22})\.([a-z0-9-]{1,63})\.([a-z0-9:-]{1,63}|oidc:[\w-]{2,86}\.[\w-]{11}\.[0-9a-z]{1,9}\.[0-9a-f]{16})(?:\.([0-9a-f]{16}))?)\.([\w-]{43})$/.exec(
        text,
      );
    if (match === null) {
      return undefined;
    }
    const [, said = "", program = "", tenant = "", reference = "", id, code = ""] = match;
    const creator = this.#creatorOf(reference);
    const isOurs =
      creator !== undefined &&
      this.#keys
        .secrets("program tokens", id)
        .some(
          (key) =>
            (key.retiresAt === null || this.#now() < key.retiresAt + afterRetirementSeconds) &&
            timingSafeEqual(Buffer.from(seal(said, creator, key)), Buffer.from(code)),
        );
    if (!isOurs) {
      return undefined;
    }
    if (creator.expiresAt !== null && creator.expiresAt <= this.#now()) {
      return "expired";
    }
    return {
      name: `program:${creator.name}`,
      role: "program",
      tenant,
      madeAt: 0,
      program,
      creator: creator.name,
      ...(creator.expiresAt !== null && { expiresAt: creator.expiresAt }),
    };
  }

  #creatorOf(reference: string): Creator | undefined {
    const [, user, rule, end, id] = /^oidc:([\w-]+)\.([\w-]+)\.([0-9a-z]+)\.(\w+)$/.exec(reference) ?? [];
    if (user === undefined || rule === undefined || end === undefined || id === undefined) {
      const token = this.#creators.find(reference);
      return token === undefined
        ? undefined
        : { name: reference, hash: token.hash, expiresAt: token.expiresAt };
    }
    const expiresAt = Number.parseInt(end, 36);
    if (!this.#creators.holds({ id, rule, expiresAt })) return undefined;
    // The reference itself is under the seal.
    return {
      name: oidcPrefix + Buffer.from(user, "base64url").toString("utf8"),
      hash: "",
      expiresAt,
    };
  }
}

/** A stored token by its name; a login by its user, rule, end and id. */
function referenceOf({ name, login, expiresAt = 0 }: Pick<Caller, "name" | "login" | "expiresAt">): string {
  if (login === undefined) return name;
  const user = Buffer.from(name.slice(oidcPrefix.length), "utf8").toString("base64url");
  return `${oidcPrefix}${user}.${login.rule}.${expiresAt.toString(36)}.${login.id}`;
}

function seal(said: string, { hash }: CreatorToken, key: DerivedSecret): string {
  return sealOf(`${said}.${hash}`, key);
}
