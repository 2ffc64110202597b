// SPDX-License-Identifier: Apache-2.0

// The controller as `curl` and the client library see it.

import { connect } from "node:net";
import { gzipSync } from "node:zlib";
import { create, fromBinary, toBinary } from "@bufbuild/protobuf";
import { createClient } from "@connectrpc/connect";
import { createGrpcWebTransport } from "@connectrpc/connect-node";
import {
  AgentService,
  ClaimService,
  CreateClaimRequestSchema,
  CreateClaimResponseSchema,
  DeviceHealth,
  GetClaimRequestSchema,
  PoolService,
  SessionState,
} from "@millpond/api";
import { describe, expect, test } from "vitest";
import { fakeDevice } from "../testing/fake-agent.ts";
import { GiB, TestPool } from "../testing/test-pool.ts";
import { makeTransport } from "../testing/transport.ts";

interface Answer {
  readonly status: number;
  readonly body: Record<string, unknown>;
}

async function post(
  pool: TestPool,
  method: string,
  body: unknown,
  headers: Record<string, string> = {},
): Promise<Answer> {
  const response = await fetch(`${pool.controller.url}/millpond.v1.${method}`, {
    method: "POST",
    headers: {
      "Content-Type": "application/json",
      Authorization: `Bearer ${pool.controller.userToken}`,
      ...headers,
    },
    body: typeof body === "string" ? body : JSON.stringify(body),
  });
  const text = await response.text();
  return { status: response.status, body: text === "" ? {} : JSON.parse(text) };
}

test("a client library gets its vGPU with plain JSON", async () => {
  const pool = await TestPool.start({ "node-a": [GiB] });
  const created = await post(pool, "ClaimService/CreateClaim", {
    claim: {
      gpus: 1,
      memoryBytes: "536870912",
      computePercent: 50,
      owner: "user@host:1 program",
      leaseSeconds: 15,
      sessionBound: true,
    },
  });
  expect(created).toMatchObject({
    status: 200,
    body: { claim: { state: "CLAIM_STATE_BOUND", reason: "", version: expect.stringMatching(/^\d+$/) } },
  });
  const { name, version } = created.body["claim"] as { name: string; version: string };
  const waited = await post(pool, "ClaimService/WaitClaim", {
    name,
    knownVersion: version,
    timeoutSeconds: 0,
  });
  expect(waited).toMatchObject({ status: 200, body: { claim: { name, version } } });
  const ticket = await post(pool, "ClaimService/CreateTicket", {
    claim: name,
    clientHost: "boot-id",
    clientPid: 123,
    program: "vectoradd",
  });
  expect(ticket).toMatchObject({
    status: 200,
    body: {
      ticket: expect.stringMatching(/^mpt1\.[\w-]+\.[\w-]{86}$/),
      agentUrl: "http://127.0.0.1:7171/node-a",
      session: expect.stringMatching(/^[0-9a-f-]{36}$/),
    },
  });
  expect(await post(pool, "ClaimService/ReleaseClaim", { name })).toEqual({ status: 200, body: {} });
});

test("answers carry members at their default", async () => {
  const pool = await TestPool.start();
  const { body } = await post(pool, "ClaimService/CreateClaim", { claim: {} });
  expect(body["claim"]).toMatchObject({
    gpus: 1,
    memoryBytes: "0",
    memoryPercent: 0,
    computePercent: 0,
    owner: "",
    sessionBound: false,
    boundAt: "0",
  });
});

describe("bad input is refused with one clear line, and changes nothing", () => {
  const method = "ClaimService/CreateClaim";
  const wait = "ClaimService/WaitClaim";
  test.each([
    ["no claim", method, {}, 'the request has no "claim"'],
    ["too many vGPUs", method, { claim: { gpus: 65 } }, "gpus is 65, not between 1 and 64"],
    ["a negative number of vGPUs", method, { claim: { gpus: -1 } }, "millpond.v1.Claim.gpus"],
    ["half a vGPU", method, { claim: { gpus: 0.5 } }, "millpond.v1.Claim.gpus"],
    ["a number of vGPUs that is text", method, { claim: { gpus: "many" } }, "millpond.v1.Claim.gpus"],
    ["less than 1 MiB", method, { claim: { memoryBytes: "1048575" } }, "memoryBytes is 1048575, not 0"],
    [
      "more than 1 PiB",
      method,
      { claim: { memoryBytes: "1125899906842625" } },
      "memoryBytes is 1125899906842625",
    ],
    [
      "2^64 bytes",
      method,
      { claim: { memoryBytes: "18446744073709551616" } },
      "millpond.v1.Claim.memory_bytes",
    ],
    ["negative memory", method, { claim: { memoryBytes: "-1" } }, "millpond.v1.Claim.memory_bytes"],
    ["a size with a unit", method, { claim: { memoryBytes: "8Gi" } }, "millpond.v1.Claim.memory_bytes"],
    ["memory twice", method, { claim: { memoryBytes: "1048576", memoryPercent: 1 } }, "are both given"],
    [
      "more than all memory",
      method,
      { claim: { memoryPercent: 101 } },
      "memoryPercent is 101, not between 1 and 100",
    ],
    [
      "more than all compute",
      method,
      { claim: { computePercent: 101 } },
      "computePercent is 101, not between 1 and 100",
    ],
    [
      "too short a lease",
      method,
      { claim: { leaseSeconds: 4 } },
      "leaseSeconds is 4, not between 5 and 604800",
    ],
    ["too long a lease", method, { claim: { leaseSeconds: 604_801 } }, "leaseSeconds is 604801"],
    ["a bad name", method, { claim: { name: "../etc" } }, 'the claim name "../etc" is not'],
    ["a name that is too long", method, { claim: { name: "a".repeat(64) } }, "the claim name"],
    [
      "a member that does not exist",
      method,
      { claim: { memoryBites: "1048576" } },
      'key "memoryBites" is unknown',
    ],
    ["not JSON", method, "{claim", "cannot decode message"],
    ["an array", method, "[]", "cannot decode message"],
    ["nothing", method, "", "cannot decode message"],
    ["more than 1 MiB", method, " ".repeat((1 << 20) + 1), "message size"],
    ["too long a wait", wait, { name: "a", timeoutSeconds: 61 }, "Seconds is 61, not between 0 and 60"],
    ["a wait for nothing", wait, { timeoutSeconds: 1 }, "names no claim"],
    ["a bad event limit", "PoolService/ListEvents", { limit: 1001 }, "limit is 1001, not between 1 and 1000"],
    ["a bad node name", "PoolService/GetNode", { name: "a/b" }, "the node name"],
  ])("%s", async (_what, path, body, words) => {
    const pool = await TestPool.start();
    const answer = await post(pool, path, body);
    expect(answer.status).toBeGreaterThanOrEqual(400);
    expect(answer.body["message"]).toMatch(/^[^\n]+ \[MILLPOND_E_INVALID\]$/);
    expect(answer.body["message"]).toContain(words);
    expect((await pool.claims.listClaims({ includeEnded: true })).claims).toEqual([]);
    expect((await pool.pool.listEvents({})).events).toEqual([]);
  });

  test.each([
    ["WaitClaim", { name: "a", timeoutSeconds: 1 }],
    ["GetClaim", { name: "a" }],
    ["ReleaseClaim", { name: "a" }],
    ["CreateTicket", { claim: "a" }],
  ])("%s of a claim that does not exist", async (name, body) => {
    const pool = await TestPool.start();
    const answer = await post(pool, `ClaimService/${name}`, body);
    expect(answer).toMatchObject({ status: 404, body: { code: "not_found" } });
    expect(answer.body["message"]).toMatch(/^there is no claim "a"\. .* \[MILLPOND_E_NOT_FOUND\]$/);
  });

  test("what is not a method", async () => {
    const pool = await TestPool.start();
    const missing = await post(pool, "ClaimService/Destroy", {});
    expect(missing).toMatchObject({ status: 404, body: { code: "not_found" } });
    expect(missing.body["message"]).toMatch(/\[MILLPOND_E_NOT_FOUND\]$/);
    const type = await post(pool, method, "claim", { "Content-Type": "text/plain" });
    expect(type.status).toBe(415);
    expect(type.body["message"]).toMatch(/the content type .*\[MILLPOND_E_INVALID\]$/);
    const get = await fetch(`${pool.controller.url}/millpond.v1.ClaimService/ListClaims`);
    expect(get.status).toBe(405);
    expect(await get.text()).toMatch(/the HTTP method is not POST.*\[MILLPOND_E_INVALID\]"/);
  });

  test("text for people is made harmless instead of being refused", async () => {
    const pool = await TestPool.start();
    await post(pool, method, { claim: { name: "a", owner: `x\u001b[2J\n${"y".repeat(500)}` } });
    const { claim } = await pool.claims.getClaim({ name: "a" });
    expect(claim?.owner).toMatch(/^x \[2J y+…$/);
    expect(claim?.owner).toHaveLength(256);
  });

  test("as many claims wait as are kept, and no more", async () => {
    const pool = await TestPool.start();
    for (let round = 0; round < 10; round++) {
      await Promise.all(Array.from({ length: 100 }, () => pool.claims.createClaim({ claim: {} })));
    }
    await expect(pool.claims.createClaim({ claim: {} })).rejects.toThrow(
      /the tenant default has 1000 of the 1000 waiting claims.*\[MILLPOND_E_TOO_MANY_CLAIMS\]$/,
    );
  });
});

describe("agents that say what cannot be", () => {
  const good = {
    node: "node-x",
    run: "run-1",
    agentUrl: "http://127.0.0.1:7171",
    devices: [fakeDevice(0, GiB)],
  };
  const session = {
    id: "7a6de2cf-9f7e-4c0b-8ef1-0d6d2f6a1b2c",
    claim: "a",
    epoch: 1n,
    state: SessionState.CONNECTED,
  };

  test.each([
    ["a bad node name", { node: "Node X" }, "node name"],
    ["no run", { run: "" }, "run"],
    ["a URL that is none", { agentUrl: "127.0.0.1:7171" }, "agent URL"],
    ["a URL with a password", { agentUrl: "http://a:b@127.0.0.1" }, "agent URL"],
    ["a URL of another kind", { agentUrl: "file:///etc/passwd" }, "agent URL"],
    ["a device without memory", { devices: [fakeDevice(0, 0n)] }, "device node-x/0"],
    ["a device beyond 1 PiB", { devices: [fakeDevice(0, (1n << 50n) + 1n)] }, "device node-x/0"],
    ["too large an overhead", { devices: [{ ...fakeDevice(0, GiB), overheadBytes: GiB }] }, "overhead"],
    ["a device without UUID", { devices: [{ ...fakeDevice(0, GiB), uuid: "" }] }, "UUID"],
    [
      "a device without health",
      { devices: [{ ...fakeDevice(0, GiB), health: DeviceHealth.UNSPECIFIED }] },
      "health",
    ],
    ["a device twice", { devices: [fakeDevice(0, GiB), { ...fakeDevice(1, GiB), uuid: "GPU-0" }] }, "twice"],
    [
      "an ordinal twice",
      { devices: [fakeDevice(0, GiB), { ...fakeDevice(0, GiB), uuid: "GPU-1" }] },
      "twice",
    ],
    [
      "too many devices",
      { devices: Array.from({ length: 33 }, (_, index) => fakeDevice(index, GiB)) },
      "33 devices",
    ],
    ["a session that is no UUID", { sessions: [{ ...session, id: "1" }] }, "not a UUID"],
    ["a session of a bad claim", { sessions: [{ ...session, claim: "A" }] }, "claim name"],
    ["a session without state", { sessions: [{ ...session, state: SessionState.UNSPECIFIED }] }, "state"],
    ["a session twice", { sessions: [session, session] }, "twice"],
    ["a session from before time", { sessions: [{ ...session, startedAt: -1n }] }, "out of range"],
  ])("%s", async (_what, change, words) => {
    const pool = await TestPool.start();
    const client = createClient(AgentService, makeTransport(pool.controller.url, pool.controller.agentToken));
    const outcome = await client.sync({ ...good, ...change }).then(() => "accepted", String);
    expect(outcome).toMatch(/\[MILLPOND_E_INVALID\]$/);
    expect(outcome).toContain(words);
    expect((await pool.pool.listNodes({})).nodes).toEqual([]);
  });

  test("a call that was overtaken by a newer one is not taken over", async () => {
    const pool = await TestPool.start();
    const client = createClient(AgentService, makeTransport(pool.controller.url, pool.controller.agentToken));
    await client.sync({ ...good, sequence: 2n, sessions: [session] });
    await client.sync({ ...good, sequence: 1n, sessions: [] });
    expect((await pool.pool.listSessions({})).sessions).toHaveLength(1);
    const polling = client.sync({ ...good, sequence: 3n, sessions: [session] });
    await client.sync({ ...good, sequence: 4n, sessions: [] });
    await polling;
    expect((await pool.pool.listSessions({})).sessions).toHaveLength(0);
  });

  test("a node that is described need not be described again, unless the controller does not remember", async () => {
    const pool = await TestPool.start();
    const client = createClient(AgentService, makeTransport(pool.controller.url, pool.controller.agentToken));
    const { node, run } = good;
    const first = await client.sync({ ...good, sequence: 1n });
    expect(first.describedBy).toBe(1n);
    const known = { node, run, knownRevision: 0n, describedBy: 1n };
    const second = await client.sync({ ...known, sequence: 2n, sessions: [session] });
    expect(second.describedBy).toBe(1n);
    expect((await pool.pool.listSessions({})).sessions).toHaveLength(1);
    expect((await pool.pool.listDevices({})).devices).toHaveLength(1);
    for (const unknown of [{ describedBy: 7n }, { run: "run-2" }]) {
      pool.clock.advance(3000);
      expect((await client.sync({ ...known, ...unknown, sequence: 3n })).describedBy).toBe(0n);
      expect((await pool.pool.listSessions({})).sessions).toHaveLength(1);
    }
    const more = [fakeDevice(0, GiB), { ...fakeDevice(1, GiB), uuid: "GPU-1" }];
    expect((await client.sync({ ...good, devices: more, sequence: 3n })).describedBy).toBe(3n);
    expect((await pool.pool.listSessions({})).sessions).toHaveLength(0);
    expect((await pool.pool.listDevices({})).devices).toHaveLength(2);
  });

  test("a foreign revision frees nothing", async () => {
    const pool = await TestPool.start({ "node-x": [GiB] });
    await pool.claims.createClaim({ claim: { name: "a" } });
    await pool.claims.createTicket({ claim: "a" });
    await pool.killAgent("node-x");
    await pool.passTime(10);
    await pool.claims.releaseClaim({ name: "a" });
    const client = createClient(AgentService, makeTransport(pool.controller.url, pool.controller.agentToken));
    const report = { ...good, run: "run-2" };
    const answer = await client.sync({ ...report, knownRevision: 1000n });
    expect((await pool.pool.listDevices({})).devices).toMatchObject([{ virtualGpus: 1 }]);
    const polling = client.sync({
      ...report,
      sequence: 1n,
      knownRevision: answer.revision,
      knownTerm: answer.term,
    });
    await expect
      .poll(async () => (await pool.pool.listDevices({})).devices[0]?.virtualGpus, { interval: 1 })
      .toBe(0);
    pool.clock.advance(2000);
    await polling;
  });
});

describe("authentication", () => {
  const methods = [
    ["claim", "ClaimService/ListClaims"],
    ["user", "PoolService/ListNodes"],
    ["agent", "AgentService/Sync"],
  ] as const;

  test.each(methods)("%s %s needs a token", async (_role, method) => {
    const pool = await TestPool.start();
    for (const authorization of [
      "",
      "Bearer",
      "Bearer ",
      "Bearer x",
      "Basic dTpw",
      pool.controller.userToken,
    ]) {
      const answer = await post(pool, method, "{", { Authorization: authorization });
      expect(answer).toMatchObject({ status: 401, body: { code: "unauthenticated" } });
      expect(answer.body["message"]).toMatch(/\[MILLPOND_E_UNAUTHENTICATED\]$/);
    }
  });

  test.each(methods)("a token of another role than %s does not open %s", async (role, method) => {
    const pool = await TestPool.start();
    const { userToken, agentToken } = pool.controller;
    const token = role === "agent" ? userToken : agentToken;
    const answer = await post(pool, method, {}, { Authorization: `Bearer ${token}` });
    expect(answer).toMatchObject({ status: 403, body: { code: "permission_denied" } });
    expect(answer.body["message"]).toMatch(
      new RegExp(`needs a token of the role ${role}.*\\[MILLPOND_E_FORBIDDEN\\]$`),
    );
  });

  test("any token opens GetVersion; health needs none", async () => {
    const pool = await TestPool.start();
    const { agentToken } = pool.controller;
    const version = await post(pool, "PoolService/GetVersion", {}, { Authorization: `Bearer ${agentToken}` });
    expect(version).toMatchObject({ status: 200, body: { api: "v1" } });
    const health = await fetch(`${pool.controller.url}/healthz`);
    expect([health.status, await health.json()]).toEqual([200, { status: "ok" }]);
  });
});

describe("a call that is refused before it was read", () => {
  test.each([
    ["of known length", "content-length: 4\r\n\r\n", "abcd"],
    ["in pieces", "transfer-encoding: chunked\r\n\r\n", "4\r\nabcd\r\n0\r\n\r\n"],
  ])("is answered when all of it has come, %s", async (_what, head, body) => {
    const pool = await TestPool.start();
    for (const type of ["application/proto", "application/json"]) {
      const { port } = new URL(pool.controller.url);
      const socket = connect(Number(port), "127.0.0.1").setEncoding("utf8");
      let answer = "";
      socket.on("data", (text: string) => {
        answer += text;
      });
      socket.write(
        `POST /millpond.v1.PoolService/ListNodes HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: ${type}\r\n${head}`,
      );
      // By then the reason for the refusal is known.
      await pool.settle();
      await pool.settle();
      expect(answer).toBe("");
      socket.write(body);
      await expect.poll(() => answer).toMatch(/^HTTP\/1\.1 401 [^]*MILLPOND_E_UNAUTHENTICATED/);
      socket.destroy();
    }
  });
});

describe("binary messages", () => {
  async function call(
    pool: TestPool,
    method: string,
    body: Uint8Array<ArrayBuffer>,
    headers: Record<string, string> = {},
  ): Promise<Response> {
    return await fetch(`${pool.controller.url}/millpond.v1.${method}`, {
      method: "POST",
      headers: {
        "Content-Type": "application/proto",
        Authorization: `Bearer ${pool.controller.userToken}`,
        ...headers,
      },
      body,
    });
  }

  test("are answered with one, compressed or limited in time or not", async () => {
    const pool = await TestPool.start({ "node-a": [GiB] });
    const request = toBinary(CreateClaimRequestSchema, create(CreateClaimRequestSchema, { claim: {} }));
    for (const headers of [{}, { "Connect-Timeout-Ms": "60000" }, { "Content-Encoding": "gzip" }]) {
      const body = "Content-Encoding" in headers ? gzipSync(request) : request;
      const answer = await call(pool, "ClaimService/CreateClaim", new Uint8Array(body), headers);
      expect([answer.status, answer.headers.get("content-type")]).toEqual([200, "application/proto"]);
      const { claim } = fromBinary(CreateClaimResponseSchema, new Uint8Array(await answer.arrayBuffer()));
      expect(claim).toMatchObject({ gpus: 1, owner: "" });
    }
    expect((await pool.claims.listClaims({})).claims).toHaveLength(3);
  });

  test.each([
    ["what is no message", "CreateClaim", Buffer.from("no message"), 400, "INVALID"],
    ["a message too large", "CreateClaim", Buffer.alloc((1 << 20) + 1), 429, "INVALID"],
    ["what cannot be", "GetClaim", Buffer.alloc(0), 400, "INVALID"],
    [
      "what is not there",
      "GetClaim",
      toBinary(GetClaimRequestSchema, create(GetClaimRequestSchema, { name: "x" })),
      404,
      "NOT_FOUND",
    ],
  ] as const)("%s is refused as ever", async (_what, method, body, status, code) => {
    const pool = await TestPool.start();
    const answer = await call(pool, `ClaimService/${method}`, new Uint8Array(body));
    expect([answer.status, answer.headers.get("content-type")]).toEqual([status, "application/json"]);
    const { message } = (await answer.json()) as { message: string };
    expect(message).toMatch(new RegExp(`^[^\\n]+ \\[MILLPOND_E_${code}\\]$`));
    expect((await pool.claims.listClaims({ includeEnded: true })).claims).toEqual([]);
  });

  test("need a token, and are not read without", async () => {
    const pool = await TestPool.start();
    const answer = await call(pool, "ClaimService/GetClaim", new Uint8Array(1000), { Authorization: "" });
    expect(answer.status).toBe(401);
    expect(await answer.text()).toContain("MILLPOND_E_UNAUTHENTICATED");
  });
});

test("gRPC-web is served too", async () => {
  const pool = await TestPool.start();
  const transport = createGrpcWebTransport({
    baseUrl: pool.controller.url,
    httpVersion: "1.1",
    interceptors: [
      (next) => async (request) => {
        request.header.set("Authorization", `Bearer ${pool.controller.userToken}`);
        return await next(request);
      },
    ],
  });
  expect((await createClient(PoolService, transport).getVersion({})).api).toBe("v1");
  await expect(createClient(ClaimService, transport).getClaim({ name: "x" })).rejects.toThrow(
    /MILLPOND_E_NOT_FOUND/,
  );
});

test.each(["gzip", "br"])(
  "an error that is long enough to be sent as %s is sent as it is",
  async (encoding) => {
    const pool = await TestPool.start({});
    const response = await fetch(`${pool.controller.url}/millpond.v1.ClaimService/GetClaim`, {
      method: "POST",
      headers: {
        authorization: `Bearer ${pool.controller.userToken}`,
        "content-type": "application/json",
        "accept-encoding": encoding,
      },
      body: JSON.stringify({ ["x".repeat(2000)]: 1 }),
    });
    expect(response.status).toBe(400);
    expect(await response.json()).toMatchObject({
      message: expect.stringMatching(/\[MILLPOND_E_INVALID\]$/),
      details: [{ debug: { code: "MILLPOND_E_INVALID" } }],
    });
  },
);
