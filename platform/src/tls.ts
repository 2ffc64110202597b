// SPDX-License-Identifier: Apache-2.0

// Errors of clients that do not trust a server.

import { readFileSync } from "node:fs";
import { X509Certificate } from "node:crypto";
import { isIP } from "node:net";
import { connect } from "node:tls";
import type { ConnectError } from "@connectrpc/connect";
import { millpondError, quote } from "@millpond/api";

type Distrust = "expired" | "not yet valid" | "other names" | "other authority" | "same name";

const reasons: Readonly<Record<string, Distrust>> = {
  CERT_HAS_EXPIRED: "expired",
  CERT_NOT_YET_VALID: "not yet valid",
  ERR_TLS_CERT_ALTNAME_INVALID: "other names",
  DEPTH_ZERO_SELF_SIGNED_CERT: "other authority",
  SELF_SIGNED_CERT_IN_CHAIN: "other authority",
  UNABLE_TO_VERIFY_LEAF_SIGNATURE: "other authority",
  UNABLE_TO_GET_ISSUER_CERT: "other authority",
  UNABLE_TO_GET_ISSUER_CERT_LOCALLY: "other authority",
  CERT_SIGNATURE_FAILURE: "same name",
};

/** Timeout for fetching a certificate to explain a failure. */
const lookMs = 2_000;

/** Whether a call failed because the server's certificate is not trusted. */
export function isTlsFailure(failure: unknown): boolean {
  return distrustOf(failure) !== undefined;
}

/** Whether OpenSSL's message says that the other side answered something other than TLS. */
export function speaksNoTls(message: string): boolean {
  return /wrong version number|packet length too long/.test(message);
}

/**
 * The error with code and remedy for a call that failed because of the server's certificate; undefined: it failed for another
 * reason. Fetches the certificate again, to report its dates and names.
 *
 * @param address Base URL.
 */
export async function explainTlsFailure(
  failure: unknown,
  address: string,
): Promise<ConnectError | undefined> {
  const distrust = distrustOf(failure);
  if (distrust === undefined) {
    return undefined;
  }
  const { what, remedy } = explanation(distrust, await lookAtCertificate(address), new URL(address).hostname);
  return millpondError("MILLPOND_E_TLS", `the controller at ${address} is not trusted: ${what}`, {
    ...(remedy === undefined ? {} : { remedy }),
    cause: failure,
  });
}

function distrustOf(failure: unknown): Distrust | undefined {
  for (let cause = failure; cause instanceof Error; cause = cause.cause) {
    const code = "code" in cause && typeof cause.code === "string" ? cause.code : "";
    const distrust = reasons[code];
    if (distrust !== undefined) {
      return distrust;
    }
  }
  return undefined;
}

function explanation(
  distrust: Distrust,
  certificate: X509Certificate | undefined,
  host: string,
): { readonly what: string; readonly remedy?: string } {
  const here = `and here it is ${utc(new Date())}`;
  switch (distrust) {
    case "expired": {
      // It may be the certificate of an authority, which the server need not send.
      const end = certificate?.validToDate;
      const isOwn = end !== undefined && end.getTime() < Date.now();
      return {
        what: isOwn
          ? `its certificate expired at ${utc(end)}, ${here}`
          : `its certificate, or that of its authority, has expired, ${here}`,
        remedy:
          "Renew it; the controller takes the new one within a minute. Or set the clock of this machine.",
      };
    }
    case "not yet valid": {
      const begin = certificate?.validFromDate;
      const isOwn = begin !== undefined && begin.getTime() > Date.now();
      return {
        what: isOwn
          ? `its certificate is valid from ${utc(begin)} on, ${here}`
          : `its certificate, or that of its authority, is not valid yet, ${here}`,
        remedy:
          "Compare the clocks of both machines; where they are right, wait or give the controller another one.",
      };
    }
    case "other names": {
      const names = (certificate?.subjectAltName ?? "").replaceAll(/(?:DNS|IP Address):/g, "");
      return {
        what: `its certificate is for ${names === "" ? "other names" : quote(names)}, not for ${host}`,
        remedy:
          "Call it by a name that the certificate has, or give the controller one for this name: --tls-names, or --tls-cert.",
      };
    }
    case "other authority":
      return {
        what: `its certificate was signed by an authority that is not trusted${issuerOf(certificate)}`,
      };
    case "same name":
      return {
        what: `its certificate was signed by another authority of the same name${issuerOf(certificate)}`,
      };
  }
}

function issuerOf(certificate: X509Certificate | undefined): string {
  return certificate === undefined ? "" : `, ${quote(certificate.issuer)}`;
}

function utc(date: Date): string {
  return `${date.toISOString().slice(0, 16).replace("T", " ")} UTC`;
}

/** Sends nothing to the server beyond the handshake. undefined: no certificate could be fetched. */
async function lookAtCertificate(address: string): Promise<X509Certificate | undefined> {
  const { hostname, port } = new URL(address);
  const host = hostname.replace(/^\[|\]$/g, "");
  const { promise, resolve } = Promise.withResolvers<X509Certificate | undefined>();
  const socket = connect({
    host,
    port: port === "" ? 443 : Number(port),
    rejectUnauthorized: false,
    ...(isIP(host) === 0 ? { servername: host } : {}),
  });
  socket.setTimeout(lookMs, () => socket.destroy());
  socket.once("secureConnect", () => {
    resolve(socket.getPeerX509Certificate());
    socket.destroy();
  });
  // Why it cannot be fetched does not matter: the call itself has already failed.
  socket.once("error", () => resolve(undefined));
  socket.once("close", () => resolve(undefined));
  return await promise;
}

/**
 * Reads the certificates of the authorities that a client trusts, PEM.
 *
 * @param source A file, or the certificates themselves.
 * @throws MILLPOND_E_TLS
 */
export function readAuthorities(source: string): string {
  const isText = source.startsWith("-----BEGIN ");
  try {
    const text = isText ? source : readFileSync(source, "utf8");
    const certificates = text.match(/-----BEGIN CERTIFICATE-----[^]+?-----END CERTIFICATE-----/g) ?? [text];
    return certificates.map((each) => new X509Certificate(each).toString()).join("");
  } catch (cause) {
    const why = cause instanceof Error ? cause.message : String(cause);
    const where = isText ? "MILLPOND_CA" : source;
    throw millpondError("MILLPOND_E_TLS", `the authority's certificate in ${where} cannot be read: ${why}`, {
      cause,
    });
  }
}
