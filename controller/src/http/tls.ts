// SPDX-License-Identifier: Apache-2.0

// The controller's certificate: a given one, or one of the pool's own authority.

import { X509Certificate } from "node:crypto";
import { readFileSync } from "node:fs";
import { createSecureContext } from "node:tls";
import { millpondError } from "@millpond/api";
import { type CertificatePair, makeOwnCertificate } from "@millpond/platform";

/** How often a running controller checks for a new certificate, or reissues that of its own authority. */
const renewalMs = { given: 60_000, own: 7 * 86_400_000 } as const;

/** How long before expiry a certificate is reported. */
const soonMs = 7 * 86_400_000;

/** Where a server gets its certificate. */
export interface CertificateSource {
  /** @throws MILLPOND_E_TLS, MILLPOND_E_STATE_BROKEN */
  read(): CertificatePair;
  /** Interval at which it is read again. */
  readonly renewalMs: number;
}

/** Where the certificate comes from. */
export type TlsSource =
  | { readonly kind: "given"; readonly certificate: string; readonly key: string }
  | { readonly kind: "own"; readonly names: readonly string[] };

export function certificateSource(source: TlsSource, directory: string): CertificateSource {
  return { read: () => readCertificate(source, directory), renewalMs: renewalMs[source.kind] };
}

/** Why a certificate is invalid, or soon will be; undefined: it is valid. */
export function certificateProblem({ certificate }: CertificatePair, now: Date): string | undefined {
  const { validFromDate, validToDate } = new X509Certificate(certificate);
  if (validFromDate > now) {
    return `the certificate is not valid before ${validFromDate.toISOString()}`;
  }
  if (validToDate < now) {
    return `the certificate expired at ${validToDate.toISOString()}`;
  }
  return validToDate.getTime() - now.getTime() < soonMs
    ? `the certificate expires at ${validToDate.toISOString()}`
    : undefined;
}

/**
 * The certificate to serve with. Given files are read again each time, so that renewed ones take effect. The pool's own
 * authority issues a new certificate each time, whose key is never stored.
 *
 * @param directory The state directory: `tls/ca.crt` in it is what clients need, `tls/ca.key` signs.
 * @throws MILLPOND_E_TLS, MILLPOND_E_STATE_BROKEN
 */
export function readCertificate(source: TlsSource, directory: string): CertificatePair {
  const pair =
    source.kind === "given"
      ? readPair(source)
      : makeOwnCertificate(source.names, { directory, authority: "Millpond pool" });
  try {
    createSecureContext({ cert: pair.certificate, key: pair.key });
  } catch (cause) {
    const message = cause instanceof Error ? cause.message : String(cause);
    throw millpondError("MILLPOND_E_TLS", `the controller's certificate and key cannot be used: ${message}`, {
      remedy: "Give a PEM certificate and the PEM key that belongs to it.",
      cause,
    });
  }
  return pair;
}

function readPair({
  certificate,
  key,
}: {
  readonly certificate: string;
  readonly key: string;
}): CertificatePair {
  const read = (path: string): string => {
    try {
      return readFileSync(path, "utf8");
    } catch (cause) {
      const message = cause instanceof Error ? cause.message : String(cause);
      throw millpondError("MILLPOND_E_TLS", `the file ${path} cannot be read: ${message}`, {
        remedy: "Correct --tls-cert and --tls-key.",
        cause,
      });
    }
  };
  return { certificate: read(certificate), key: read(key) };
}
