// SPDX-License-Identifier: Apache-2.0

import { createHmac, hash, randomBytes, timingSafeEqual } from "node:crypto";
import { chmodSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { millpondError } from "@millpond/api";
import { makeFileOnce } from "@millpond/platform";
import type { Caller, StoredRole } from "../domain/caller.ts";
import type { ClaimRecord, TokenRecord } from "../domain/records.ts";
import type { DerivedSecret, KeyRing } from "./key-ring.ts";

/** The tokens that exist from the start: `user` is an administrator's, `agent` an agent's. */
export type TokenFile = "user" | "agent";

/** Name of a token's file in the state directory. */
export function tokenFileName(file: TokenFile): string {
  return `${file}.token`;
}

/**
 * Reads a token from the state directory, or creates it there. The file has mode 0600.
 *
 * @throws MILLPOND_E_STATE_BROKEN
 */
export function readOrMakeToken(directory: string, file: TokenFile): string {
  const path = join(directory, tokenFileName(file));
  try {
    makeFileOnce(path, `${makeSecret(file)}\n`);
    chmodSync(path, 0o600);
    const token = readFileSync(path, "utf8").trim();
    if (!isToken(token)) {
      throw new Error("it does not hold 16 to 384 printable characters");
    }
    return token;
  } catch (cause) {
    const message = cause instanceof Error ? cause.message : String(cause);
    throw millpondError("MILLPOND_E_STATE_BROKEN", `the token in ${path} cannot be used: ${message}`, {
      cause,
    });
  }
}

/**
 * Whether the text can be a token: long enough, and allowed in a header. The longest is the token of a program that a
 * login created.
 */
export function isToken(text: string): boolean {
  return /^[\x21-\x7e]{16,384}$/.test(text);
}

/** A token that is known without the store. */
export interface FixedToken {
  readonly secret: string;
  readonly caller: Caller;
}

/** The result of checking a bearer token: its caller, or the cause of the refusal. */
export type Verification = Caller | "unknown" | "expired";

/** A kind of token that is derived from a key of the pool. */
interface DerivedTokens {
  /** Undefined: the token is not of this kind. */
  verify(secret: string): Verification | undefined;
}

/** Knows tokens by their hashes: the fixed ones passed to the constructor, and those currently in the store. */
export class TokenVerifier {
  readonly #fixed: readonly { readonly hash: Buffer; readonly caller: Caller }[];
  readonly #findStored: (hash: string) => TokenRecord | undefined;
  readonly #now: () => number;
  readonly #derived: readonly DerivedTokens[];

  /**
   * @param findStored By SHA-256, hexadecimal.
   * @param now Unix seconds.
   * @param derived Kinds of tokens that are not stored.
   */
  constructor(
    fixed: readonly FixedToken[],
    findStored: (hash: string) => TokenRecord | undefined,
    now: () => number,
    derived: readonly DerivedTokens[] = [],
  ) {
    this.#derived = derived;
    this.#fixed = fixed.map(({ secret, caller }) => ({ hash: sha256(secret), caller }));
    this.#findStored = findStored;
    this.#now = now;
  }

  /**
   * Looks up the owner of a token. Timing discloses something about hashes, which callers cannot choose, not about
   * secrets.
   */
  verify(secret: string): Verification {
    for (const kind of this.#derived) {
      const derived = kind.verify(secret);
      if (derived !== undefined) {
        return derived;
      }
    }
    const digest = sha256(secret);
    const stored = this.#findStored(digest.toString("hex"));
    let caller: Caller | undefined;
    for (const known of this.#fixed) {
      if (timingSafeEqual(digest, known.hash)) {
        caller = known.caller;
      }
    }
    if (caller !== undefined) {
      return caller;
    }
    if (stored === undefined) {
      return "unknown";
    }
    const { name, role, tenant, node, expiresAt, revision: madeAt } = stored;
    if (expiresAt !== null && expiresAt <= this.#now()) {
      return "expired";
    }
    return {
      name,
      role,
      tenant,
      madeAt,
      ...(expiresAt !== null && { expiresAt }),
      ...(role === "agent" && { node }),
    };
  }
}

type TokenClaim = Pick<ClaimRecord, "name" | "tenant" | "createdAt">;

/**
 * Tokens of programs, each of one claim. They are derived from the claim by a key that only controllers of this pool
 * have, so none is stored, and none outlives its claim: it gives access to that claim and to no later one of the same
 * name. After a rotation, tokens of an earlier key are valid for claims that existed when it retired.
 */
export class ClaimTokens {
  readonly #keys: KeyRing;

  constructor(keys: KeyRing) {
    this.#keys = keys;
  }

  make({ name, tenant, createdAt }: TokenClaim): string {
    const secret = this.#keys.secret("claim tokens");
    const said = `${name}.${tenant}.${createdAt}.${secret.id}`;
    return `mp-claim-${said}.${sealOf(said, secret)}`;
  }

  /** Undefined when the token was not issued by this pool. */
  verify(token: string): Caller | undefined {
    const match =
      /^mp-claim-(([a-z0-9-]{1,63})\.([a-z0-9-]{1,63})\.(\d{1,15})(?:\.([0-9a-f]{16}))?)\.([\w-]{43})$/.exec(
        token,
      );
    if (match === null) {
      return undefined;
    }
    const [, said = "", name = "", tenant = "", createdAt = "", id, seal = ""] = match;
    const isOurs = this.#keys
      .secrets("claim tokens", id)
      .some(
        (secret) =>
          (secret.retiresAt === null || Number(createdAt) <= secret.retiresAt) &&
          timingSafeEqual(Buffer.from(sealOf(said, secret)), Buffer.from(seal)),
      );
    if (!isOurs) {
      return undefined;
    }
    return {
      name: `claim:${name}`,
      role: "claim",
      tenant,
      madeAt: 0,
      claim: { name, createdAt: Number(createdAt) },
    };
  }
}

/** The MAC of a token's content, made with a derived secret. */
export function sealOf(said: string, { secret }: DerivedSecret): string {
  return createHmac("sha256", secret).update(said).digest("base64url");
}

/** The token in a header `Authorization: Bearer <token>`; undefined: there is none. */
export function parseBearer(header: string | null | undefined): string | undefined {
  const token = /^Bearer +(\S+)$/i.exec(header ?? "")?.[1];
  return token !== undefined && isToken(token) ? token : undefined;
}

/** A new secret: 256 random bits, and a prefix that identifies it for people and scanners. */
export function makeSecret(role: StoredRole): string {
  return `mp-${role}-${randomBytes(32).toString("base64url")}`;
}

/** The stored form of a secret. Slow hashing would protect guessable secrets; these are not. */
export function hashOf(secret: string): string {
  return sha256(secret).toString("hex");
}

function sha256(text: string): Buffer {
  return hash("sha256", text, "buffer");
}
