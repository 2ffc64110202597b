// SPDX-License-Identifier: Apache-2.0

// Arbitrary messages to every method, by every role, in both encodings: each is executed, or refused with one clear
// line and no change.

import {
  create,
  type DescEnum,
  type DescField,
  type DescMessage,
  type DescMethod,
  type Message,
  ScalarType,
  toBinary,
  toJson,
} from "@bufbuild/protobuf";
import { createClient } from "@connectrpc/connect";
import { AccessService, errorCodeOf, QueueService } from "@millpond/api";
import * as fc from "fast-check";
import { expect, test } from "vitest";
import { services } from "../auth/access.ts";
import { GiB, TestPool } from "../testing/test-pool.ts";
import { makeTransport } from "../testing/transport.ts";

/** MILLPOND_TEST_MESSAGES=100000 for a long run. */
const runs = Number(process.env["MILLPOND_TEST_MESSAGES"] ?? 600);

const texts = fc.oneof(
  fc.constantFrom("a", "b", "node-a", "default", "GPU-0", "soft", "admin", "user", "9.0", "1Gi", "50%"),
  fc.constantFrom(
    "",
    "../etc",
    "a".repeat(64),
    "x".repeat(5000),
    "\u0000",
    "é\u202e",
    "__proto__",
    "constructor",
  ),
  fc.string({ unit: "binary", maxLength: 20 }),
);
const numbers = fc.oneof(fc.constantFrom(0, 1, 2, 5, 50, 100, 101, 3600, 2 ** 31 - 1), fc.nat(1000));
const bigs = fc.oneof(
  fc.constantFrom(0n, 1n, 1n << 20n, GiB, 1n << 53n, (1n << 63n) - 1n),
  fc.bigInt(0n, 1n << 40n),
);

/** Calls that would wait are answered immediately, because the pool's clock stands still. */
const quick: Readonly<Record<string, fc.Arbitrary<unknown>>> = {
  timeoutSeconds: fc.constantFrom(0, 61, 2 ** 32 - 1),
  knownRevision: fc.constant(0n),
};

function scalarOf(type: ScalarType): fc.Arbitrary<unknown> {
  switch (type) {
    case ScalarType.STRING:
      return texts;
    case ScalarType.BOOL:
      return fc.boolean();
    case ScalarType.BYTES:
      return fc.uint8Array({ maxLength: 20 });
    case ScalarType.DOUBLE:
    case ScalarType.FLOAT:
      return fc.double();
    case ScalarType.INT32:
    case ScalarType.SINT32:
    case ScalarType.SFIXED32:
      return fc.oneof(numbers, fc.constantFrom(-1, -1000, -1001, -(2 ** 31)));
    case ScalarType.UINT32:
    case ScalarType.FIXED32:
      return fc.oneof(numbers, fc.constant(2 ** 32 - 1));
    case ScalarType.INT64:
    case ScalarType.SINT64:
    case ScalarType.SFIXED64:
      return fc.oneof(bigs, fc.constantFrom(-1n, -(1n << 63n)));
    case ScalarType.UINT64:
    case ScalarType.FIXED64:
      return fc.oneof(bigs, fc.constant((1n << 64n) - 1n));
  }
}

function enumOf({ values }: DescEnum): fc.Arbitrary<number> {
  return fc.constantFrom(...values.map(({ number }) => number), 99, -1);
}

function valueOf(field: DescField, depth: number): fc.Arbitrary<unknown> {
  const one = (): fc.Arbitrary<unknown> => {
    if (field.message !== undefined) {
      return messageOf(field.message, depth + 1);
    }
    if (field.enum !== undefined) {
      return enumOf(field.enum);
    }
    return field.scalar === undefined ? fc.constant(undefined) : scalarOf(field.scalar);
  };
  switch (field.fieldKind) {
    case "map":
      return fc.dictionary(texts, one(), { maxKeys: 3, noNullPrototype: true });
    case "list":
      return fc.array(one(), { maxLength: 3 });
    default:
      return quick[field.localName] ?? one();
  }
}

/**
 * Messages of a type with a few of their members set: with all of them set, a message would always be refused for the
 * same reason.
 */
function messageOf(type: DescMessage, depth = 0): fc.Arbitrary<Message> {
  const fields = type.fields.filter((field) => depth < 3 || field.fieldKind !== "message");
  return fc
    .subarray(fields, { maxLength: depth === 0 ? fields.length : Math.min(6, fields.length) })
    .chain((some) =>
      fc.record(Object.fromEntries(some.map((field) => [field.localName, valueOf(field, depth)]))),
    )
    .map((members) => create(type, members));
}

interface Spoilt {
  readonly at: number;
  readonly cut: number;
  readonly put: Uint8Array;
}
const spoiling = fc.option(
  fc.record({ at: fc.nat(200), cut: fc.nat(8), put: fc.uint8Array({ maxLength: 8 }) }),
  { freq: 3 },
);

function spoil(bytes: Uint8Array, how: Spoilt | null): Uint8Array {
  if (how === null) {
    return bytes;
  }
  const at = Math.min(how.at, bytes.length);
  return Buffer.concat([bytes.subarray(0, at), how.put, bytes.subarray(at + how.cut)]);
}

/** `undefined` for a value that cannot be encoded: an unknown enum value has no name in JSON, and a lone surrogate no UTF-8. */
function encode(type: DescMessage, message: Message, isJson: boolean): Uint8Array | undefined {
  try {
    return isJson ? Buffer.from(JSON.stringify(toJson(type, message))) : toBinary(type, message);
  } catch {
    return undefined;
  }
}

const methods = services.flatMap((service) => service.methods);

const calls = fc.constantFrom(...methods).chain((method) =>
  fc.record({
    method: fc.constant(method),
    message: messageOf(method.input),
    isJson: fc.boolean(),
    spoilt: spoiling,
    // Mostly as the method would be called in practice.
    who: fc.constantFrom("fitting", "fitting", "fitting", "fitting", "user", "agent", "nobody"),
  }),
);

/** All state that a refused call must leave unchanged. */
async function pictureOf(pool: TestPool): Promise<string> {
  const transport = makeTransport(pool.controller.url, pool.controller.userToken);
  const queues = createClient(QueueService, transport);
  const answers = await Promise.all([
    pool.claims.listClaims({ includeEnded: true }),
    pool.pool.listNodes({}),
    pool.pool.listDevices({}),
    pool.pool.listSessions({}),
    queues.listQueues({}),
    queues.listTenants({}),
    createClient(AccessService, transport).listTokens({}),
  ]);
  return JSON.stringify(answers, (key, value: unknown) => {
    // The reason why a claim waits is derived from the rest, and appears a moment later.
    if (key === "reason" || key === "version") {
      return undefined;
    }
    return typeof value === "bigint" ? String(value) : value;
  });
}

async function send(
  pool: TestPool,
  { parent, name }: DescMethod,
  body: Uint8Array,
  { isJson, token }: { readonly isJson: boolean; readonly token: string },
): Promise<{ readonly status: number; readonly text: string }> {
  const response = await fetch(`${pool.controller.url}/${parent.typeName}/${name}`, {
    method: "POST",
    headers: {
      "content-type": isJson ? "application/json" : "application/proto",
      authorization: `Bearer ${token}`,
    },
    body: Uint8Array.from(body),
  });
  return { status: response.status, text: await response.text() };
}

test(
  "whatever is sent to any method is done, or refused with one clear line and without a change",
  async () => {
    const pool = await TestPool.start({ "node-a": [4n * GiB, 4n * GiB] });
    await pool.claims.createClaim({ claim: { name: "a", memoryBytes: GiB } });
    await pool.claims.createClaim({ claim: { name: "b", gpus: 2, memoryBytes: 4n * GiB } });
    const { userToken, agentToken } = pool.controller;
    const seen = new Map<string, number>();
    let before = await pictureOf(pool);
    await fc.assert(
      fc.asyncProperty(calls, async ({ method, message, isJson, spoilt, who }) => {
        const encoded = encode(method.input, message, isJson);
        fc.pre(encoded !== undefined);
        const fitting = method.parent.typeName.endsWith("AgentService") ? agentToken : userToken;
        const token = { fitting, user: userToken, agent: agentToken, nobody: "no-such-token-00000" }[who];
        const { status, text } = await send(pool, method, spoil(encoded, spoilt), { isJson, token });
        const after = await pictureOf(pool);
        if (status !== 200) {
          const { message: line } = JSON.parse(text) as { message: string };
          expect(line).toMatch(/^[^\n]+ \[MILLPOND_E_[A-Z_]+\]$/);
          const code = errorCodeOf(new Error(line)) ?? "";
          expect(["MILLPOND_E_INTERNAL", "MILLPOND_E_STATE_BROKEN", ""]).not.toContain(code);
          expect(after).toBe(before);
          seen.set(code, (seen.get(code) ?? 0) + 1);
        } else {
          seen.set("done", (seen.get("done") ?? 0) + 1);
        }
        before = after;
      }),
      { numRuns: runs },
    );
    // The calls are neither all refused for the same reason nor all executed.
    expect(seen.get("done")).toBeGreaterThan(runs / 20);
    for (const code of [
      "MILLPOND_E_INVALID",
      "MILLPOND_E_UNAUTHENTICATED",
      "MILLPOND_E_FORBIDDEN",
      "MILLPOND_E_NOT_FOUND",
    ]) {
      expect(seen.get(code), code).toBeGreaterThan(0);
    }
    // The next controller on this state can read everything that was accepted, and the pool still grants.
    await pool.restart();
    await pool.addAgent("node-z", [GiB]);
    const { claim } = await pool.claims.createClaim({
      claim: { name: "last", memoryBytes: GiB, queue: "", nodeLabels: {} },
    });
    expect(claim?.state).toBeDefined();
  },
  600_000 + runs * 1000,
);
