// SPDX-License-Identifier: Apache-2.0

import { expect, test } from "vitest";
import { parseListen, resolveOptions } from "./options.ts";

test.each([
  ["127.0.0.1:7170", "127.0.0.1", 7170],
  ["127.8.9.1:0", "127.8.9.1", 0],
  ["localhost:7170", "127.0.0.1", 7170],
  ["[::1]:65535", "::1", 65_535],
])("listens on %s", (text, host, port) => {
  expect(parseListen(text)).toEqual({ host, port });
});

test.each(["0.0.0.0:7170", "10.1.2.3:7170", "[::]:7170", "[::ffff:10.0.0.1]:7170", "128.0.0.1:7170"])(
  "listens beyond loopback on %s with TLS only",
  (listen) => {
    expect(resolveOptions({ stateDirectory: "/s", listen, tlsNames: ["pool.example"] }).tls).toEqual({
      kind: "own",
      names: ["pool.example"],
    });
  },
);

test("a given certificate is for any address, and comes with its key", () => {
  const given = { stateDirectory: "/s", tlsCertificate: "c", tlsKey: "k" };
  expect(resolveOptions(given).tls).toEqual({ kind: "given", certificate: "c", key: "k" });
  expect(resolveOptions({ stateDirectory: "/s" }).tls).toBeUndefined();
  expect(() => resolveOptions({ stateDirectory: "/s", tlsKey: "k" })).toThrow(/together .*INVALID\]$/);
});

test.each([
  "",
  "7170",
  ":7170",
  "127.0.0.1",
  "127.0.0.1:",
  "127.0.0.1:65536",
  "127.0.0.1:-1",
  "::1:7170",
  "example.org:80",
  "127.1:80",
])("refuses the address %j", (text) => {
  expect(() => parseListen(text)).toThrow(/\[MILLPOND_E_INVALID\]$/);
});

test("options get their defaults and are checked", () => {
  expect(resolveOptions({ stateDirectory: "/state" })).toMatchObject({
    host: "127.0.0.1",
    port: 7170,
    userTokens: [],
  });
  expect(() => resolveOptions({ stateDirectory: "" })).toThrow(/\[MILLPOND_E_INVALID\]$/);
  expect(() => resolveOptions({ stateDirectory: "/s", userTokens: ["short"] })).toThrow(
    /\[MILLPOND_E_INVALID\]$/,
  );
  expect(() => resolveOptions({ stateDirectory: "/s", agentTokens: ["with blanks in it 123"] })).toThrow(
    /INVALID/,
  );
});
