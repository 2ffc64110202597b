// SPDX-License-Identifier: Apache-2.0

import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { readOidcConfig } from "./oidc-config.ts";

const least = {
  issuer: "https://id.example.org/realms/gpu",
  clientId: "millpond",
  rules: [{ group: "*", role: "user", tenant: "default" }],
};

function read(value: unknown) {
  const directory = mkdtempSync(join(tmpdir(), "millpond-oidc-"));
  onTestFinished(() => rmSync(directory, { recursive: true, force: true }));
  writeFileSync(join(directory, "secret"), " s3cret\n");
  writeFileSync(join(directory, "empty"), "\n");
  const path = join(directory, "oidc.json");
  writeFileSync(path, typeof value === "string" ? value : JSON.stringify(value));
  return readOidcConfig(path);
}

test("what a file leaves out has a default, and a secret is beside it", () => {
  expect(read({ ...least, clientSecretFile: "secret", url: "https://pool.example.org/" })).toMatchObject({
    clientSecret: "s3cret",
    url: "https://pool.example.org",
    label: "id.example.org",
    scopes: ["openid", "profile"],
    nameClaim: "sub",
    groupsClaim: "groups",
    clockToleranceSeconds: 30,
  });
  expect(read({ ...least, issuer: "http://127.0.0.1:8080" }).clientSecret).toBe("");
});

test("a rule is another when its provider, group, role or tenant is", () => {
  const idOf = (value: object) => read({ ...least, ...value }).rules[0]?.id;
  const ids = [
    {},
    { issuer: "https://other.example.org" },
    { rules: [{ group: "a", role: "user", tenant: "default" }] },
    { rules: [{ group: "*", role: "tenant-admin", tenant: "default" }] },
    { rules: [{ group: "*", role: "user", tenant: "a" }] },
    { rules: [{ group: "*", role: "admin" }] },
  ].map(idOf);
  expect(new Set(ids).size).toBe(ids.length);
  expect(idOf({ label: "another" })).toBe(ids[0]);
});

test.each([
  ["{", /it cannot be read/],
  [[], /it is not an object/],
  [{ ...least, group: "x" }, /no member "group"/],
  [{ ...least, issuer: undefined }, /issuer is missing/],
  [{ ...least, issuer: "http://id.example.org" }, /is not encrypted, and not of this host/],
  [{ ...least, issuer: "https://id.example.org/?a=b" }, /is not an address/],
  [{ ...least, issuer: "https://ann:pw@id.example.org/" }, /has a user or a password/],
  [{ ...least, url: "javascript:alert(1)" }, /is not an address/],
  [{ ...least, clientId: 7 }, /clientId is missing, or no text/],
  [{ ...least, clientSecretFile: "none" }, /the secret cannot be read/],
  [{ ...least, clientSecretFile: "empty" }, /has 0 characters/],
  [{ ...least, scopes: "profile" }, /scopes lacks openid/],
  [{ ...least, clockToleranceSeconds: 86_400 }, /not between 0 and 300/],
  [{ ...least, rules: [] }, /not a list of 1 to 1000/],
  [{ ...least, rules: [{ group: "a", role: "agent" }] }, /rule 1: the role "agent" is unknown/],
  [{ ...least, rules: [{ group: "a", role: "user" }] }, /the role user needs a tenant/],
  [{ ...least, rules: [{ group: "a", role: "user", tenant: "Team A" }] }, /the tenant "Team A"/],
  [{ ...least, rules: [{ group: "a", role: "admin", tenant: "a" }] }, /the role admin and the tenant "a"/],
  [{ ...least, rules: [{ group: "", role: "admin" }] }, /group is missing/],
])("%j is refused", (value, message) => {
  expect(() => read(value)).toThrow(message);
});
