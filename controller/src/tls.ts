// SPDX-License-Identifier: Apache-2.0

// The controller's certificate: a given one, or one of the pool's own authority.

import { chmodSync, existsSync, mkdirSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { hostname, networkInterfaces } from "node:os";
import { join } from "node:path";
import { createSecureContext } from "node:tls";
import {
  type CertificatePair,
  errorCodeOf,
  makeAuthority,
  makeServerCertificate,
  millpondError,
} from "@millpond/api";

const dayMs = 86_400_000;
/** The clock of a client may be a little behind. */
const backdateMs = dayMs;
const authorityLifetimeMs = 3650 * dayMs;
const serverLifetimeMs = 397 * dayMs;
/** How often a running controller takes a new certificate. */
export const renewalMs = 7 * dayMs;

/** Where the certificate comes from. */
export type TlsSource =
  | { readonly kind: "given"; readonly certificate: string; readonly key: string }
  | { readonly kind: "own"; readonly names: readonly string[] };

/**
 * The certificate to serve with. Given files are read again each time, so that renewed ones are taken; of the own
 * authority a new certificate is made each time, whose key is never written down.
 *
 * @param directory The state directory: `tls/ca.crt` in it is what clients need, `tls/ca.key` signs.
 * @throws MILLPOND_E_TLS, MILLPOND_E_STATE_BROKEN
 */
export function readCertificate(source: TlsSource, directory: string): CertificatePair {
  const pair = source.kind === "given" ? readPair(source) : makeOwn(source.names, directory);
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

export function authorityPath(directory: string): string {
  return join(directory, "tls", "ca.crt");
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

function makeOwn(names: readonly string[], directory: string): CertificatePair {
  try {
    const now = Date.now();
    const validity = { from: new Date(now - backdateMs), to: new Date(now + serverLifetimeMs) };
    const all = new Set([...names, ...machineNames()]);
    return makeServerCertificate(readOrMakeAuthority(directory), [...all], validity);
  } catch (cause) {
    if (errorCodeOf(cause) !== undefined) {
      throw cause;
    }
    const message = cause instanceof Error ? cause.message : String(cause);
    throw millpondError(
      "MILLPOND_E_STATE_BROKEN",
      `the authority in ${directory} cannot be used: ${message}`,
      {
        cause,
      },
    );
  }
}

function readOrMakeAuthority(directory: string): CertificatePair {
  const certificatePath = authorityPath(directory);
  const keyPath = join(directory, "tls", "ca.key");
  mkdirSync(join(directory, "tls"), { recursive: true, mode: 0o700 });
  // The certificate comes last: where it is, the key is.
  if (!existsSync(certificatePath)) {
    const now = Date.now();
    const validity = { from: new Date(now - backdateMs), to: new Date(now + authorityLifetimeMs) };
    const pair = makeAuthority("Millpond pool", validity);
    writeWhole(keyPath, pair.key, 0o600);
    writeWhole(certificatePath, pair.certificate, 0o644);
  }
  chmodSync(keyPath, 0o600);
  return { certificate: readFileSync(certificatePath, "utf8"), key: readFileSync(keyPath, "utf8") };
}

function writeWhole(path: string, content: string, mode: number): void {
  writeFileSync(`${path}.new`, content, { mode, flush: true });
  renameSync(`${path}.new`, path);
}

/** How this machine may be called. */
function machineNames(): string[] {
  const addresses = Object.values(networkInterfaces()).flatMap((each) => each ?? []);
  const own = hostname();
  return [
    "localhost",
    ...(/^[a-z0-9][a-z0-9.-]*$/i.test(own) ? [own.replace(/\.$/, "")] : []),
    ...addresses.map(({ address }) => address.replace(/%.*$/, "")),
  ];
}
