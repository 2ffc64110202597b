// SPDX-License-Identifier: Apache-2.0

import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Code, ConnectError } from "@connectrpc/connect";
import { millpondError } from "@millpond/api";
import { expect, onTestFinished, test } from "vitest";
import { connect, isSilent, resolveEndpoint } from "./connection.ts";
import { enterContext, readContexts, writeContexts } from "./context.ts";

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
  ["an answer of another program", new ConnectError("HTTP 404", Code.Unimplemented), false],
] as const)("%s", (_what, cause, isExpected) => {
  expect(isSilent(unreachable(cause))).toBe(isExpected);
});

test.each(["a b", "a\nb", "\u0001", "ü€", "x".repeat(5000), " x"])(
  "what is no token is refused, and not shown: %j",
  (token) => {
    const options = { controller: "http://127.0.0.1:1", token };
    const refusal = { message: expect.not.stringContaining(token) as string };
    expect(() => resolveEndpoint(options, {})).toThrow(expect.objectContaining(refusal));
    expect(() => resolveEndpoint(options, {})).toThrow("[MILLPOND_E_INVALID]");
    const directory = mkdtempSync(join(tmpdir(), "millpond-connection-"));
    onTestFinished(() => rmSync(directory, { recursive: true }));
    const path = join(directory, "config.json");
    writeContexts(path, enterContext(readContexts(path), "here", options));
    const environment = { MILLPOND_CONFIG: path };
    const find = () => resolveEndpoint({ controller: undefined, token: undefined }, environment);
    expect(find).toThrow(`${path}: a token is one word`);
  },
);

test("a controller that ends is silent, one that refuses is not", () => {
  expect(isSilent(millpondError("MILLPOND_E_SHUTTING_DOWN", "it ends"))).toBe(true);
  expect(isSilent(millpondError("MILLPOND_E_INVALID", "no"))).toBe(false);
});

test("a controller that takes a call and says nothing is said not to answer, and may be asked again", async () => {
  const server = createServer(() => undefined).listen(0, "127.0.0.1");
  await once(server, "listening");
  onTestFinished(() => server.closeAllConnections());
  onTestFinished(() => void server.close());
  const { port } = server.address() as AddressInfo;
  const controller = `http://127.0.0.1:${port}`;
  const { pool } = connect({ controller, token: "", source: "--controller", ca: undefined });
  const error: unknown = await pool.getVersion({}, { timeoutMs: 200 }).catch((each: unknown) => each);
  expect(String(error)).toMatch(/127\.0\.0\.1:\d+ does not answer in time\. .*\[MILLPOND_E_UNREACHABLE\]$/);
  expect(isSilent(error)).toBe(true);
});

test("a controller that does not know a call is of an older release, and the error says which call", async () => {
  const message =
    "there is no method POST /millpond.v1.PoolService/GetVersion. Call POST /millpond.v1.<Service>/<Method>. [MILLPOND_E_NOT_FOUND]";
  const server = createServer((_request, response) => {
    response
      .writeHead(404, { "content-type": "application/json" })
      .end(JSON.stringify({ code: "not_found", message }));
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  onTestFinished(() => void server.close());
  const { port } = server.address() as AddressInfo;
  const controller = `http://127.0.0.1:${port}`;
  const { pool } = connect({ controller, token: "", source: "--controller", ca: undefined });
  await expect(pool.getVersion({})).rejects.toThrow(
    /is of an older release than this command: it has no PoolService\/GetVersion\. Upgrade .*\[MILLPOND_E_VERSION\]$/,
  );
});
