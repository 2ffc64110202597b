// SPDX-License-Identifier: Apache-2.0

import { X509Certificate } from "node:crypto";
import { readFileSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { makeTestDirectory } from "./testing/test-pool.ts";
import { authorityPath } from "@millpond/api";
import { readCertificate } from "./tls.ts";

test("the own authority is made once and signs a new certificate each time", () => {
  const directory = makeTestDirectory();
  const own = { kind: "own", names: ["pool.example", "10.9.8.7"] } as const;
  const first = readCertificate(own, directory);
  const authority = new X509Certificate(readFileSync(authorityPath(directory)));
  const second = readCertificate(own, directory);
  expect(second.key).not.toBe(first.key);
  for (const { certificate } of [first, second]) {
    const leaf = new X509Certificate(certificate);
    expect(leaf.verify(authority.publicKey)).toBe(true);
    expect(leaf.checkHost("pool.example")).toBe("pool.example");
    expect(leaf.checkHost("localhost")).toBe("localhost");
    expect(leaf.checkIP("10.9.8.7")).toBe("10.9.8.7");
    expect(leaf.checkIP("127.0.0.1")).toBe("127.0.0.1");
  }
  expect(statSync(join(directory, "tls", "ca.key")).mode & 0o777).toBe(0o600);
});

test("a certificate that does not belong to its key, or is none, is refused", () => {
  const directory = makeTestDirectory();
  const one = readCertificate({ kind: "own", names: [] }, directory);
  const other = readCertificate({ kind: "own", names: [] }, directory);
  const certificate = join(directory, "cert.pem");
  const key = join(directory, "key.pem");
  writeFileSync(certificate, one.certificate);
  writeFileSync(key, one.key);
  expect(readCertificate({ kind: "given", certificate, key }, directory)).toEqual(one);
  writeFileSync(key, other.key);
  expect(() => readCertificate({ kind: "given", certificate, key }, directory)).toThrow(/MILLPOND_E_TLS\]$/);
  writeFileSync(certificate, "nothing");
  expect(() => readCertificate({ kind: "given", certificate, key }, directory)).toThrow(/MILLPOND_E_TLS\]$/);
});
