// SPDX-License-Identifier: Apache-2.0

import { once } from "node:events";
import { createServer, get } from "node:https";
import type { AddressInfo } from "node:net";
import { expect, onTestFinished, test } from "vitest";
import { explainTlsFailure, isTlsFailure } from "./tls.ts";
import { type CertificatePair, makeAuthority, makeServerCertificate } from "./x509.ts";

const dayMs = 86_400_000;
const daysFromNow = (days: number) => new Date(Date.now() + days * dayMs);
const long = { from: daysFromNow(-10), to: daysFromNow(10) };
const authority = makeAuthority("Pool of tests", long);

/**
 * Calls a server with a certificate, trusting the authority.
 *
 * @returns How the call fails, and the server's address.
 */
async function fail({ certificate, key }: CertificatePair) {
  const server = createServer({ cert: certificate, key });
  let requests = 0;
  server.on("request", () => (requests += 1));
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  onTestFinished(() => void server.close());
  const address = `https://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const [error] = (await once(get(address, { ca: authority.certificate }), "error")) as [Error];
  const explained = await explainTlsFailure(new Error("no answer", { cause: error }), address);
  expect(requests).toBe(0);
  return explained?.rawMessage;
}

const minute = (date: Date) => date.toISOString().slice(0, 16).replace("T", " ");

test("a certificate that is not trusted is told with its dates, names or authority, and what to do", async () => {
  const names = ["127.0.0.1", "pool.example"];
  const now = String.raw`and here it is \d{4}-\d\d-\d\d \d\d:\d\d UTC`;
  const old = { from: daysFromNow(-9), to: daysFromNow(-2) };
  expect(await fail(makeServerCertificate(authority, names, old))).toMatch(
    new RegExp(`expired at ${minute(old.to)} UTC, ${now}\\. Renew it; .*\\[MILLPOND_E_TLS\\]$`),
  );
  const early = { from: daysFromNow(2), to: daysFromNow(9) };
  expect(await fail(makeServerCertificate(authority, names, early))).toMatch(
    new RegExp(
      `is valid from ${minute(early.from)} UTC on, ${now}\\. Compare the clocks .*\\[MILLPOND_E_TLS\\]$`,
    ),
  );
  expect(await fail(makeServerCertificate(authority, ["10.9.8.7", "pool.example"], long))).toMatch(
    /is for "(?:10\.9\.8\.7, pool\.example|pool\.example, 10\.9\.8\.7)", not for 127\.0\.0\.1\. .*--tls-names.*\[MILLPOND_E_TLS\]$/,
  );
  const stranger = makeAuthority("Somebody", long);
  expect(await fail(makeServerCertificate(stranger, names, long))).toMatch(
    /an authority that is not trusted, "CN=Somebody"\. Set MILLPOND_CA .*\[MILLPOND_E_TLS\]$/,
  );
});

test("an authority that has expired is told apart from the server's own certificate, and other failures from both", async () => {
  const address = "https://127.0.0.1:1";
  const failure = Object.assign(new Error("certificate has expired"), { code: "CERT_HAS_EXPIRED" });
  // The server is gone, so the dates of its certificate are unavailable.
  expect((await explainTlsFailure(failure, address))?.rawMessage).toMatch(
    /its certificate, or that of its authority, has expired, and here it is .*\[MILLPOND_E_TLS\]$/,
  );
  const refused = Object.assign(new Error("refused"), { code: "ECONNREFUSED" });
  expect(await explainTlsFailure(refused, address)).toBeUndefined();
  expect([failure, refused].map(isTlsFailure)).toEqual([true, false]);
});
