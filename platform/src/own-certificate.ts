// SPDX-License-Identifier: Apache-2.0

// Certificates of an authority that a server creates for itself.

import { chmodSync, existsSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { hostname, networkInterfaces } from "node:os";
import { join } from "node:path";
import { errorCodeOf, millpondError } from "@millpond/api";
import { makeFolders } from "./make-folders.ts";
import { type CertificatePair, makeAuthority, makeServerCertificate } from "./x509.ts";

const dayMs = 86_400_000;
/** The clock of a client may be a little behind. */
const backdateMs = dayMs;
const authorityLifetimeMs = 3650 * dayMs;
const serverLifetimeMs = 397 * dayMs;

/**
 * Creates a server's certificate for `names` and for the names and addresses of this machine. Its key is never stored. The
 * chain includes the authority's certificate, so that a new client can show its fingerprint for comparison.
 *
 * @param directory `tls/ca.crt` in it is the authority, created if it is missing; `tls/ca.key` signs.
 * @throws MILLPOND_E_STATE_BROKEN, MILLPOND_E_INVALID
 */
export function makeOwnCertificate(
  names: readonly string[],
  { directory, authority }: { readonly directory: string; readonly authority: string },
): CertificatePair {
  try {
    const now = Date.now();
    const validity = { from: new Date(now - backdateMs), to: new Date(now + serverLifetimeMs) };
    const all = new Set([...names, ...machineNames()]);
    const signer = readOrMakeAuthority(directory, authority);
    const { certificate, key } = makeServerCertificate(signer, [...all], validity);
    return { certificate: certificate + signer.certificate, key };
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

export function authorityPath(directory: string): string {
  return join(directory, "tls", "ca.crt");
}

function readOrMakeAuthority(directory: string, name: string): CertificatePair {
  const certificatePath = authorityPath(directory);
  const keyPath = join(directory, "tls", "ca.key");
  makeFolders(join(directory, "tls"), 0o700);
  // The certificate is written last, so that if it exists, the key does too.
  if (!existsSync(certificatePath)) {
    const now = Date.now();
    const validity = { from: new Date(now - backdateMs), to: new Date(now + authorityLifetimeMs) };
    const pair = makeAuthority(name, validity);
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

/** The names and addresses of this machine. */
function machineNames(): string[] {
  const addresses = Object.values(networkInterfaces()).flatMap((each) => each ?? []);
  const own = hostname();
  return [
    "localhost",
    ...(/^[a-z0-9][a-z0-9.-]*$/i.test(own) ? [own.replace(/\.$/, "")] : []),
    ...addresses.map(({ address }) => address.replace(/%.*$/, "")),
  ];
}
