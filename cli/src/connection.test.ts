// SPDX-License-Identifier: Apache-2.0

import { Code, ConnectError } from "@connectrpc/connect";
import { millpondError } from "@millpond/api";
import { expect, test } from "vitest";
import { isSilent } from "./connection.ts";

function unreachable(cause: ConnectError) {
  return millpondError("MILLPOND_E_UNREACHABLE", "there is no controller", { cause });
}

test.each([
  ["a refused connection", new ConnectError("connect ECONNREFUSED", Code.Unavailable), true],
  ["a lost connection", new ConnectError("read ECONNRESET", Code.Aborted), true],
  [
    "a connection that is lost while the request is written",
    ConnectError.from(
      Object.assign(new Error("write EPIPE"), { code: "EPIPE", syscall: "write" }),
      Code.Internal,
    ),
    true,
  ],
  ["an answer of somebody else", new ConnectError("HTTP 404", Code.Unimplemented), false],
] as const)("%s", (_what, cause, isExpected) => {
  expect(isSilent(unreachable(cause))).toBe(isExpected);
});

test("a controller that ends is silent, one that refuses is not", () => {
  expect(isSilent(millpondError("MILLPOND_E_SHUTTING_DOWN", "it ends"))).toBe(true);
  expect(isSilent(millpondError("MILLPOND_E_INVALID", "no"))).toBe(false);
});
