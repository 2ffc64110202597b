// SPDX-License-Identifier: Apache-2.0

// How this machine establishes trust in a controller at first contact.

import { createHash, X509Certificate } from "node:crypto";
import { isIP } from "node:net";
import { createInterface } from "node:readline/promises";
import { connect, type DetailedPeerCertificate, type TLSSocket } from "node:tls";
import { millpondError, quote } from "@millpond/api";
import { parseAgentUrl, readAuthorities, speaksNoTls, splitAddresses } from "@millpond/platform";

const lookMs = 10_000;
/** Longer than any real chain. */
const chainLimit = 10;

export interface TrustOptions {
  /** A file, or the certificate itself. */
  readonly ca: string | undefined;
  readonly fingerprint: string | undefined;
}

/**
 * Returns the authority to trust for a controller, PEM; undefined: the machine's authorities suffice, or the controller
 * uses plain HTTP. No secret is sent in the process.
 *
 * @param controller base URL; if several, separated by commas, are given, the first that answers counts
 * @throws MILLPOND_E_TLS when the controller cannot be trusted, MILLPOND_E_UNREACHABLE
 */
export async function findAuthority(controller: string, options: TrustOptions): Promise<string | undefined> {
  if (options.ca !== undefined) return readAuthorities(options.ca);
  const secure = splitAddresses(controller).filter((address) => address.startsWith("https:"));
  if (secure.length === 0) return undefined;
  const { address, isTrusted, authority } = await lookAtFirst(secure);
  const wanted = options.fingerprint === undefined ? undefined : readFingerprint(options.fingerprint);
  if (wanted === undefined && isTrusted) return undefined;
  if (authority === undefined) {
    throw millpondError(
      "MILLPOND_E_TLS",
      `the controller at ${address} does not show the authority of its certificate`,
      {
        remedy: "Give the authority's certificate with --ca.",
      },
    );
  }
  const shown = fingerprintOf(authority);
  if (wanted === undefined) {
    await confirm(address, shown);
  } else if (wanted !== shown) {
    throw millpondError(
      "MILLPOND_E_TLS",
      `the authority of the controller at ${address} has the fingerprint ${shown}, not ${wanted}`,
      {
        remedy: "Another server answers there, or the pool has a new authority: ask its administrator.",
      },
    );
  }
  return authority.toString();
}

/**
 * Returns the authority of an agent, PEM; undefined: the agent uses plain HTTP, on loopback.
 *
 * @param agentUrl as the controller knows it, with the fingerprint of the agent's certificate
 * @throws MILLPOND_E_TLS where another server answers, MILLPOND_E_UNREACHABLE
 */
export async function agentAuthority(agentUrl: string): Promise<string | undefined> {
  const { baseUrl, fingerprint } = parseAgentUrl(agentUrl);
  if (fingerprint === undefined) return undefined;
  let look: Look;
  try {
    look = await lookAt(baseUrl);
  } catch (cause) {
    const why = cause instanceof Error ? cause.message : String(cause);
    throw millpondError("MILLPOND_E_UNREACHABLE", `there is no agent at ${baseUrl}: ${why}`, { cause });
  }
  const { leaf, authority } = look;
  if (fingerprintOf(leaf) !== readFingerprint(fingerprint)) {
    throw millpondError(
      "MILLPOND_E_TLS",
      `the agent at ${baseUrl} is not trusted: its certificate is not the one that the controller knows it by`,
      { remedy: "Another process serves its address, or it was restarted: check again." },
    );
  }
  // The fingerprint covers only the first certificate; a server in between could add another authority to it.
  if (authority === undefined || !leaf.checkIssued(authority) || !leaf.verify(authority.publicKey)) {
    throw millpondError(
      "MILLPOND_E_TLS",
      `the agent at ${baseUrl} does not show the authority of its certificate`,
    );
  }
  return authority.toString();
}

/** `sha256:` and 64 hexadecimal digits. */
export function fingerprintOf(certificate: X509Certificate): string {
  return `sha256:${createHash("sha256").update(certificate.raw).digest("hex")}`;
}

/** @throws MILLPOND_E_INVALID */
function readFingerprint(text: string): string {
  const digits = text
    .replace(/^sha256[:=]/i, "")
    .replaceAll(":", "")
    .toLowerCase();
  if (/^[0-9a-f]{64}$/.test(digits)) return `sha256:${digits}`;
  throw millpondError(
    "MILLPOND_E_INVALID",
    `--fingerprint: ${quote(text)} is not sha256: and 64 hexadecimal digits`,
  );
}

interface Look {
  readonly address: string;
  readonly leaf: X509Certificate;
  /** Whether an authority of this machine has signed the certificate, for this name. */
  readonly isTrusted: boolean;
  /** The last certificate of the chain, when it is self-signed. */
  readonly authority: X509Certificate | undefined;
}

async function lookAtFirst(addresses: readonly string[]): Promise<Look> {
  const failures: string[] = [];
  for (const address of addresses) {
    try {
      return await lookAt(address);
    } catch (error) {
      const why = error instanceof Error ? error.message : String(error);
      failures.push(`${address}: ${speaksNoTls(why) ? "the server does not speak TLS" : why}`);
    }
  }
  throw millpondError("MILLPOND_E_UNREACHABLE", `there is no controller at ${failures.join("; ")}`, {
    remedy: "Correct the address; a controller that listens on loopback has no TLS: use http://.",
  });
}

function lookAt(address: string): Promise<Look> {
  const { hostname, port } = new URL(address);
  const host = hostname.replace(/^\[|\]$/g, "");
  return new Promise((resolve, reject) => {
    const socket: TLSSocket = connect({
      host,
      port: port === "" ? 443 : Number(port),
      rejectUnauthorized: false,
      ...(isIP(host) === 0 ? { servername: host } : {}),
    });
    socket.setTimeout(lookMs, () => socket.destroy(new Error(`no answer within ${lookMs / 1000} s`)));
    socket.once("error", reject);
    socket.once("secureConnect", () => {
      const chain = socket.getPeerCertificate(true);
      const leaf = new X509Certificate(chain.raw);
      resolve({ address, leaf, isTrusted: socket.authorized, authority: rootOf(chain) });
      socket.destroy();
    });
  });
}

function rootOf(leaf: DetailedPeerCertificate): X509Certificate | undefined {
  let certificate: DetailedPeerCertificate | undefined = leaf;
  for (let length = 0; length < chainLimit && certificate !== undefined; length += 1) {
    const parsed = new X509Certificate(certificate.raw);
    if (parsed.ca && parsed.checkIssued(parsed)) return parsed;
    certificate = certificate.issuerCertificate === certificate ? undefined : certificate.issuerCertificate;
  }
  return undefined;
}

async function confirm(address: string, fingerprint: string): Promise<void> {
  const about = `the authority of the controller at ${address} is unknown to this machine; its fingerprint is\n  ${fingerprint}`;
  if (!process.stdin.isTTY) {
    throw millpondError("MILLPOND_E_TLS", `${about}\n  and there is no terminal on which to confirm it`, {
      remedy: `Compare it with the fingerprint from the pool's administrator, and give --fingerprint ${fingerprint}.`,
    });
  }
  const ask = createInterface({ input: process.stdin, output: process.stderr });
  try {
    const answer = await ask.question(
      `millpond: ${about}\nIs it the one from the pool's administrator? [y/N] `,
    );
    if (/^y(es)?$/i.test(answer.trim())) return;
  } finally {
    ask.close();
  }
  throw millpondError(
    "MILLPOND_E_TLS",
    `the controller at ${address} is not trusted: its fingerprint was not confirmed`,
  );
}
