// SPDX-License-Identifier: Apache-2.0

import { claimFieldNames, errorCodeOf } from "@millpond/api";
import * as fc from "fast-check";
import { expect, test } from "vitest";
import { readDocuments } from "./documents.ts";

/** Returns the error of a text; empty when there is none. */
function codeOf(text: string): string {
  try {
    readDocuments(text, "test");
    return "";
  } catch (error) {
    return errorCodeOf(error) ?? `not of the house form: ${String(error)}`;
  }
}

const scalars = fc.oneof(
  fc.string(),
  fc.integer(),
  fc.double(),
  fc.boolean(),
  fc.constant(null),
  fc.constant("50%"),
);
const values = fc.oneof(scalars, fc.array(scalars), fc.dictionary(fc.string(), scalars));
const keys = fc.oneof(
  fc.constantFrom(
    "kind",
    "name",
    "apiVersion",
    "weight",
    "parent",
    "guaranteed",
    "limit",
    "borrowing",
    "lease",
  ),
  fc.constantFrom(...claimFieldNames),
  fc.string(),
);

test("whatever a file says, it is understood or refused with one clear error", () => {
  fc.assert(
    fc.property(fc.dictionary(keys, values), fc.constantFrom("Claim", "Queue", "Tenant"), (members, kind) => {
      const text = JSON.stringify({ ...members, kind, name: "a" });
      expect(["", "MILLPOND_E_INVALID"]).toContain(codeOf(text));
    }),
    { numRuns: 1000 },
  );
});

test("whatever bytes a file has, it is understood or refused with one clear error", () => {
  const pieces = fc.constantFrom(
    "kind: ",
    "Claim",
    "\n",
    "---\n",
    "- ",
    "  ",
    "&a ",
    "*a",
    "{",
    "}",
    "[",
    "]",
    '"',
    "!!binary ",
    "<<: ",
    "? ",
    "| ",
    "%YAML 1.1\n",
    "\t",
    "\u0000",
    "name: x",
  );
  fc.assert(
    fc.property(
      fc.oneof(
        fc.string({ maxLength: 200 }),
        fc.array(pieces, { maxLength: 30 }).map((list) => list.join("")),
      ),
      (text) => {
        expect(["", "MILLPOND_E_INVALID"]).toContain(codeOf(text));
      },
    ),
    { numRuns: 1000 },
  );
});

test("a member that is not understood is never left out", () => {
  fc.assert(
    fc.property(fc.string({ minLength: 1 }), scalars, (key, value) => {
      fc.pre(!["kind", "name", "apiVersion", "lease", ...claimFieldNames].includes(key));
      expect(codeOf(JSON.stringify({ kind: "Claim", name: "a", [key]: value }))).toBe("MILLPOND_E_INVALID");
    }),
  );
});
