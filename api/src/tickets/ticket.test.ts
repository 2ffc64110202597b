// SPDX-License-Identifier: Apache-2.0

import { generateKeyPairSync, type KeyObject, sign } from "node:crypto";
import * as fc from "fast-check";
import { describe, expect, test } from "vitest";
import { errorCodeOf } from "../errors.ts";
import {
  formatTicketPublicKey,
  maxDevicesPerNode,
  maxTicketLength,
  parseTicketPublicKey,
  signTicket,
  ticketKeyId,
  type TicketPayload,
  verifyTicket,
} from "./ticket.ts";

const fuzzSeconds = Number(process.env["MILLPOND_FUZZ_SECONDS"] ?? 0);

/** How long a property is tested: this many runs, or MILLPOND_FUZZ_SECONDS, at most 200. */
function lasting(numRuns: number): fc.Parameters<unknown> {
  return fuzzSeconds === 0
    ? { numRuns }
    : { numRuns: Number.MAX_SAFE_INTEGER, interruptAfterTimeLimit: fuzzSeconds * 1000 };
}

const { privateKey, publicKey } = generateKeyPairSync("ed25519");
const issued = 1_790_000_000;
const payload: TicketPayload = {
  session: "7a6de2cf-9f7e-4c0b-8ef1-0d6d2f6a1b2c",
  claim: "claim-7f3a",
  node: "node-a",
  epoch: 12,
  devices: [{ uuid: "GPU-8f1c", memoryBytes: 536_870_912, computePercent: 50 }],
  term: 3,
  order: 17,
  issued,
  expires: issued + 60,
};
const ticket = signTicket(payload, privateKey);

function outcome(
  text: string,
  options: { key?: KeyObject; nowSeconds?: number; clockSkewSeconds?: number } = {},
) {
  const { key = publicKey, nowSeconds = issued, clockSkewSeconds = 5 } = options;
  try {
    verifyTicket(text, key, { nowSeconds, clockSkewSeconds });
    return "accepted";
  } catch (error) {
    return errorCodeOf(error);
  }
}

function signText(text: string): string {
  const signed = `mpt1.${Buffer.from(text).toString("base64url")}`;
  return `${signed}.${sign(null, Buffer.from(signed), privateKey).toString("base64url")}`;
}

test("a ticket may say how its shares are meant, in one of three words, and be for no share", () => {
  const [device] = payload.devices;
  const bestEffort = {
    ...payload,
    serviceClass: "best-effort",
    devices: [{ uuid: "GPU-8f1c", memoryBytes: device?.memoryBytes, computePercent: 0 }],
  };
  expect(outcome(signText(JSON.stringify(bestEffort)))).toBe("accepted");
  expect(outcome(signText(JSON.stringify({ ...bestEffort, serviceClass: "gold" })))).toBe(
    "MILLPOND_E_TICKET_INVALID",
  );
});

test("a ticket says what was signed", () => {
  expect(verifyTicket(ticket, publicKey, { nowSeconds: issued })).toEqual({
    ...payload,
    kid: ticketKeyId(publicKey),
  });
});

test("the public key survives its text form", () => {
  const key = parseTicketPublicKey(formatTicketPublicKey(publicKey));
  expect(outcome(ticket, { key })).toBe("accepted");
});

test.each([
  ["garbage", "AAAA"],
  ["another kind of key", formatTicketPublicKey(generateKeyPairSync("x25519").publicKey)],
])("a public key that is %s is refused", (_what, text) => {
  expect(() => parseTicketPublicKey(text)).toThrow(/MILLPOND_E_INVALID/);
});

test("another controller's ticket is refused", () => {
  const other = generateKeyPairSync("ed25519");
  expect(outcome(signTicket(payload, other.privateKey))).toBe("MILLPOND_E_TICKET_INVALID");
  expect(outcome(ticket, { key: other.publicKey })).toBe("MILLPOND_E_TICKET_INVALID");
});

describe("time", () => {
  test.each([
    [issued - 6, 5, "MILLPOND_E_TICKET_NOT_YET_VALID"],
    [issued - 5, 5, "accepted"],
    [issued - 1, 0, "MILLPOND_E_TICKET_NOT_YET_VALID"],
    [issued + 59, 0, "accepted"],
    [issued + 60, 0, "MILLPOND_E_TICKET_EXPIRED"],
    [issued + 64, 5, "accepted"],
    [issued + 65, 5, "MILLPOND_E_TICKET_EXPIRED"],
  ])("at %i with a skew of %i s: %s", (nowSeconds, clockSkewSeconds, expected) => {
    expect(outcome(ticket, { nowSeconds, clockSkewSeconds })).toBe(expected);
  });
});

describe("form", () => {
  const [, body, signature] = ticket.split(".");

  test.each([
    ["nothing", ""],
    ["two parts", `mpt1.${body}`],
    ["four parts", `${ticket}.x`],
    ["another version", `mpt2.${body}.${signature}`],
    ["no signature", `mpt1.${body}.`],
    ["no payload", `mpt1..${signature}`],
    ["padding", `${ticket}==`],
    ["a newline", `${ticket}\n`],
    ["a blank inside", `mpt1.${body} .${signature}`],
    ["more than 8 KiB", `mpt1.${"A".repeat(maxTicketLength)}.${signature}`],
    ["standard base64", ticket.replaceAll("-", "+").replaceAll("_", "/").concat("+")],
  ])("%s is refused", (_what, text) => {
    expect(outcome(text)).toBe("MILLPOND_E_TICKET_INVALID");
  });

  test.each([
    ["not JSON", "{"],
    ["not UTF-8", Buffer.from([0x22, 0xff, 0x22]).toString("latin1")],
    ["null", "null"],
    ["an array", "[]"],
    ["empty", "{}"],
    ["no devices", JSON.stringify({ ...payload, devices: [] })],
    ["too many devices", JSON.stringify({ ...payload, devices: Array(33).fill(payload.devices[0]) })],
    [
      "a device without memory",
      JSON.stringify({ ...payload, devices: [{ uuid: "GPU-1", computePercent: 1 }] }),
    ],
    [
      "negative memory",
      JSON.stringify({ ...payload, devices: [{ uuid: "GPU-1", memoryBytes: -1, computePercent: 1 }] }),
    ],
    [
      "compute beyond 100",
      JSON.stringify({ ...payload, devices: [{ uuid: "GPU-1", memoryBytes: 1 << 20, computePercent: 101 }] }),
    ],
    ["a fractional epoch", JSON.stringify({ ...payload, epoch: 1.5 })],
    ["an epoch as text", JSON.stringify({ ...payload, epoch: "12" })],
    ["a session that is a path", JSON.stringify({ ...payload, session: "../../etc" })],
    ["a bad claim name", JSON.stringify({ ...payload, claim: "a/b" })],
    ["no end", JSON.stringify({ ...payload, expires: undefined })],
    ["a day of life", JSON.stringify({ ...payload, expires: issued + 86_400 })],
    ["an end before its start", JSON.stringify({ ...payload, expires: issued })],
  ])("a well signed payload that is %s is refused", (_what, text) => {
    expect(outcome(signText(text))).toBe("MILLPOND_E_TICKET_INVALID");
  });

  test("signTicket does not sign what would be refused", () => {
    expect(() => signTicket({ ...payload, epoch: 0 }, privateKey)).toThrow(/MILLPOND_E_INTERNAL/);
    expect(() => signTicket({ ...payload, devices: [] }, privateKey)).toThrow(/MILLPOND_E_INTERNAL/);
  });

  test("the largest ticket fits the limit", () => {
    const devices = Array.from({ length: maxDevicesPerNode }, (_, index) => ({
      uuid: String(index).padStart(80, "0"),
      memoryBytes: 2 ** 50,
      computePercent: 100,
    }));
    expect(
      outcome(signTicket({ ...payload, claim: "c".repeat(63), node: "n".repeat(63), devices }, privateKey)),
    ).toBe("accepted");
  });
});

test("any single changed, removed or added character is refused", () => {
  const characters = Array.from(
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.+/= \n\u0000é",
  );
  const change = fc.record({
    at: fc.integer({ min: 0, max: ticket.length - 1 }),
    removed: fc.integer({ min: 0, max: 1 }),
    added: fc.option(fc.constantFrom(...characters), { nil: "" }),
  });
  fc.assert(
    fc.property(change, ({ at, removed, added }) => {
      const changed = ticket.slice(0, at) + added + ticket.slice(at + removed);
      fc.pre(changed !== ticket);
      expect(outcome(changed)).toBe("MILLPOND_E_TICKET_INVALID");
    }),
    lasting(500),
  );
});

test("every replacement of the last character is refused, spare bits included", () => {
  const rest = ticket.slice(0, -1);
  for (const last of "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_") {
    expect(outcome(rest + last)).toBe(rest + last === ticket ? "accepted" : "MILLPOND_E_TICKET_INVALID");
  }
});

test("any payload, signed as a ticket is, is accepted for what it says or refused as invalid, and never believed in part", () => {
  const odd = fc.oneof(
    fc.constantFrom<unknown>(
      null,
      true,
      "",
      "../x",
      [],
      {},
      -1,
      0,
      1.5,
      2 ** 53,
      1e308,
      "1",
      "GPU-1",
      "__proto__",
    ),
    fc.jsonValue(),
  );
  const members = Object.keys(payload);
  const change = fc.record({
    member: fc.constantFrom(...members, "priority", "parkAfterSeconds"),
    value: odd,
  });
  let accepted = 0;
  fc.assert(
    fc.property(fc.array(change, { maxLength: 3 }), fc.boolean(), (changes, isOfDevice) => {
      const said: Record<string, unknown> = structuredClone({ ...payload });
      for (const { member, value } of changes) {
        said[member] = isOfDevice ? [{ ...payload.devices[0], uuid: value, memoryBytes: value }] : value;
      }
      const text = signText(JSON.stringify(said));
      try {
        const {
          devices,
          epoch,
          issued: from,
          expires,
        } = verifyTicket(text, publicKey, { nowSeconds: issued });
        accepted += 1;
        expect(devices.length).toBeGreaterThan(0);
        for (const { uuid, memoryBytes, computePercent } of devices) {
          expect(uuid).toMatch(/^[A-Za-z0-9-]{1,80}$/);
          expect(Number.isSafeInteger(memoryBytes) && memoryBytes >= 1 << 20 && memoryBytes <= 2 ** 50).toBe(
            true,
          );
          expect(computePercent >= 0 && computePercent <= 100).toBe(true);
        }
        expect(Number.isSafeInteger(epoch) && epoch > 0).toBe(true);
        expect(from).toBeLessThanOrEqual(issued);
        expect(expires > issued && expires - from <= 3600).toBe(true);
      } catch (error) {
        expect(errorCodeOf(error), String(error)).toMatch(
          /^MILLPOND_E_TICKET_(INVALID|EXPIRED|NOT_YET_VALID)$/,
        );
      }
    }),
    lasting(3000),
  );
  expect(accepted).toBeGreaterThan(100);
});

test("any bytes are no ticket, and no payload of another kind of ticket is one", () => {
  fc.assert(
    fc.property(
      fc.oneof(fc.string({ unit: "binary" }), fc.array(fc.base64String(), { maxLength: 5 })),
      (text) => {
        expect(outcome(Array.isArray(text) ? ["mpt1", ...text].join(".") : text)).toBe(
          "MILLPOND_E_TICKET_INVALID",
        );
      },
    ),
    lasting(2000),
  );
  const view = `mpv1.${ticket.split(".").slice(1).join(".")}`;
  expect(outcome(view)).toBe("MILLPOND_E_TICKET_INVALID");
});
