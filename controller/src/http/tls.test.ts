// SPDX-License-Identifier: Apache-2.0

import { X509Certificate } from "node:crypto";
import { once } from "node:events";
import { readFileSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { connect } from "node:tls";
import { authorityPath, makeAuthority, makeServerCertificate } from "@millpond/platform";
import { pino } from "pino";
import { expect, onTestFinished, test } from "vitest";
import { makeServer } from "./server.ts";
import { makeTestDirectory } from "../testing/test-pool.ts";
import { certificateSource, certificateProblem, readCertificate } from "./tls.ts";
import { TokenVerifier } from "../auth/tokens.ts";

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

test("renewed files are served without a restart, and an invalid one is logged", async () => {
  const directory = makeTestDirectory();
  const [certificate, key] = [join(directory, "cert.pem"), join(directory, "key.pem")];
  const dayMs = 86_400_000;
  const at = (days: number) => new Date(Date.now() + days * dayMs);
  const authority = makeAuthority("Site", { from: at(-20), to: at(20) });
  const give = (from: number, to: number) => {
    const pair = makeServerCertificate(authority, ["127.0.0.1"], { from: at(from), to: at(to) });
    writeFileSync(key, pair.key);
    writeFileSync(certificate, pair.certificate);
    return new X509Certificate(pair.certificate).fingerprint256;
  };
  const lines: string[] = [];
  const log = pino({ level: "error" }, { write: (line: string) => lines.push(line) });
  const says = (pattern: RegExp) => lines.filter((line) => pattern.test(line)).length;

  const expired = give(-10, -1);
  const source = certificateSource({ kind: "given", certificate, key }, directory);
  expect(source.renewalMs).toBeLessThanOrEqual(60_000);
  const server = makeServer({
    certificates: { ...source, renewalMs: 20 },
    tokens: new TokenVerifier(
      [],
      () => undefined,
      () => 0,
    ),
    log,
    shutdown: new AbortController().signal,
    handlers: () => new Map(),
    checkHealth: async () => undefined,
    metrics: {},
  });
  const { port } = new URL(await server.listen({ host: "127.0.0.1", port: 0 }));
  onTestFinished(() => server.close());
  const served = async (): Promise<string> => {
    const socket = connect({ host: "127.0.0.1", port: Number(port), rejectUnauthorized: false });
    await once(socket, "secureConnect");
    const { fingerprint256 } = socket.getPeerCertificate();
    socket.destroy();
    return fingerprint256;
  };
  expect(await served()).toBe(expired);
  expect(says(/the certificate expired at /)).toBe(1);
  const good = give(-1, 19);
  await expect.poll(served).toBe(good);
  // The certificate has been replaced, but not yet its key.
  writeFileSync(key, makeServerCertificate(authority, ["a"], { from: at(-1), to: at(1) }).key);
  await expect.poll(() => says(/could not be renewed, the old one stays/)).toBe(1);
  expect(await served()).toBe(good);
  const soon = give(-1, 3);
  await expect.poll(served).toBe(soon);
  await expect.poll(() => says(/the certificate expires at /)).toBe(1);
  expect(says(/the certificate expired at /)).toBe(1);
});

test("explains why a certificate is invalid", () => {
  const at = (iso: string) => new Date(iso);
  const validity = { from: at("2026-01-01T00:00:00Z"), to: at("2026-03-01T00:00:00Z") };
  const pair = makeServerCertificate(makeAuthority("Site", validity), ["a"], validity);
  expect(certificateProblem(pair, at("2025-12-31T23:59:59Z"))).toBe(
    "the certificate is not valid before 2026-01-01T00:00:00.000Z",
  );
  expect(certificateProblem(pair, at("2026-02-01T00:00:00Z"))).toBeUndefined();
  expect(certificateProblem(pair, at("2026-02-23T00:00:00Z"))).toBe(
    "the certificate expires at 2026-03-01T00:00:00.000Z",
  );
  expect(certificateProblem(pair, at("2026-03-01T00:00:01Z"))).toBe(
    "the certificate expired at 2026-03-01T00:00:00.000Z",
  );
});
