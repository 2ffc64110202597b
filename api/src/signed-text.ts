// SPDX-License-Identifier: Apache-2.0

// Texts that the controller signs and agents check: `<version>.<payload>.<signature>`, base64url without padding. The
// signature covers the version, so that a text that was signed for one purpose is useless for another.

import { type KeyObject, sign, verify } from "node:crypto";

/** Signs a JSON payload with an Ed25519 key. */
export function signText(version: string, payload: object, privateKey: KeyObject): string {
  const signed = `${version}.${Buffer.from(JSON.stringify(payload), "utf8").toString("base64url")}`;
  return `${signed}.${sign(null, Buffer.from(signed, "ascii"), privateKey).toString("base64url")}`;
}

/**
 * Checks form and signature, and parses the payload; undefined where that is not JSON.
 *
 * @param refuse creates the error from a description of the fault
 */
export function verifyText(
  text: string,
  version: string,
  publicKey: KeyObject,
  refuse: (why: string) => Error,
): unknown {
  const parts = text.split(".");
  const [found, payloadText, signatureText] = parts;
  if (parts.length !== 3 || found !== version || payloadText === undefined || signatureText === undefined) {
    throw refuse(`it does not have the form ${version}.<payload>.<signature>`);
  }
  const payloadBytes = decodeBase64Url(payloadText);
  const signature = decodeBase64Url(signatureText);
  if (payloadBytes === undefined || signature?.length !== 64) {
    throw refuse("it is not base64url without padding");
  }
  if (!verify(null, Buffer.from(`${version}.${payloadText}`, "ascii"), publicKey, signature)) {
    throw refuse("its signature is not that of this pool's controller");
  }
  return parseJson(payloadBytes);
}

function decodeBase64Url(text: string): Buffer | undefined {
  const bytes = Buffer.from(text, "base64url");
  // Node's decoder skips unknown characters and ignores the spare bits of the last one. Only the canonical text of these
  // bytes is accepted, so that no two texts are the same ticket.
  return bytes.toString("base64url") === text ? bytes : undefined;
}

function parseJson(bytes: Buffer): unknown {
  try {
    return JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(bytes));
  } catch {
    return undefined;
  }
}
