// SPDX-License-Identifier: Apache-2.0

import { X509Certificate } from "node:crypto";
import { once } from "node:events";
import type { AddressInfo } from "node:net";
import { connect, createServer } from "node:tls";
import fc from "fast-check";
import { expect, onTestFinished, test } from "vitest";
import { type CertificatePair, makeAuthority, makeServerCertificate, type Validity } from "./x509.ts";

const dayMs = 86_400_000;
const now = Date.now();
const good: Validity = { from: new Date(now - dayMs), to: new Date(now + dayMs) };

/** The error of a client that trusts `ca` for a server with `pair`. */
async function handshake(pair: CertificatePair, ca: string, servername: string): Promise<string> {
  const server = createServer({ cert: pair.certificate, key: pair.key }, (socket) => socket.end());
  server.on("tlsClientError", () => undefined);
  onTestFinished(() => void server.close());
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  const socket = connect({ host: "127.0.0.1", port, ca, servername });
  try {
    await once(socket, "secureConnect");
    return "ok";
  } catch (error) {
    return error instanceof Error && "code" in error ? String(error.code) : String(error);
  } finally {
    socket.destroy();
  }
}

test("an authority signs itself and servers, and says what each is for", () => {
  const authority = makeAuthority("Millpond pool – é", good);
  const pair = makeServerCertificate(authority, ["pool.example", "10.0.0.7", "::1", "fe80::12:0:3"], good);
  const root = new X509Certificate(authority.certificate);
  const leaf = new X509Certificate(pair.certificate);
  expect(root.ca).toBe(true);
  expect(root.verify(root.publicKey)).toBe(true);
  expect(leaf.ca).toBe(false);
  expect(leaf.verify(root.publicKey)).toBe(true);
  expect(leaf.checkIssued(root)).toBe(true);
  expect(leaf.checkHost("pool.example")).toBe("pool.example");
  expect(leaf.checkHost("other.example")).toBeUndefined();
  expect(leaf.checkIP("10.0.0.7")).toBe("10.0.0.7");
  expect(leaf.checkIP("::1")).toBe("::1");
  expect(leaf.checkIP("fe80::12:0:3")).toBe("fe80::12:0:3");
  expect(leaf.checkIP("10.0.0.8")).toBeUndefined();
  expect(leaf.keyUsage).toEqual(["1.3.6.1.5.5.7.3.1"]);
});

test("clients trust what their authority signed, while it is good, for its names", async () => {
  const authority = makeAuthority("Millpond", good);
  const other = makeAuthority("Millpond", good);
  const old: Validity = { from: new Date(now - 2 * dayMs), to: new Date(now - dayMs) };
  const pair = makeServerCertificate(authority, ["pool.example"], good);
  expect(await handshake(pair, authority.certificate, "pool.example")).toBe("ok");
  expect(await handshake(pair, authority.certificate, "other.example")).toBe("ERR_TLS_CERT_ALTNAME_INVALID");
  expect(await handshake(pair, other.certificate, "pool.example")).toMatch(
    /UNABLE_TO_VERIFY|SELF_SIGNED|SIGNATURE/,
  );
  const expired = makeServerCertificate(authority, ["pool.example"], old);
  expect(await handshake(expired, authority.certificate, "pool.example")).toBe("CERT_HAS_EXPIRED");
});

test("every address and every moment is written as OpenSSL reads it", () => {
  const authority = makeAuthority("Millpond", good);
  const moment = fc.date({ min: new Date("2000-01-01"), max: new Date("2099-12-31"), noInvalidDate: true });
  fc.assert(
    fc.property(fc.oneof(fc.ipV4(), fc.ipV6()), moment, (address, to) => {
      const validity = { from: new Date("1999-01-01"), to };
      const leaf = new X509Certificate(makeServerCertificate(authority, [address], validity).certificate);
      expect(leaf.checkIP(address)).toBeDefined();
      expect(Date.parse(leaf.validTo)).toBe(Math.floor(to.getTime() / 1000) * 1000);
    }),
  );
});

test.each([[[]], [["a b"]], [[""]], [["-x"]], [["a..b"]], [["x\ny"]]])(
  "no certificate is made for %j",
  (names) => {
    expect(() => makeServerCertificate(makeAuthority("Millpond", good), names, good)).toThrow(
      /\[MILLPOND_E_INVALID\]$/,
    );
  },
);
