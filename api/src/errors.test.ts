// SPDX-License-Identifier: Apache-2.0

import { readFileSync } from "node:fs";
import { Code, ConnectError } from "@connectrpc/connect";
import { errorFromJson, errorToJson } from "@connectrpc/connect/protocol-connect";
import { describe, expect, test } from "vitest";
import { ErrorInfoSchema } from "./gen/millpond/v1/error_pb.ts";
import { reason } from "./reasons/args.ts";
import { refusal, refusalFor } from "./reasons/refusal.ts";
import { mayKnowAll } from "./reasons/render.ts";
import { errorCodeOf, errorTable, millpondError, quote } from "./errors.ts";
import { errorsHeaderUrl, renderErrorsHeader } from "./generators/errors-cpp.ts";
import { errorsDocUrl, renderErrorsDoc } from "./generators/errors-doc.ts";

describe("millpondError", () => {
  test("is one line that ends with its code", () => {
    const error = millpondError(
      "MILLPOND_E_NO_CAPACITY",
      "no device has 40 GiB free: largest free is 31.2 GiB",
    );
    expect(error.code).toBe(Code.ResourceExhausted);
    expect(error.rawMessage).toBe(
      "no device has 40 GiB free: largest free is 31.2 GiB. Request less, or wait for capacity. [MILLPOND_E_NO_CAPACITY]",
    );
    expect(errorCodeOf(error)).toBe("MILLPOND_E_NO_CAPACITY");
  });

  test("keeps foreign text on the line", () => {
    const error = millpondError("MILLPOND_E_INVALID", `the name ${quote("a\nb\u001b[31m\u2028c")} is bad`);
    expect(error.rawMessage).toMatch(/^[^\p{Cc}\p{Cf}\p{Zl}\p{Zp}]+\[MILLPOND_E_INVALID\]$/u);
  });

  test("shortens foreign text", () => {
    expect(quote("x".repeat(1000)).length).toBe(80);
  });
});

describe("the detail of an error", () => {
  const [info] = millpondError("MILLPOND_E_NO_CAPACITY", "no room", { remedy: "Wait." }).findDetails(
    ErrorInfoSchema,
  );

  test("has the code and the remedy", () => {
    expect(info).toMatchObject({ code: "MILLPOND_E_NO_CAPACITY", remedy: "Wait." });
  });

  test("says the code whatever becomes of the message", () => {
    const wrapped = new ConnectError("claim a: [MILLPOND_E_INVALID], said the pool", Code.ResourceExhausted);
    wrapped.details.push({ desc: ErrorInfoSchema, value: { code: "MILLPOND_E_NO_CAPACITY" } });
    expect(errorCodeOf(wrapped)).toBe("MILLPOND_E_NO_CAPACITY");
  });

  test("wins over the message, also with a code that this version does not know", () => {
    const later = new ConnectError("x. y. [MILLPOND_E_INVALID]", Code.Internal);
    later.details.push({ desc: ErrorInfoSchema, value: { code: "MILLPOND_E_OF_LATER" } });
    expect(errorCodeOf(later)).toBeUndefined();
  });

  test("comes over the wire, of a refusal with its reason", () => {
    const refused = refusalFor(
      refusal("MILLPOND_E_IMPOSSIBLE", reason("no-device-of-capability", { capability: "9.0" })),
      mayKnowAll,
    );
    const json = errorToJson(ConnectError.from(refused), undefined);
    const read = errorFromJson(json, new Headers(), new ConnectError("it is no error", Code.Internal));
    expect(errorCodeOf(read)).toBe("MILLPOND_E_IMPOSSIBLE");
    expect(read.findDetails(ErrorInfoSchema)[0]?.reason).toMatchObject({
      code: "no-device-of-capability",
      args: { capability: "9.0" },
      text: "no device has compute capability 9.0",
    });
  });
});

test("errorCodeOf knows only codes of the table, only at the end", () => {
  expect(errorCodeOf(new ConnectError("x [MILLPOND_E_TOASTED]", Code.Internal))).toBeUndefined();
  expect(errorCodeOf(new Error("[MILLPOND_E_INVALID] x"))).toBeUndefined();
  expect(errorCodeOf(new Error("x. y. [MILLPOND_E_INVALID]"))).toBe("MILLPOND_E_INVALID");
  expect(errorCodeOf("x [MILLPOND_E_INVALID]")).toBeUndefined();
});

test.each(Object.entries(errorTable))("%s has a meaning and a remedy in the house form", (code, entry) => {
  expect(code).toMatch(/^MILLPOND_E_[A-Z]+(_[A-Z]+)*$/);
  expect(entry.meaning).toMatch(/^[A-Z].*\.$/);
  expect(entry.remedy).toMatch(/^[A-Z].*\.$/);
});

test("native/base/errors/gen/error_codes.h is up to date (npm run generate -w api)", () => {
  expect(readFileSync(errorsHeaderUrl, "utf8")).toBe(renderErrorsHeader());
});

test("docs/reference/errors.md is up to date (npm run generate -w api)", () => {
  expect(readFileSync(errorsDocUrl, "utf8")).toBe(renderErrorsDoc());
});
