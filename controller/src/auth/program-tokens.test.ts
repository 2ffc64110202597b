// SPDX-License-Identifier: Apache-2.0
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, describe, expect, test } from "vitest";
import { maxOidcNameBytes } from "../domain/caller.ts";
import type { LoginRecord } from "../domain/records.ts";
import { PoolKey } from "../state/pool-key.ts";
import { makeSigningKey } from "../state/signing-keys.ts";
import { ActiveLogins } from "./active-logins.ts";
import { KeyRing } from "./key-ring.ts";
import type { OidcRule } from "./oidc-config.ts";
import { OidcTokens } from "./oidc-tokens.ts";
import { type CreatorToken, ProgramTokens } from "./program-tokens.ts";
import { isToken } from "./tokens.ts";

const scratch = mkdtempSync(join(tmpdir(), "millpond-program-tokens-"));
afterAll(() => rmSync(scratch, { recursive: true }));
const poolKey = PoolKey.readOrMake(join(scratch, "pool.key"));
const signingKey = makeSigningKey(poolKey, { now: 1_800_000_000, revision: 0 });
const rule: OidcRule = { id: "abcdefghijk", group: "vision", role: "user", tenant: "vision" };

/** A pool with one stored token, `ann`, and one rule for logins. */
class Fixture {
  now = 1_800_000_000;
  rules: OidcRule[] = [rule];
  readonly records = new Map<string, LoginRecord>();
  readonly stored = new Map<string, CreatorToken>([["ann", { hash: "11".repeat(32), expiresAt: null }]]);
  readonly #keys = new KeyRing(
    poolKey,
    () => new Map([[signingKey.id, signingKey]]),
    () => this.now,
  );

  get logins(): OidcTokens {
    const find = (id: string) => this.records.get(id);
    const now = () => this.now;
    return new OidcTokens(this.#keys, this.rules, new ActiveLogins(find, now), now);
  }

  get programs(): ProgramTokens {
    return new ProgramTokens(
      this.#keys,
      { find: (name) => this.stored.get(name), holds: (login) => this.logins.holds(login) },
      () => this.now,
    );
  }

  /** The caller that a login authenticates. */
  login(name: string) {
    const caller = this.logins.verify(this.logins.make({ name, rule }));
    if (caller === undefined || caller === "expired" || caller.login === undefined) {
      throw new Error("the login is not valid");
    }
    const { id } = caller.login;
    this.records.set(id, {
      id,
      who: name,
      tenant: "vision",
      kind: "console",
      createdAt: this.now,
      expiresAt: caller.expiresAt ?? 0,
      isRevoked: false,
    });
    return { ...caller, login: caller.login };
  }
}

describe("of a stored token", () => {
  test("is its creator's, and ends with it", () => {
    const pool = new Fixture();
    const { secret, expiresAt } = pool.programs.make({ name: "ann" }, "vision");
    expect(expiresAt).toBe(null);
    expect(pool.programs.verify(secret)).toMatchObject({ role: "program", tenant: "vision", creator: "ann" });
    pool.stored.set("ann", { hash: "22".repeat(32), expiresAt: null });
    expect(pool.programs.verify(secret), "another token of the name").toBe(undefined);
    pool.stored.delete("ann");
    expect(pool.programs.verify(secret)).toBe(undefined);
    expect(() => pool.programs.make({ name: "ann" }, "vision")).toThrow(/MILLPOND_E_UNAUTHENTICATED/);
  });
});

describe("of a login by an OpenID provider", () => {
  test("is the user's, and ends with the login", () => {
    const pool = new Fixture();
    const ann = pool.login("Ann@example.org");
    pool.now += 3600;
    const { secret, expiresAt } = pool.programs.make(ann, "vision");
    expect(expiresAt).toBe(ann.expiresAt);
    expect(pool.programs.verify(secret)).toMatchObject({
      name: "program:oidc:Ann@example.org",
      role: "program",
      tenant: "vision",
      creator: "oidc:Ann@example.org",
    });
    pool.now = (ann.expiresAt ?? 0) - 1;
    expect(pool.programs.verify(secret)).toMatchObject({ role: "program" });
    pool.now += 1;
    expect(pool.programs.verify(secret)).toBe("expired");
  });

  test("ends when the login is ended", () => {
    const pool = new Fixture();
    const ann = pool.login("ann");
    const { secret } = pool.programs.make(ann, "vision");
    pool.now += 3600;
    expect(pool.programs.verify(secret)).toMatchObject({ role: "program" });
    pool.records.delete(ann.login.id);
    expect(pool.programs.verify(secret)).toBe(undefined);
  });

  test("ends with the rule that gave the rights", () => {
    const pool = new Fixture();
    const { secret } = pool.programs.make(pool.login("ann"), "vision");
    pool.rules = [{ ...rule, id: "lmnopqrstuv" }];
    expect(pool.programs.verify(secret)).toBe(undefined);
  });

  test("fits into a header, whatever the names", () => {
    const pool = new Fixture();
    const { secret } = pool.programs.make(pool.login("a".repeat(maxOidcNameBytes)), "t".repeat(63));
    expect(isToken(secret)).toBe(true);
    expect(pool.programs.verify(secret)).toMatchObject({ tenant: "t".repeat(63) });
  });

  test("is refused with any other character anywhere", () => {
    const pool = new Fixture();
    const { secret } = pool.programs.make(pool.login("ann"), "vision");
    const forged = Array.from(
      { length: secret.length - "mp-program-".length },
      (_, i) => i + "mp-program-".length,
    )
      .flatMap((at) =>
        ["a", "b", "0", "1", ".", "-"].map((other) => secret.slice(0, at) + other + secret.slice(at + 1)),
      )
      .filter((text) => text !== secret);
    expect(forged.filter((text) => pool.programs.verify(text) !== undefined)).toEqual([]);
  });
});
