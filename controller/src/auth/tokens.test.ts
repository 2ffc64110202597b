// SPDX-License-Identifier: Apache-2.0

import { chmodSync, readdirSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import fc from "fast-check";
import { expect, test } from "vitest";
import type { Caller } from "../domain/caller.ts";
import type { TokenRecord } from "../domain/records.ts";
import { makeTestDirectory } from "../testing/test-pool.ts";
import { hashOf, isToken, makeSecret, parseBearer, readOrMakeToken, TokenVerifier } from "./tokens.ts";

test("a token is made once, for its owner only, and one for each role", () => {
  const directory = makeTestDirectory();
  const user = readOrMakeToken(directory, "user");
  const agent = readOrMakeToken(directory, "agent");
  expect(isToken(user)).toBe(true);
  expect(user).not.toBe(agent);
  chmodSync(join(directory, "user.token"), 0o644);
  expect(readOrMakeToken(directory, "user")).toBe(user);
  expect(statSync(join(directory, "user.token")).mode & 0o777).toBe(0o600);
  expect(readdirSync(directory).sort()).toEqual(["agent.token", "user.token"]);
});

test.each([
  ["empty", ""],
  ["short", "abc"],
  ["two lines", "0123456789abcdef\n0123456789abcdef"],
])("a token file that is %s is refused", (_what, content) => {
  const directory = makeTestDirectory();
  writeFileSync(join(directory, "user.token"), content);
  expect(() => readOrMakeToken(directory, "user")).toThrow(
    /user\.token cannot be used.*\[MILLPOND_E_STATE_BROKEN\]$/,
  );
});

const admin: Caller = { name: "file:user", role: "admin", tenant: "", madeAt: 0 };

function verifierOf(fixed: readonly string[], stored: readonly TokenRecord[] = [], now = 0): TokenVerifier {
  return new TokenVerifier(
    fixed.map((secret) => ({ secret, caller: admin })),
    (hash) => stored.find((token) => token.hash === hash),
    () => now,
  );
}

function storedToken(secret: string, expiresAt: number | null): TokenRecord {
  const hash = hashOf(secret);
  return {
    name: "ci",
    hash,
    role: "user",
    tenant: "team-a",
    node: "",
    createdAt: 0,
    expiresAt,
    createdBy: "file:user",
    revision: 3,
  };
}

test("the verifier knows every token and nothing else", () => {
  const verifier = verifierOf(["user-token-000001", "user-token-000002"]);
  expect(verifier.verify("user-token-000001")).toBe(admin);
  expect(verifier.verify("user-token-000002")).toBe(admin);
  for (const token of ["", "user-token-00000", "user-token-0000011", "USER-TOKEN-000001"]) {
    expect(verifier.verify(token)).toBe("unknown");
  }
});

test("a stored token is good until the second in which it expires", () => {
  const secret = makeSecret("user");
  const ci = { name: "ci", role: "user", tenant: "team-a", madeAt: 3 };
  expect(verifierOf([], [storedToken(secret, null)], 1e9).verify(secret)).toEqual(ci);
  expect(verifierOf([], [storedToken(secret, 100)], 99).verify(secret)).toEqual({ ...ci, expiresAt: 100 });
  expect(verifierOf([], [storedToken(secret, 100)], 100).verify(secret)).toBe("expired");
});

test("no text but the token itself is taken for it", () => {
  const secret = makeSecret("user");
  const verifier = verifierOf([makeSecret("admin")], [storedToken(secret, null)]);
  const edit = fc.record({
    at: fc.nat(secret.length - 1),
    cut: fc.nat(3),
    put: fc.string({ unit: "binary-ascii", maxLength: 3 }),
  });
  fc.assert(
    fc.property(edit, ({ at, cut, put }) => {
      const text = secret.slice(0, at) + put + secret.slice(at + cut);
      fc.pre(text !== secret);
      expect(verifier.verify(text)).toBe("unknown");
      // A blank after the token or before it is not part of it.
      const parsed = parseBearer(`Bearer ${text}`);
      expect(parsed === undefined || parsed === secret || verifier.verify(parsed) === "unknown").toBe(true);
    }),
  );
});

test("any header is parsed to a token that could be one, or to none", () => {
  const header = fc.oneof(
    fc.string({ unit: "binary" }),
    fc.string({ unit: "binary" }).map((text) => `Bearer ${text}`),
    fc.string({ unit: "grapheme-ascii", minLength: 16, maxLength: 300 }).map((text) => `bearer  ${text}`),
  );
  fc.assert(
    fc.property(header, (text) => {
      const token = parseBearer(text);
      expect(token === undefined || isToken(token)).toBe(true);
      if (token !== undefined) {
        expect(text.endsWith(token)).toBe(true);
      }
    }),
  );
  expect(parseBearer(`Bearer ${"a".repeat(16)}`)).toBe("a".repeat(16));
  for (const none of [
    null,
    undefined,
    "",
    "Bearer",
    "Basic YTpiYWFhYWFhYWFhYWFh",
    `Bearer ${"a".repeat(385)}`,
  ]) {
    expect(parseBearer(none)).toBeUndefined();
  }
});
