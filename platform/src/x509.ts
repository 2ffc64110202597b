// SPDX-License-Identifier: Apache-2.0

// Creates the certificates of a pool: one authority, and servers' certificates that it signs. Node can read certificates but
// not create them, so this module writes the DER of RFC 5280 itself, but only what these two kinds need.

import {
  createHash,
  createPrivateKey,
  generateKeyPairSync,
  type KeyObject,
  randomBytes,
  sign,
  X509Certificate,
} from "node:crypto";
import { isIP, isIPv4 } from "node:net";
import { millpondError } from "@millpond/api";

/** Both PEM. The key is PKCS #8, ECDSA on P-256. */
export interface CertificatePair {
  readonly certificate: string;
  readonly key: string;
}

export interface Validity {
  readonly from: Date;
  readonly to: Date;
}

/** Creates an authority, which signs itself. */
export function makeAuthority(commonName: string, validity: Validity): CertificatePair {
  const keys = generateKeyPairSync("ec", { namedCurve: "prime256v1" });
  const id = keyId(keys.publicKey);
  const certificate = makeCertificate({
    subject: name(commonName),
    issuer: name(commonName),
    publicKey: keys.publicKey,
    signer: keys.privateKey,
    validity,
    extensions: [
      // The authority signs servers' certificates, not other authorities.
      extension("551d13", true, sequence(boolean(true), integer(Buffer.from([0])))),
      // keyCertSign, cRLSign
      extension("551d0f", true, bits(Buffer.from([0x06]), 1)),
      extension("551d0e", false, tagged(0x04, id)),
    ],
  });
  return { certificate, key: pemOf(keys.privateKey) };
}

/**
 * Creates a server's certificate.
 *
 * @param names DNS names and IP addresses, at least one.
 * @throws MILLPOND_E_INVALID
 */
export function makeServerCertificate(
  authority: CertificatePair,
  names: readonly string[],
  validity: Validity,
): CertificatePair {
  const [first] = names;
  const bad = names.find((each) => !isSubjectName(each));
  if (first === undefined || bad !== undefined) {
    throw millpondError(
      "MILLPOND_E_INVALID",
      first === undefined ? "a certificate needs a name" : `a certificate cannot be for the name "${bad}"`,
    );
  }
  const issuer = new X509Certificate(authority.certificate);
  const keys = generateKeyPairSync("ec", { namedCurve: "prime256v1" });
  const certificate = makeCertificate({
    subject: name("Millpond server"),
    issuer: name(commonNameOf(issuer)),
    publicKey: keys.publicKey,
    signer: createPrivateKey(authority.key),
    validity,
    extensions: [
      extension("551d13", true, sequence()),
      // digitalSignature
      extension("551d0f", true, bits(Buffer.from([0x80]), 7)),
      // serverAuth
      extension("551d25", false, sequence(oid("2b06010505070301"))),
      extension("551d11", false, sequence(...names.map(generalName))),
      extension("551d0e", false, tagged(0x04, keyId(keys.publicKey))),
      extension("551d23", false, sequence(tagged(0x80, keyId(issuer.publicKey)))),
    ],
  });
  return { certificate, key: pemOf(keys.privateKey) };
}

function isSubjectName(text: string): boolean {
  return (
    isIP(text) !== 0 ||
    /^(?=.{1,253}$)[a-z0-9_]([a-z0-9_-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*$/i.test(text)
  );
}

interface CertificateParts {
  readonly subject: Buffer;
  readonly issuer: Buffer;
  readonly publicKey: KeyObject;
  readonly signer: KeyObject;
  readonly validity: Validity;
  readonly extensions: readonly Buffer[];
}

function makeCertificate(parts: CertificateParts): string {
  const { subject, issuer, publicKey, signer, validity, extensions } = parts;
  const ecdsaWithSha256 = sequence(oid("2a8648ce3d040302"));
  const serial = randomBytes(16);
  // A positive number of full length.
  serial.writeUInt8((serial.readUInt8(0) & 0x7f) | 0x40, 0);
  const body = sequence(
    tagged(0xa0, integer(Buffer.from([2]))),
    integer(serial),
    ecdsaWithSha256,
    issuer,
    sequence(time(validity.from), time(validity.to)),
    subject,
    publicKey.export({ format: "der", type: "spki" }),
    tagged(0xa3, sequence(...extensions)),
  );
  const signature = sign("sha256", body, signer);
  const lines =
    sequence(body, ecdsaWithSha256, bits(signature, 0))
      .toString("base64")
      .match(/.{1,64}/g) ?? [];
  return `-----BEGIN CERTIFICATE-----\n${lines.join("\n")}\n-----END CERTIFICATE-----\n`;
}

function pemOf(key: KeyObject): string {
  return key.export({ format: "pem", type: "pkcs8" });
}

function commonNameOf({ subject }: X509Certificate): string {
  return /^CN=(.*)$/m.exec(subject)?.[1] ?? "";
}

function keyId(key: KeyObject): Buffer {
  return createHash("sha256")
    .update(key.export({ format: "der", type: "spki" }))
    .digest()
    .subarray(0, 20);
}

/** A value with its tag and its length. */
function tagged(tag: number, value: Buffer): Buffer {
  const { length } = value;
  if (length < 0x80) {
    return Buffer.concat([Buffer.from([tag, length]), value]);
  }
  const bytes = length < 0x100 ? [0x81, length] : [0x82, length >> 8, length & 0xff];
  if (length > 0xffff) {
    throw millpondError("MILLPOND_E_INVALID", "the certificate would have too many names");
  }
  return Buffer.concat([Buffer.from([tag, ...bytes]), value]);
}

function sequence(...parts: readonly Buffer[]): Buffer {
  return tagged(0x30, Buffer.concat(parts));
}

function boolean(value: boolean): Buffer {
  return tagged(0x01, Buffer.from([value ? 0xff : 0]));
}

function integer(value: Buffer): Buffer {
  return tagged(0x02, value);
}

function bits(value: Buffer, unused: number): Buffer {
  return tagged(0x03, Buffer.concat([Buffer.from([unused]), value]));
}

function oid(hex: string): Buffer {
  return tagged(0x06, Buffer.from(hex, "hex"));
}

function name(commonName: string): Buffer {
  const attribute = sequence(oid("550403"), tagged(0x0c, Buffer.from(commonName)));
  return sequence(tagged(0x31, attribute));
}

function extension(id: string, isCritical: boolean, value: Buffer): Buffer {
  return sequence(oid(id), ...(isCritical ? [boolean(true)] : []), tagged(0x04, value));
}

/** UTCTime before 2050 and GeneralizedTime from then on, as RFC 5280 requires. */
function time(moment: Date): Buffer {
  const digits = moment.toISOString().replace(/[-:T]|\.\d+/g, "");
  const isLate = moment.getUTCFullYear() >= 2050;
  return tagged(isLate ? 0x18 : 0x17, Buffer.from(isLate ? digits : digits.slice(2)));
}

function generalName(text: string): Buffer {
  return isIP(text) === 0 ? tagged(0x82, Buffer.from(text)) : tagged(0x87, addressBytes(text));
}

function addressBytes(address: string): Buffer {
  if (isIPv4(address)) {
    return Buffer.from(address.split(".").map(Number));
  }
  // The URL parser writes an address in its shortest form, hexadecimal throughout.
  const short = new URL(`http://[${address.replace(/%.*$/, "")}]/`).hostname.slice(1, -1);
  const [head = "", tail] = short.split("::");
  const groups = (text: string): number[] =>
    text === "" ? [] : text.split(":").map((group) => Number.parseInt(group, 16));
  const front = groups(head);
  const back = groups(tail ?? "");
  const middle = Array.from({ length: 8 - front.length - back.length }, () => 0);
  const bytes = Buffer.alloc(16);
  for (const [index, group] of [...front, ...middle, ...back].entries()) {
    bytes.writeUInt16BE(group, index * 2);
  }
  return bytes;
}
