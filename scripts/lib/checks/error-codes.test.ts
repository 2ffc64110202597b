// SPDX-License-Identifier: Apache-2.0
import { expect, test } from "vitest";
import { findWrittenCodes } from "./error-codes.ts";

test("native code takes error codes from the table, and only tests write them out", () => {
  expect(
    findWrittenCodes([
      { path: "native/a.cpp", text: 'return Error{"no. Wait. [MILLPOND_E_GONE]"};' },
      { path: "native/b.cpp", text: "return codedError(codes::kGone, MILLPOND_ENDED);" },
      { path: "native/a_test.cpp", text: 'ends_with("[MILLPOND_E_GONE]")' },
      { path: "native/base/errors/gen/error_codes.h", text: '"MILLPOND_E_GONE"' },
    ]),
  ).toEqual(["native/a.cpp has MILLPOND_E_GONE as text: use base/errors/coded_error.h"]);
});
