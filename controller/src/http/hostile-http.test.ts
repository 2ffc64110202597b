// SPDX-License-Identifier: Apache-2.0

// Arbitrary bytes on the port: the server answers with a specific error or ends the connection, changes nothing, throws
// nothing, and keeps serving others.

import { request } from "node:http";
import { connect } from "node:net";
import { PoolService } from "@millpond/api";
import { createClient } from "@connectrpc/connect";
import * as fc from "fast-check";
import { pino } from "pino";
import { expect, onTestFinished, test } from "vitest";
import { services } from "../auth/access.ts";
import { startController } from "../controller.ts";
import { makeTestDirectory } from "../testing/test-pool.ts";
import { makeTransport } from "../testing/transport.ts";

/** MILLPOND_TEST_MESSAGES=100000 for a long run. */
const runs = Number(process.env["MILLPOND_TEST_MESSAGES"] ?? 600);

const paths = services.flatMap(({ typeName, methods }) => methods.map(({ name }) => `/${typeName}/${name}`));

const bytes = fc.oneof(
  fc.constantFrom(
    "",
    "{}",
    "{",
    "\0",
    "[[[[",
    '{"__proto__":{}}',
    '{"name":1e999}',
    "\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
  ),
  fc.string({ unit: "binary", maxLength: 200 }),
);

const headers = fc.array(
  fc.oneof(
    fc.constantFrom(
      "Content-Type: application/json",
      "Content-Type: application/proto",
      "Content-Type: application/grpc-web+proto",
      "Content-Encoding: gzip",
      "Content-Encoding: br",
      "Connect-Timeout-Ms: -1",
      "Connect-Timeout-Ms: 1e9",
      "Connect-Protocol-Version: 9",
      "Transfer-Encoding: chunked",
      "Transfer-Encoding: identity, chunked",
      "Content-Length: 5",
      "Content-Length: -1",
      "Content-Length: 99999999999999999999",
      "Expect: 100-continue",
      "Upgrade: h2c",
      "Connection: upgrade, HTTP2-Settings",
      "Authorization: Bearer",
      "Authorization: Bearer mp-claim-a.default.1.AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
      "Authorization: Basic YTpi",
      "Millpond-Passed-On: 1",
      "Millpond-Reason: %zz",
      "Host: 169.254.169.254",
      " folded",
    ),
    fc.string({ unit: "binary", maxLength: 40 }),
  ),
  { maxLength: 6 },
);

const requests = fc.record({
  method: fc.oneof(
    { weight: 3, arbitrary: fc.constant("POST") },
    fc.constantFrom("POST", "GET", "PUT", "OPTIONS", "CONNECT", "PRI", "post", ""),
  ),
  path: fc.oneof(
    { weight: 3, arbitrary: fc.constantFrom(...paths) },
    fc.constantFrom(
      "/",
      "*",
      "/healthz",
      "/metrics",
      "//",
      "/../../etc/passwd",
      "http://other/healthz",
      "/%00",
    ),
    fc.string({ unit: "binary", maxLength: 60 }),
  ),
  version: fc.oneof(
    { weight: 4, arbitrary: fc.constant("HTTP/1.1") },
    fc.constantFrom("HTTP/1.1", "HTTP/1.0", "HTTP/2.0", "HTTP/9", ""),
  ),
  headers,
  hasToken: fc.boolean(),
  type: fc.option(fc.constantFrom("application/json", "application/proto"), { nil: undefined }),
  isWhole: fc.boolean(),
  body: bytes,
});

async function say(url: string, text: string): Promise<string> {
  const { hostname, port } = new URL(url);
  const { promise, resolve } = Promise.withResolvers<string>();
  const socket = connect(Number(port), hostname);
  let said = "";
  socket.setEncoding("latin1");
  socket.on("data", (chunk) => {
    said += String(chunk);
    // One answer is enough: data after it is another request.
    socket.end();
  });
  socket.on("error", () => undefined);
  socket.on("close", () => resolve(said));
  socket.write(text, "latin1");
  // The client ends a half-sent request itself; another test proves that the server ends it too.
  socket.end();
  return await promise;
}

test("any bytes at the port are refused or do nothing, and the controller serves on", async () => {
  const failures: string[] = [];
  const controller = await startController({
    stateDirectory: makeTestDirectory(),
    listen: "127.0.0.1:0",
    log: pino({ level: "error" }, { write: (line: string) => failures.push(line) }),
  });
  onTestFinished(() => controller[Symbol.asyncDispose]());
  // A role that may change only its own node, which limits what the messages can do.
  const token = `Authorization: Bearer ${controller.agentToken}`;
  let answers = 0;
  const statuses = new Set<string>();
  await fc.assert(
    fc.asyncProperty(
      requests,
      async ({ method, path, version, headers: more, type, hasToken, isWhole, body }) => {
        const length = isWhole ? [`Content-Length: ${Buffer.byteLength(body, "latin1")}`] : [];
        const lines = [
          `${method} ${path} ${version}`,
          ...(hasToken ? [token] : []),
          ...(type === undefined ? [] : [`Content-Type: ${type}`]),
          "Host: 127.0.0.1",
          ...more,
          ...length,
        ];
        const said = await say(controller.url, `${lines.join("\r\n")}\r\n\r\n${body}`);
        answers += said === "" ? 0 : 1;
        const [, status = "0"] = /^HTTP\/1\.1 (\d{3})/.exec(said) ?? [];
        statuses.add(status);
        if (said !== "") {
          expect(Number(status)).toBeGreaterThanOrEqual(100);
        }
        expect(status, said).not.toBe("500");
        if (!hasToken && status === "200") {
          // Over gRPC-web the body carries the refusal.
          expect(said).toMatch(/\{"status":"ok"\}|grpc-status: [1-9]/);
        }
        expect(said).not.toContain(controller.agentToken);
      },
    ),
    { numRuns: runs },
  );
  expect(answers).toBeGreaterThan(runs / 4);
  // The requests were parsed far enough to be distinguished.
  expect([...statuses]).toEqual(expect.arrayContaining(["400", "401", "404"]));
  expect(failures).toEqual([]);
  const admin = createClient(PoolService, makeTransport(controller.url, controller.userToken));
  expect((await admin.getVersion({})).api).toBe("v1");
  expect((await admin.listNodes({})).nodes).toEqual([]);
});

test("a page of a browser that takes us for its own host reads nothing, with whatever token", async () => {
  const controller = await startController({
    stateDirectory: makeTestDirectory(),
    listen: "127.0.0.1:0",
    advertise: "http://pool.example.org:7170",
    log: pino({ level: "silent" }),
  });
  onTestFinished(() => controller[Symbol.asyncDispose]());
  const ask = async (path: string, host: string): Promise<readonly [number | undefined, string]> => {
    const { promise, resolve, reject } = Promise.withResolvers<readonly [number | undefined, string]>();
    const sent = { host, authorization: `Bearer ${controller.userToken}` };
    request(new URL(path, controller.url), { headers: sent }, (response) => {
      let text = "";
      response.setEncoding("utf8").on("data", (chunk: string) => (text += chunk));
      response.on("end", () => resolve([response.statusCode, text]));
    })
      .on("error", reject)
      .end();
    return await promise;
  };
  for (const path of ["/healthz", "/metrics", "/console/", "/millpond.v1.PoolService/GetVersion"]) {
    const [status, text] = await ask(path, "evil.example:7170");
    expect([path, status]).toEqual([path, 421]);
    expect(text).toMatch(/answers for its addresses and localhost.*evil\.example.*MILLPOND_E_FORBIDDEN/);
  }
  for (const host of [
    new URL(controller.url).host,
    "localhost:7170",
    "[::1]:7170",
    "pool.example.org:7170",
  ]) {
    expect([host, (await ask("/healthz", host))[0]]).toEqual([host, 200]);
  }
});
