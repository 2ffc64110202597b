// SPDX-License-Identifier: Apache-2.0

// Tickets: the credential for one session, made by the controller, checked by the agent (docs/reference/interfaces.md).

import { createPublicKey, type KeyObject, sign, verify } from "node:crypto";
import { millpondError } from "./errors.ts";
import { isName } from "./names.ts";
import { type ServiceClassWord, serviceClassWords } from "./claim-values.ts";
import { maxMemoryBytes, minMemoryBytes } from "./units.ts";

/** How long a ticket is valid. */
export const ticketLifetimeSeconds = 60;

/** The longest ticket, in characters. */
export const maxTicketLength = 8192;

/** The longest lifetime that an agent accepts, whatever the signature says. */
const maxLifetimeSeconds = 3600;

/** A year. */
const maxParkAfterSeconds = 366 * 86_400;

/** The most devices of one node: so many always fit into `maxTicketLength`. */
export const maxDevicesPerNode = 32;

/** What a ticket says. The members are those of its JSON. */
export interface TicketPayload {
  /** UUID of the session that it opens. */
  readonly session: string;
  readonly claim: string;
  readonly node: string;
  /** Epoch of the allocation. */
  readonly epoch: number;
  /** The order is the client's device ordinals. */
  readonly devices: readonly TicketDevice[];
  /** How its shares of compute are meant. Absent: guaranteed. */
  readonly serviceClass?: ServiceClassWord;
  /** The session is parked after so long without a command, if it holds nothing. Absent: never. */
  readonly parkAfterSeconds?: number;
  /** Of the controller that issued it, which led then. */
  readonly term: number;
  /** Among the answers and tickets of the term. */
  readonly order: number;
  /** Unix seconds. */
  readonly issued: number;
  /** Unix seconds; the ticket is good before, not at this time. */
  readonly expires: number;
}

export interface TicketDevice {
  readonly uuid: string;
  readonly memoryBytes: number;
  /** 1 to 100; 0: best effort. */
  readonly computePercent: number;
}

/**
 * Makes a ticket.
 *
 * @param privateKey The controller's Ed25519 key.
 * @throws MILLPOND_E_INTERNAL when the payload is not one that `verifyTicket` would accept.
 */
export function signTicket(payload: TicketPayload, privateKey: KeyObject): string {
  if (!isTicketPayload(payload)) {
    throw millpondError("MILLPOND_E_INTERNAL", "the ticket to be signed has a member out of range");
  }
  const signed = `mpt1.${Buffer.from(JSON.stringify(payload), "utf8").toString("base64url")}`;
  const ticket = `${signed}.${sign(null, Buffer.from(signed, "ascii"), privateKey).toString("base64url")}`;
  if (ticket.length > maxTicketLength) {
    throw millpondError(
      "MILLPOND_E_INTERNAL",
      `the ticket would have ${ticket.length} characters, more than 8192`,
    );
  }
  return ticket;
}

export interface VerifyTicketOptions {
  /** The clock of the one who verifies, Unix seconds. */
  readonly nowSeconds: number;
  /** How far the controller's clock may be ahead or behind. Default 5. */
  readonly clockSkewSeconds?: number;
}

/**
 * Checks form, signature and time of a ticket. Node, epoch and single use are the caller's to check.
 *
 * @param publicKey The controller's Ed25519 key.
 * @throws MILLPOND_E_TICKET_INVALID, MILLPOND_E_TICKET_EXPIRED, MILLPOND_E_TICKET_NOT_YET_VALID
 */
export function verifyTicket(
  ticket: string,
  publicKey: KeyObject,
  options: VerifyTicketOptions,
): TicketPayload {
  const { nowSeconds, clockSkewSeconds = 5 } = options;
  if (ticket.length > maxTicketLength) {
    throw invalid(`it has ${ticket.length} characters, more than ${maxTicketLength}`);
  }
  const parts = ticket.split(".");
  const [version, payloadText, signatureText] = parts;
  if (parts.length !== 3 || version !== "mpt1" || payloadText === undefined || signatureText === undefined) {
    throw invalid("it does not have the form mpt1.<payload>.<signature>");
  }
  const payloadBytes = decodeBase64Url(payloadText);
  const signature = decodeBase64Url(signatureText);
  if (payloadBytes === undefined || signature?.length !== 64) {
    throw invalid("it is not base64url without padding");
  }
  if (!verify(null, Buffer.from(`mpt1.${payloadText}`, "ascii"), publicKey, signature)) {
    throw invalid("its signature is not that of this pool's controller");
  }
  const payload = parseJson(payloadBytes);
  if (!isTicketPayload(payload)) {
    throw invalid("a member of its payload is missing or out of range");
  }
  if (nowSeconds >= payload.expires + clockSkewSeconds) {
    throw millpondError(
      "MILLPOND_E_TICKET_EXPIRED",
      `the ticket of claim ${payload.claim} expired ${Math.ceil(nowSeconds - payload.expires)} s ago`,
    );
  }
  if (nowSeconds < payload.issued - clockSkewSeconds) {
    throw millpondError(
      "MILLPOND_E_TICKET_NOT_YET_VALID",
      `the ticket of claim ${payload.claim} was issued ${Math.ceil(payload.issued - nowSeconds)} s in the future`,
    );
  }
  return payload;
}

/**
 * Reads the controller's public key as `SyncResponse.ticket_public_key` carries it: SPKI, DER, base64.
 *
 * @throws MILLPOND_E_INVALID when it is not an Ed25519 key.
 */
export function parseTicketPublicKey(text: string): KeyObject {
  let key: KeyObject;
  try {
    key = createPublicKey({ key: Buffer.from(text, "base64"), format: "der", type: "spki" });
  } catch (cause) {
    throw millpondError(
      "MILLPOND_E_INVALID",
      "the controller's ticket key is not a public key in SPKI form",
      { cause },
    );
  }
  if (key.asymmetricKeyType !== "ed25519") {
    throw millpondError(
      "MILLPOND_E_INVALID",
      `the controller's ticket key is ${key.asymmetricKeyType}, not ed25519`,
    );
  }
  return key;
}

/** Writes a public key as `parseTicketPublicKey` reads it. */
export function formatTicketPublicKey(key: KeyObject): string {
  return key.export({ format: "der", type: "spki" }).toString("base64");
}

function invalid(why: string) {
  return millpondError("MILLPOND_E_TICKET_INVALID", `the ticket is not valid: ${why}`);
}

function decodeBase64Url(text: string): Buffer | undefined {
  const bytes = Buffer.from(text, "base64url");
  // Node's decoder skips what it does not know and ignores the spare bits of the last character. Only the one
  // canonical text of these bytes is accepted, so that no two tickets open the same session.
  return bytes.toString("base64url") === text ? bytes : undefined;
}

function parseJson(bytes: Buffer): unknown {
  try {
    return JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(bytes));
  } catch {
    return undefined;
  }
}

function isTicketPayload(value: unknown): value is TicketPayload {
  return (
    isObject(value) &&
    isUuid(value["session"]) &&
    typeof value["claim"] === "string" &&
    isName(value["claim"]) &&
    typeof value["node"] === "string" &&
    isName(value["node"]) &&
    isIntegerWithin(value["epoch"], 1, Number.MAX_SAFE_INTEGER) &&
    Array.isArray(value["devices"]) &&
    value["devices"].length >= 1 &&
    value["devices"].length <= maxDevicesPerNode &&
    value["devices"].every(isTicketDevice) &&
    (value["serviceClass"] === undefined ||
      serviceClassWords.some((word) => word === value["serviceClass"])) &&
    (value["parkAfterSeconds"] === undefined ||
      isIntegerWithin(value["parkAfterSeconds"], 1, maxParkAfterSeconds)) &&
    isIntegerWithin(value["term"], 0, Number.MAX_SAFE_INTEGER) &&
    isIntegerWithin(value["order"], 0, Number.MAX_SAFE_INTEGER) &&
    isIntegerWithin(value["issued"], 0, Number.MAX_SAFE_INTEGER) &&
    isIntegerWithin(value["expires"], value["issued"] + 1, value["issued"] + maxLifetimeSeconds)
  );
}

function isTicketDevice(value: unknown): value is TicketDevice {
  return (
    isObject(value) &&
    isDeviceUuid(value["uuid"]) &&
    isIntegerWithin(value["memoryBytes"], Number(minMemoryBytes), Number(maxMemoryBytes)) &&
    isIntegerWithin(value["computePercent"], 0, 100)
  );
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function isUuid(value: unknown): value is string {
  return typeof value === "string" && /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/.test(value);
}

function isDeviceUuid(value: unknown): value is string {
  return typeof value === "string" && /^[A-Za-z0-9-]{1,80}$/.test(value);
}

function isIntegerWithin(value: unknown, least: number, most: number): value is number {
  return typeof value === "number" && Number.isSafeInteger(value) && value >= least && value <= most;
}
