// SPDX-License-Identifier: Apache-2.0

import { readFileSync } from "node:fs";
import fc from "fast-check";
import { expect, test } from "vitest";
import { errorCodeOf } from "../errors.ts";
import { type HolderRef, type Kind, type Reason, reason, reasonArgs, type ReasonCode } from "./args.ts";
import { reasonsDocUrl, renderReasonsDoc } from "./doc.ts";
import { argsToJson, readReason, writeReason } from "./json.ts";
import { refusal, refusalFor } from "./refusal.ts";
import { mayKnowAll, mayKnowNone, redactReason, renderReason } from "./render.ts";
import { sampleReason } from "./sample.ts";

const codes = Object.keys(reasonArgs) as ReasonCode[];

const holder: fc.Arbitrary<HolderRef> = fc.record({
  kind: fc.constantFrom("claim" as const, "gang" as const),
  // Names that are not part of any sentence.
  name: fc.stringMatching(/^zq[a-z0-9]{6}$/),
  tenant: fc.constantFrom("xx-own", "xx-other"),
});

/** Any reason, with nested reasons. */
const anyReason: fc.Arbitrary<Reason> = fc.letrec<{ reason: Reason }>((tie) => {
  const kinds: Readonly<Record<Kind, fc.Arbitrary<unknown>>> = {
    text: fc.constantFrom("a", "b: c"),
    unsafeText: holder.map(({ kind, name }) => `taken back for ${kind} ${name}`),
    texts: fc.array(fc.constantFrom("H100", "A100")),
    name: fc.constantFrom("node-1", "research"),
    flag: fc.boolean(),
    count: fc.nat(100),
    percent: fc.nat(100),
    seconds: fc.nat(100_000),
    gpuMilli: fc.nat(100_000),
    bytes: fc.bigInt(1n << 20n, 1n << 50n),
    labels: fc.dictionary(fc.stringMatching(/^[a-z]{1,4}$/), fc.stringMatching(/^[a-z]{1,4}$/)),
    quota: fc.record({ gpuMilli: fc.nat(9000), memoryBytes: fc.bigInt(0n, 1n << 50n) }, { requiredKeys: [] }),
    excess: fc.record({
      resource: fc.constantFrom("gpuMilli", "computePercent", "memoryBytes"),
      amount: fc.nat(),
      limit: fc.nat(),
    }),
    holder,
    holders: fc.array(holder, { minLength: 1, maxLength: 3 }),
    reason: tie("reason"),
  };
  return {
    reason: fc.oneof(
      { depthSize: "small", withCrossShrink: true },
      ...codes.map((code) => {
        const args = Object.entries<string>(reasonArgs[code]).map(([name, kind]) => {
          const given = kinds[kind.replace("?", "") as Kind];
          return [name, kind.endsWith("?") ? fc.option(given, { nil: undefined }) : given] as const;
        });
        return fc.record(Object.fromEntries(args)).map((made) => ({ code, args: made }) as unknown as Reason);
      }),
    ),
  };
}).reason;

/** Names of claims and gangs in a text. */
function namesIn(text: string): string[] {
  return text.match(/zq[a-z0-9]{6}/g) ?? [];
}

test.each(codes)("%s is one sentence, without a full stop", (code) => {
  const text = renderReason(sampleReason(code), mayKnowAll);
  expect(text).toMatch(/^\S.*[^.\s]$/);
  expect(text).not.toMatch(/undefined|\[object|NaN/);
});

test("a reader learns no name of what it may not know, neither from the sentence nor from the data", () => {
  fc.assert(
    fc.property(anyReason, (any) => {
      const own = ({ tenant }: HolderRef) => tenant === "xx-own";
      for (const mayKnow of [mayKnowNone, own]) {
        const text = renderReason(any, mayKnow);
        const json = JSON.stringify(argsToJson(redactReason(any, mayKnow)));
        const all = JSON.stringify(argsToJson(any));
        const known = new Set(
          mayKnow === own
            ? [...all.matchAll(/"name":"(zq[a-z0-9]{6})","tenant":"xx-own"/g)].map((match) => match[1] ?? "")
            : [],
        );
        expect(namesIn(text).filter((name) => !known.has(name))).toEqual([]);
        expect(namesIn(json).filter((name) => !known.has(name))).toEqual([]);
        expect(json).not.toContain("xx-other");
        // The redacted data renders to the same text as the original does for this reader.
        expect(renderReason(redactReason(any, mayKnow), mayKnow)).toBe(text);
      }
    }),
    { numRuns: 2000 },
  );
});

test("who may know all reads every name", () => {
  const victims = sampleReason("preempting");
  expect(renderReason(victims, mayKnowAll)).toBe("claim low, claim lower are preempted for it");
  expect(renderReason(victims, mayKnowNone)).toBe(
    "a claim of another tenant, a claim of another tenant are preempted for it",
  );
  expect(redactReason(victims, mayKnowAll)).toBe(victims);
});

test("what is stored is what is read", () => {
  fc.assert(
    fc.property(anyReason, (any) => {
      const read = readReason(writeReason(any));
      expect(read && writeReason(read)).toBe(writeReason(any));
      expect(read && renderReason(read, mayKnowAll)).toBe(renderReason(any, mayKnowAll));
    }),
    { numRuns: 1000 },
  );
  expect(readReason(writeReason(undefined))).toBeUndefined();
});

test.each([
  ["of an earlier release", "preempted for claim urgent: it is best-effort"],
  ["that begins with a brace", "{not JSON"],
  ["of a later release", '{"code":"moon-phase","args":{"phase":3}}'],
  ["with another kind of argument", '{"code":"node-silent","args":{"seconds":"3"}}'],
  ["without an argument", '{"code":"node-silent","args":{}}'],
])("a text %s is shown to those who may know all, and to nobody else", (_what, text) => {
  const read = readReason(text);
  expect(read).toEqual(reason("recorded", { text }));
  expect(read && renderReason(read, mayKnowAll)).toBe(text);
  expect(read && renderReason(read, mayKnowNone)).toBe("recorded by an earlier release");
});

test("a refusal names nothing before it is known who reads it", () => {
  const refused = refusal("MILLPOND_E_NO_CAPACITY", sampleReason("preempting"), { remedy: "Wait." });
  expect(refused.rawMessage).not.toMatch(/low/);
  const forAll = refusalFor(refused, mayKnowAll);
  expect(forAll).toMatchObject({
    rawMessage: "claim low, claim lower are preempted for it. Wait. [MILLPOND_E_NO_CAPACITY]",
  });
  expect(errorCodeOf(forAll)).toBe("MILLPOND_E_NO_CAPACITY");
  const other = new Error("another");
  expect(refusalFor(other, mayKnowAll)).toBe(other);
  expect(refusalFor(undefined, mayKnowAll)).toBeUndefined();
});

test("docs/reference/reasons.md is up to date (npm run generate -w api)", () => {
  expect(readFileSync(reasonsDocUrl, "utf8")).toBe(renderReasonsDoc());
});
