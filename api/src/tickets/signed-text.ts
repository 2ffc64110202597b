// SPDX-License-Identifier: Apache-2.0

// Texts that the controller signs and agents check: `<version>.<payload>.<signature>`, base64url without padding. The
// signature covers the version, so that a text signed for one purpose is useless for another.

import { type KeyObject, sign, verify } from "node:crypto";

/** Signs a JSON payload with an Ed25519 key. */
export function signText(version: string, payload: object, privateKey: KeyObject): string {
  const signed = `${version}.${Buffer.from(JSON.stringify(payload), "utf8").toString("base64url")}`;
  return `${signed}.${sign(null, Buffer.from(signed, "ascii"), privateKey).toString("base64url")}`;
}

/**
 * Returns the public keys that may have signed a text.
 *
 * @param id the key that the text names, which is not verified yet; undefined: it names none
 */
export type FindKeys = (id: string | undefined) => readonly KeyObject[];

/**
 * Checks form and signature, and parses the payload; undefined if the payload is not JSON. Before verification, only the
 * member `kid` of the payload is used, to find the key.
 *
 * @param refuse creates the error from a description of the fault
 */
export function verifyText(
  text: string,
  version: string,
  findKeys: FindKeys,
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
  const payload = parseJson(payloadBytes);
  const id = keyIdOf(payload);
  const keys = findKeys(id);
  if (id !== undefined && keys.length === 0) {
    throw refuse(`it is signed with the key ${id}, which this pool does not have or no longer accepts`);
  }
  const signed = Buffer.from(`${version}.${payloadText}`, "ascii");
  if (!keys.some((key) => verify(null, signed, key, signature))) {
    throw refuse("its signature is not that of this pool's controller");
  }
  return payload;
}

/** Form of a key's id: the beginning of a SHA-256, hexadecimal. */
export function isKeyId(value: unknown): value is string {
  return typeof value === "string" && /^[0-9a-f]{16}$/.test(value);
}

function keyIdOf(payload: unknown): string | undefined {
  const isObject = typeof payload === "object" && payload !== null;
  return isObject && "kid" in payload && isKeyId(payload.kid) ? payload.kid : undefined;
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
