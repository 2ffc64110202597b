// SPDX-License-Identifier: Apache-2.0

// Tickets: the credential for one session, created by the controller, checked by the agent (docs/reference/interfaces.md).

import { createPublicKey, hash, type KeyObject } from "node:crypto";
import { millpondError } from "../errors.ts";
import { isName, isNodeName } from "../names.ts";
import { type ServiceClassWord, serviceClassWords } from "../claim-values.ts";
import { type FindKeys, isKeyId, signText, verifyText } from "./signed-text.ts";
import { maxMemoryBytes, minMemoryBytes } from "../units.ts";

const version = "mpt1";
const viewVersion = "mpv1";

/** Validity of a ticket, in seconds. */
export const ticketLifetimeSeconds = 60;

/** The longest ticket, in characters. */
export const maxTicketLength = 8192;

/** The longest lifetime that an agent accepts, even if the ticket is correctly signed. */
const maxLifetimeSeconds = 3600;

/** One year. */
const maxParkAfterSeconds = 366 * 86_400;

/** The most devices of one node: this many always fit into `maxTicketLength`. */
export const maxDevicesPerNode = 32;

/** The longest `spec` of a ticket, in characters. */
export const maxTicketSpecLength = 2048;

/** How many concurrent sessions an allocation may have for each of its vGPUs. */
export const maxSessionsPerDevice = 16;

/** The members that all tickets share, as in their JSON: the claim and its allocation. */
interface GrantPayload {
  readonly claim: string;
  readonly node: string;
  /** Epoch of the allocation. */
  readonly epoch: number;
  /** The order is that of the client's device ordinals. */
  readonly devices: readonly TicketDevice[];
  /** Term of the issuing controller. */
  readonly term: number;
  /** Order among the answers and tickets of the term. */
  readonly order: number;
  /** Unix seconds. */
  readonly issued: number;
  /** Unix seconds; the ticket is valid before this time, exclusively. */
  readonly expires: number;
  /** Id of the key that signed it. Signing adds it; absent in tickets of earlier controllers. */
  readonly kid?: string;
}

/** The contents of a ticket. */
export interface TicketPayload extends GrantPayload {
  /** UUID of the session that it opens. */
  readonly session: string;
  /** Tenant of the claim. Absent in tickets of earlier controllers. */
  readonly tenant?: string;
  /** Increases with every resize. Absent: 0. */
  readonly sizeRevision?: number;
  /** Priority of the claim. Absent: 0. */
  readonly priority?: number;
  /** The meaning of its compute shares. Absent: guaranteed. */
  readonly serviceClass?: ServiceClassWord;
  /** The session is parked after this time without a command, if it holds no state. Absent: never. */
  readonly parkAfterSeconds?: number;
  /**
   * Spec of the claim, as JSON that only controllers read: a controller with a restored state recreates the claims of running
   * sessions from it. Absent: it would not fit.
   */
  readonly spec?: string;
}

/** The contents of a view ticket, which opens no session and entitles its bearer to a description of the claim. */
export type ViewTicketPayload = GrantPayload;

export interface TicketDevice {
  readonly uuid: string;
  readonly memoryBytes: number;
  /** 1 to 100; 0: best effort. */
  readonly computePercent: number;
}

/**
 * Creates a ticket.
 *
 * @param privateKey the controller's Ed25519 key
 * @throws MILLPOND_E_INTERNAL when `verifyTicket` would not accept the payload
 */
export function signTicket(payload: TicketPayload, privateKey: KeyObject): string {
  if (!isTicketPayload(payload)) {
    throw millpondError("MILLPOND_E_INTERNAL", "the ticket to be signed has a member out of range");
  }
  const ticket = signText(version, { ...payload, kid: ticketKeyId(privateKey) }, privateKey);
  if (ticket.length > maxTicketLength) {
    throw millpondError(
      "MILLPOND_E_INTERNAL",
      `the ticket would have ${ticket.length} characters, more than 8192`,
    );
  }
  return ticket;
}

/**
 * Creates a view ticket.
 *
 * @param privateKey the controller's Ed25519 key
 * @throws MILLPOND_E_INTERNAL when `verifyViewTicket` would not accept the payload
 */
export function signViewTicket(payload: ViewTicketPayload, privateKey: KeyObject): string {
  if (!isGrantPayload(payload)) {
    throw millpondError("MILLPOND_E_INTERNAL", "the view ticket to be signed has a member out of range");
  }
  return signText(viewVersion, { ...payload, kid: ticketKeyId(privateKey) }, privateKey);
}

/** The controller's public key, or a function that finds it by the key id of a ticket. */
export type TicketKeys = KeyObject | FindKeys;

export interface VerifyTicketOptions {
  /** The verifier's clock, Unix seconds. */
  readonly nowSeconds: number;
  /** How far the controller's clock may be ahead or behind. Default 5. */
  readonly clockSkewSeconds?: number;
}

/**
 * Checks form, signature and time of a ticket. The caller must check node, epoch and single use.
 *
 * @throws MILLPOND_E_TICKET_INVALID, MILLPOND_E_TICKET_EXPIRED, MILLPOND_E_TICKET_NOT_YET_VALID
 */
export function verifyTicket(ticket: string, keys: TicketKeys, options: VerifyTicketOptions): TicketPayload {
  const payload = readTicket(ticket, keys);
  checkTime(payload, options);
  return payload;
}

/**
 * Checks form and signature of a ticket, which may have expired: it proves an earlier grant.
 *
 * @throws MILLPOND_E_TICKET_INVALID
 */
export function readTicket(ticket: string, keys: TicketKeys): TicketPayload {
  if (ticket.length > maxTicketLength) {
    throw invalid(`it has ${ticket.length} characters, more than ${maxTicketLength}`);
  }
  const payload = verifyText(ticket, version, finderOf(keys), invalid);
  if (!isTicketPayload(payload)) {
    throw invalid("a member of its payload is missing or out of range");
  }
  return payload;
}

/**
 * Checks form, signature and time of a view ticket. The caller must check node and epoch.
 *
 * @throws MILLPOND_E_TICKET_INVALID, MILLPOND_E_TICKET_EXPIRED, MILLPOND_E_TICKET_NOT_YET_VALID
 */
export function verifyViewTicket(
  ticket: string,
  keys: TicketKeys,
  options: VerifyTicketOptions,
): ViewTicketPayload {
  if (ticket.length > maxTicketLength) {
    throw invalid(`it has ${ticket.length} characters, more than ${maxTicketLength}`);
  }
  const payload = verifyText(ticket, viewVersion, finderOf(keys), invalid);
  if (!isGrantPayload(payload)) throw invalid("a member of its payload is missing or out of range");
  checkTime(payload, options);
  return payload;
}

/** @throws MILLPOND_E_TICKET_EXPIRED, MILLPOND_E_TICKET_NOT_YET_VALID */
function checkTime(payload: GrantPayload, { nowSeconds, clockSkewSeconds = 5 }: VerifyTicketOptions): void {
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

const keyIds = new WeakMap<KeyObject, string>();

/** Returns the id of a key: the beginning of the SHA-256 of its public half in SPKI form, so that no two keys share one. */
export function ticketKeyId(key: KeyObject): string {
  let id = keyIds.get(key);
  if (id === undefined) {
    const publicKey = key.type === "public" ? key : createPublicKey(key);
    id = hash("sha256", publicKey.export({ format: "der", type: "spki" }), "hex").slice(0, 16);
    keyIds.set(key, id);
  }
  return id;
}

function finderOf(keys: TicketKeys): FindKeys {
  return typeof keys === "function"
    ? keys
    : (id) => (id === undefined || id === ticketKeyId(keys) ? [keys] : []);
}

function invalid(why: string) {
  return millpondError("MILLPOND_E_TICKET_INVALID", `the ticket is not valid: ${why}`);
}

function isTicketPayload(value: unknown): value is TicketPayload {
  return (
    isObject(value) &&
    isGrantPayload(value) &&
    isUuid(value["session"]) &&
    (value["tenant"] === undefined || (typeof value["tenant"] === "string" && isName(value["tenant"]))) &&
    (value["sizeRevision"] === undefined ||
      isIntegerWithin(value["sizeRevision"], 1, Number.MAX_SAFE_INTEGER)) &&
    (value["priority"] === undefined || isIntegerWithin(value["priority"], -(2 ** 31), 2 ** 31 - 1)) &&
    (value["serviceClass"] === undefined ||
      serviceClassWords.some((word) => word === value["serviceClass"])) &&
    (value["parkAfterSeconds"] === undefined ||
      isIntegerWithin(value["parkAfterSeconds"], 1, maxParkAfterSeconds)) &&
    (value["spec"] === undefined ||
      (typeof value["spec"] === "string" && value["spec"].length <= maxTicketSpecLength))
  );
}

function isGrantPayload(value: unknown): value is GrantPayload {
  return (
    isObject(value) &&
    typeof value["claim"] === "string" &&
    isName(value["claim"]) &&
    typeof value["node"] === "string" &&
    isNodeName(value["node"]) &&
    isIntegerWithin(value["epoch"], 1, Number.MAX_SAFE_INTEGER) &&
    Array.isArray(value["devices"]) &&
    value["devices"].length >= 1 &&
    value["devices"].length <= maxDevicesPerNode &&
    value["devices"].every(isTicketDevice) &&
    isIntegerWithin(value["term"], 0, Number.MAX_SAFE_INTEGER) &&
    isIntegerWithin(value["order"], 0, Number.MAX_SAFE_INTEGER) &&
    isIntegerWithin(value["issued"], 0, Number.MAX_SAFE_INTEGER) &&
    isIntegerWithin(value["expires"], value["issued"] + 1, value["issued"] + maxLifetimeSeconds) &&
    (value["kid"] === undefined || isKeyId(value["kid"]))
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
