// SPDX-License-Identifier: Apache-2.0

// What a client says when it does not trust a server.

import { readFileSync } from "node:fs";
import { X509Certificate } from "node:crypto";
import type { ConnectError } from "@connectrpc/connect";
import { millpondError } from "./errors.ts";

const reasons: Readonly<Record<string, string>> = {
  CERT_HAS_EXPIRED: "its certificate has expired",
  CERT_NOT_YET_VALID: "its certificate is not valid yet; compare the clocks",
  ERR_TLS_CERT_ALTNAME_INVALID: "its certificate is for other names than the one in the address",
  DEPTH_ZERO_SELF_SIGNED_CERT: "its certificate was signed by an authority that is not trusted",
  SELF_SIGNED_CERT_IN_CHAIN: "its certificate was signed by an authority that is not trusted",
  UNABLE_TO_VERIFY_LEAF_SIGNATURE: "its certificate was signed by an authority that is not trusted",
  UNABLE_TO_GET_ISSUER_CERT: "its certificate was signed by an authority that is not trusted",
  UNABLE_TO_GET_ISSUER_CERT_LOCALLY: "its certificate was signed by an authority that is not trusted",
  CERT_SIGNATURE_FAILURE: "its certificate was signed by another authority of the same name",
};

/** The error of the house form for a failed call whose cause is the server's certificate; undefined: it is not. */
export function explainTlsFailure(failure: unknown, server: string): ConnectError | undefined {
  for (let cause = failure; cause instanceof Error; cause = cause.cause) {
    const code = "code" in cause && typeof cause.code === "string" ? cause.code : "";
    const reason = reasons[code];
    if (reason !== undefined) {
      return millpondError("MILLPOND_E_TLS", `${server} is not trusted: ${reason}`, { cause: failure });
    }
  }
  return undefined;
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
