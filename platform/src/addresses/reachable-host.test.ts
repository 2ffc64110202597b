// SPDX-License-Identifier: Apache-2.0

import fc from "fast-check";
import { expect, test } from "vitest";
import { isOwnHost } from "./reachable-host.ts";

test.each([
  "127.0.0.1:7170",
  "127.0.0.1",
  "[::1]:7170",
  "localhost:7170",
  "LOCALHOST.",
  "a.localhost",
  "10.0.0.7:1",
])("%s is this server", (host) => expect(isOwnHost(host)).toBe(true));

test("a name that the server was given is its own, and no longer one", () => {
  expect(isOwnHost("Pool.example.org:7170", ["pool.example.org"])).toBe(true);
  expect(isOwnHost("evil.pool.example.org", ["pool.example.org"])).toBe(false);
});

test("no other name is, whatever stands around an address", () => {
  expect(isOwnHost(undefined)).toBe(false);
  const label = fc.stringMatching(/^[a-z]([a-z0-9-]{0,20}[a-z0-9])?$/);
  const name = fc.tuple(fc.constantFrom("127.0.0.1.", "localhost.", "1", ""), label, label);
  fc.assert(
    fc.property(name, fc.constantFrom("", ":80", ":7170"), ([before, first, second], port) => {
      fc.pre(second !== "localhost");
      expect(isOwnHost(`${before}${first}.${second}${port}`)).toBe(false);
      expect(isOwnHost(`${before}${first}@127.0.0.1${port}`)).toBe(false);
      expect(isOwnHost(`127.0.0.1,${first}.${second}`)).toBe(false);
    }),
  );
});
