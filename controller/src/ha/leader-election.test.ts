// SPDX-License-Identifier: Apache-2.0

// Two controllers on one database, in one process: the behaviour of the follower.

import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { createClient } from "@connectrpc/connect";
import {
  AccessService,
  ClaimService,
  ClaimState,
  leaderHeader,
  PoolService,
  QueueService,
} from "@millpond/api";
import { makeAuthority, makeServerCertificate } from "@millpond/platform";
import { pino } from "pino";
import { describe, expect, onTestFinished, test } from "vitest";
import { systemClock } from "../timers/clock.ts";
import { type Controller, startController } from "../controller.ts";
import type { ControllerOptions } from "../options.ts";
import { postgresServer } from "../testing/backends.ts";
import { FakeAgent, fakeDevice } from "../testing/fake-agent.ts";
import { missingPostgres } from "../testing/postgres-server.ts";
import { GiB, makeTestDirectory } from "../testing/test-pool.ts";
import { makeTransport } from "../testing/transport.ts";
import { until as untilAnswer } from "../testing/until.ts";

const userToken = "user-of-all-controllers";
const agentToken = "agent-of-all-controllers";
const why = missingPostgres === undefined ? "" : ` (${missingPostgres})`;

const keyFiles = new Map<string, string>();

/** All controllers of a database have the same pool key. */
function keyFileOf(storeUrl: string): string {
  const file = keyFiles.get(storeUrl) ?? join(makeTestDirectory(), "pool.key");
  keyFiles.set(storeUrl, file);
  return file;
}

async function start(storeUrl: string, options: Partial<ControllerOptions> = {}): Promise<Controller> {
  const controller = await startController({
    stateDirectory: makeTestDirectory(),
    storeUrl,
    keyFile: keyFileOf(storeUrl),
    log: pino({ level: "silent" }),
    ...options,
    listen: "127.0.0.1:0",
    userTokens: [userToken],
    agentTokens: [agentToken],
  });
  onTestFinished(() => controller[Symbol.asyncDispose]());
  return controller;
}

function clientsOf(url: string, token = userToken) {
  const transport = makeTransport(url, token);
  return {
    claims: createClient(ClaimService, transport),
    pool: createClient(PoolService, transport),
    queues: createClient(QueueService, transport),
    access: createClient(AccessService, transport),
  };
}

async function until(isMet: () => Promise<boolean>): Promise<void> {
  await untilAnswer(isMet.toString(), async () => ((await isMet()) ? true : undefined));
}

interface Answered {
  readonly status: number;
  readonly headers: Headers;
  readonly body: unknown;
}

/** This controller's own answer: redirects are not followed. */
async function ask(url: string, method: string, request: object = {}, token = userToken): Promise<Answered> {
  const response = await fetch(`${url}/millpond.v1.${method}`, {
    method: "POST",
    headers: { "Content-Type": "application/json", Authorization: `Bearer ${token}` },
    body: JSON.stringify(request),
  });
  return { status: response.status, headers: response.headers, body: await response.json() };
}

/** A leader and a follower. */
async function startTwo(options: Partial<ControllerOptions> = {}) {
  const storeUrl = await (await postgresServer()).makeDatabase();
  const leader = await start(storeUrl, options);
  const follower = await start(storeUrl, options);
  return { storeUrl, leader, follower, atLeader: clientsOf(leader.url), atFollower: clientsOf(follower.url) };
}

async function startAgent(controllers: readonly Controller[], token = agentToken): Promise<FakeAgent> {
  const agent = new FakeAgent({
    url: controllers.map(({ url }) => url).join(","),
    token,
    clock: systemClock,
    node: "node-a",
    devices: [fakeDevice(0, 4n * GiB)],
  });
  agent.isPersistent = true;
  onTestFinished(() => agent[Symbol.asyncDispose]());
  return await agent.start();
}

describe.skipIf(missingPostgres !== undefined)(`a controller that follows${why}`, () => {
  test("takes logins of browsers, which the leader records, and which end everywhere", async () => {
    const { leader, follower, atLeader } = await startTwo();
    const page = { "content-type": "application/json", "millpond-console": "1" };
    const session = (url: string, init: RequestInit) => fetch(`${url}/console/session`, init);
    const logIn = async () => {
      const body = JSON.stringify({ token: userToken });
      const response = await session(follower.url, { method: "POST", headers: page, body });
      expect(response.status).toBe(200);
      return (response.headers.get("set-cookie") ?? "").split(";")[0] ?? "";
    };
    const statusAt = async (url: string, cookie: string) =>
      (await session(url, { headers: { ...page, cookie } })).status;
    const first = await logIn();
    // Even before the follower has its record.
    expect([await statusAt(follower.url, first), await statusAt(leader.url, first)]).toEqual([200, 200]);
    const { logins } = await atLeader.access.listLogins({});
    expect(logins).toMatchObject([{ who: "environment:user-1", kind: "console" }]);
    await atLeader.access.revokeLogin({ id: logins[0]?.id ?? "" });
    expect(await statusAt(leader.url, first)).toBe(401);
    await until(async () => (await statusAt(follower.url, first)) === 401);
    const second = await logIn();
    const out = await session(follower.url, { method: "DELETE", headers: { ...page, cookie: second } });
    expect(out.status).toBe(204);
    expect(await statusAt(leader.url, second)).toBe(401);
    expect((await atLeader.access.listLogins({})).logins).toEqual([]);
  });

  test("tells a user of another controller's token file that each controller has its own", async () => {
    const { leader, follower } = await startTwo();
    expect(follower.userToken).not.toBe(leader.userToken);
    const outsider = clientsOf(follower.url, leader.userToken);
    await expect(outsider.pool.listNodes({})).rejects.toThrow(
      /does not know the request's token\. .*from the file user\.token .* only to the controller that wrote the file, and another controller may be the leader now\./,
    );
    // The call passes the follower, which knows the token, and is refused by the leader.
    const insider = await ask(follower.url, "ClaimService/ExplainClaim", { name: "a" }, follower.userToken);
    expect(insider.body).toMatchObject({
      message: expect.stringMatching(
        new RegExp(
          `the leader, at ${leader.url}, does not know the request's token\\. .*each controller's own`,
        ),
      ),
    });
    await leader[Symbol.asyncDispose]();
    await until(async () => (await clientsOf(follower.url).pool.getVersion({})).leads);
    await expect(outsider.pool.listNodes({})).rejects.toThrow(/another controller may be the leader now/);
  });

  test("knows which nodes were removed: their agents are refused by whoever leads next", async () => {
    const { leader, follower, atLeader, atFollower } = await startTwo();
    const agent = await startAgent([leader]);
    agent.isPersistent = false;
    await agent[Symbol.asyncDispose]();
    await until(
      async () =>
        await atLeader.pool.removeNode({ name: "node-a" }).then(
          () => true,
          () => false,
        ),
    );
    await leader[Symbol.asyncDispose]();
    await until(async () => (await atFollower.pool.getVersion({})).leads);
    expect((await atFollower.pool.listNodes({})).nodes).toEqual([]);
    const refused = startAgent([follower]);
    await expect(refused).rejects.toThrow(/MILLPOND_E_NODE_REMOVED/);
    const { secret } = await atFollower.access.createToken({ name: "again", role: "agent" });
    await startAgent([follower], secret);
    expect((await atFollower.pool.listNodes({})).nodes.map(({ name }) => name)).toEqual(["node-a"]);
  });

  test("answers from what is durable, and sends what only the leader can do to where that is", async () => {
    const { leader, follower, atLeader, atFollower } = await startTwo();
    expect(follower.identity).toBe(leader.identity);
    await atLeader.claims.createClaim({ claim: { name: "a" } });
    await atLeader.queues.putQueue({ queue: { name: "research" } });
    const made = await atLeader.access.createToken({ name: "ann", role: "user" });
    await until(async () => (await atFollower.access.listTokens({})).tokens.length === 1);
    expect((await atFollower.claims.getClaim({ name: "a" })).claim).toMatchObject({
      state: ClaimState.PENDING,
      reason: "the leader knows the reason",
      leaseExpiresAt: 0n,
    });
    expect((await atFollower.claims.listClaims({})).claims).toHaveLength(1);
    expect((await atFollower.queues.listQueues({})).queues.map(({ name }) => name)).toContain("research");
    expect((await atFollower.pool.listEvents({})).events.map(({ kind }) => kind)).toEqual([
      "ControllerLeads",
      "ClaimCreated",
      "QueueCreated",
    ]);
    expect((await atFollower.access.listAudit({})).records).toHaveLength(3);
    expect(await atFollower.pool.getVersion({})).toMatchObject({ leads: false, leaderUrl: leader.url });
    expect(await atLeader.pool.getVersion({})).toMatchObject({ leads: true, leaderUrl: leader.url });
    // A token created by one controller is valid at the other.
    const ann = clientsOf(follower.url, made.secret);
    expect((await ann.claims.listClaims({})).claims).toHaveLength(1);

    const { url } = leader;
    const refused = await ask(follower.url, "ClaimService/ReleaseClaim", { name: "a" });
    expect(refused.status).toBe(503);
    expect(refused.headers.get(leaderHeader)).toBe(url);
    expect(refused.body).toMatchObject({
      message: expect.stringMatching(
        new RegExp(`^only the leader serves ClaimService/ReleaseClaim; it is at ${url}\\. `),
      ),
    });
    // A client that is redirected follows.
    await atFollower.claims.releaseClaim({ name: "a" });
    expect((await atLeader.claims.listClaims({})).claims).toHaveLength(0);
    const metrics = await fetch(`${follower.url}/metrics`, {
      headers: { Authorization: `Bearer ${userToken}` },
    });
    const text = await metrics.text();
    expect(text).toContain("millpond_controller_leads 0\n");
    expect(text).not.toContain("millpond_nodes");
  });

  test("asks the one that leads what only that one knows, as the caller, and says when there is none", async () => {
    const { leader, follower, atLeader } = await startTwo();
    const agent = await startAgent([leader, follower]);
    await atLeader.queues.putTenant({ tenant: { name: "team-a" } });
    await atLeader.claims.createClaim({ claim: { name: "a" } });
    await atLeader.claims.createClaim({ claim: { name: "waits" } });
    const session = await agent.openSession((await atLeader.claims.createTicket({ claim: "a" })).ticket);
    const { secret } = await atLeader.access.createToken({ name: "ann", role: "user", tenant: "team-a" });
    const knowsAnn = async () =>
      (await ask(follower.url, "ClaimService/ListClaims", {}, secret)).status === 200;
    await until(knowsAnn);

    const reads: [string, object, unknown][] = [
      ["PoolService/ListNodes", {}, { nodes: [{ name: "node-a", state: "NODE_STATE_READY" }] }],
      ["PoolService/GetNode", { name: "node-a" }, { node: { warmWorkers: 2 } }],
      ["PoolService/ListDevices", {}, { devices: [{ virtualGpus: 1 }] }],
      ["PoolService/ListSessions", {}, { sessions: [{ id: session, claim: "a" }] }],
      ["ClaimService/ExplainClaim", { name: "waits" }, { claim: { name: "waits", queuePosition: 1 } }],
      ["QueueService/GetUsage", {}, { usage: expect.any(Array) as unknown[] }],
    ];
    for (const [method, request, expected] of reads) {
      expect(await ask(follower.url, method, request), method).toMatchObject({ status: 200, body: expected });
    }
    // The follower does not know the newest objects yet, and asks the leader for them.
    await atLeader.claims.createClaim({ claim: { name: "new", lazy: true } });
    expect(await ask(follower.url, "ClaimService/GetClaim", { name: "new" })).toMatchObject({
      status: 200,
      body: { claim: { name: "new" } },
    });
    expect(await ask(follower.url, "ClaimService/GetClaim", { name: "nowhere" })).toMatchObject({
      status: 404,
    });
    // The other controller sees the identity of the caller.
    expect(await ask(follower.url, "PoolService/ListSessions", {}, secret)).toMatchObject({
      body: { sessions: [] },
    });
    expect(await ask(follower.url, "PoolService/GetNode", { name: "nowhere" })).toMatchObject({
      status: 404,
      body: { message: expect.stringMatching(/"nowhere".*\[MILLPOND_E_NOT_FOUND\]$/) as string },
    });
    expect(await ask(follower.url, "PoolService/ListNodes", {}, follower.userToken)).toMatchObject({
      status: 401,
      body: { message: expect.stringMatching(/those in files are each controller's own/) as string },
    });

    // The leader is gone and there is no new one: calls fail with that error until this controller becomes the leader.
    await leader[Symbol.asyncDispose]();
    const said = new Set<string>();
    await until(async () => {
      const { status, body } = await ask(follower.url, "PoolService/ListNodes");
      if (status !== 200) {
        said.add((body as { readonly message: string }).message);
      }
      return status === 200;
    });
    expect([...said].filter((message) => !message.endsWith("[MILLPOND_E_NOT_LEADER]"))).toEqual([]);
  });

  test("asks over TLS whom it trusts", async () => {
    const storeUrl = await (await postgresServer()).makeDatabase();
    const validity = { from: new Date(Date.now() - 60_000), to: new Date(Date.now() + 3_600_000) };
    const authority = makeAuthority("Test", validity);
    const { certificate, key } = makeServerCertificate(authority, ["127.0.0.1"], validity);
    const directory = makeTestDirectory();
    const [tlsCertificate, tlsKey] = [join(directory, "tls.crt"), join(directory, "tls.key")];
    writeFileSync(tlsCertificate, certificate);
    writeFileSync(tlsKey, key);
    const leader = await start(storeUrl, { tlsCertificate, tlsKey });
    const trusting = await start(storeUrl, { ca: authority.certificate });
    expect(await ask(trusting.url, "PoolService/ListNodes")).toMatchObject({
      status: 200,
      body: { nodes: [] },
    });
    const doubting = await start(storeUrl);
    const refused = await ask(doubting.url, "PoolService/ListNodes");
    expect(refused.headers.get(leaderHeader)).toBe(leader.url);
    expect(refused).toMatchObject({
      status: 503,
      body: { message: expect.stringMatching(/give its authority to this controller: --ca\./) as string },
    });
  });

  test("takes over at once from one that ends, with all that was granted and is used", async () => {
    const { leader, follower, atLeader, atFollower } = await startTwo();
    const agent = await startAgent([leader, follower]);
    const { claim } = await atLeader.claims.createClaim({ claim: { name: "a", gpus: 1 } });
    expect(claim?.state).toBe(ClaimState.BOUND);
    const used = await atLeader.claims.createTicket({ claim: "a" });
    const kept = await atLeader.claims.createTicket({ claim: "a" });
    const session = await agent.openSession(used.ticket);
    const { term = 0n } = agent.desired ?? {};
    await leader[Symbol.asyncDispose]();
    await until(async () => (await atFollower.pool.getVersion({})).leads);
    await agent.until((desired) => desired.term > term);
    expect(agent.sessions.has(session)).toBe(true);
    expect((await atFollower.claims.getClaim({ name: "a" })).claim?.allocation).toMatchObject({
      epoch: claim?.allocation?.epoch,
    });
    // A ticket of the previous leader is valid for its granted lifetime, and no longer.
    const late = await agent.openSession(kept.ticket);
    await atFollower.claims.releaseClaim({ name: "a" });
    await agent.until(({ allocations }) => allocations.length === 0);
    expect(agent.sessions.has(late)).toBe(false);
    const { claim: next } = await atFollower.claims.createClaim({ claim: { name: "b" } });
    await until(async () => {
      const found = await atFollower.claims.getClaim({ name: "b" });
      return found.claim?.state === ClaimState.BOUND;
    });
    expect(next?.name).toBe("b");
    expect((await atFollower.pool.listEvents({})).events.map(({ kind }) => kind)).toContain("NodeReady");
  });

  test("advertises another address than where it listens", async () => {
    const storeUrl = await (await postgresServer()).makeDatabase();
    await start(storeUrl, { advertise: "https://controller-1:7170/" });
    const { pool } = clientsOf((await start(storeUrl)).url);
    expect(await pool.getVersion({})).toMatchObject({ leaderUrl: "https://controller-1:7170" });
  });

  test("and the one that leads go on when the database is back", async () => {
    const lines: string[] = [];
    const log = pino({ level: "warn" }, { write: (line: string) => lines.push(line) });
    const { leader, follower, atFollower } = await startTwo({ log });
    const both = clientsOf(`${leader.url},${follower.url}`);
    await both.claims.createClaim({ claim: { name: "before" } });
    await until(async () => (await atFollower.claims.listClaims({})).claims.length === 1);
    const server = await postgresServer();
    await server.end("killed");
    const lost = await both.claims.createClaim({ claim: { name: "lost" } }).catch((error: unknown) => error);
    expect(String(lost)).toMatch(/\[MILLPOND_E_(STORE_UNREACHABLE|NOT_LEADER)\]$/);
    // Meanwhile, reads from memory are served.
    expect((await atFollower.claims.listClaims({})).claims.map(({ name }) => name)).toEqual(["before"]);
    const health = await fetch(`${follower.url}/healthz`);
    expect(health.status).toBe(503);
    // An expired leader is not reported as the leader.
    await until(async () => {
      const refusal: unknown = await atFollower.claims.createClaim({ claim: {} }).catch(String);
      return /there is no leader now\. This controller reports: the database at .* does not answer: [^[]*\[MILLPOND_E_NOT_LEADER\]$/.test(
        String(refusal),
      );
    });
    // The logs name the cause, once for each controller, and no other controller: none has begun to lead.
    expect(lines.filter((line) => line.includes("has begun to lead"))).toEqual([]);
    expect(lines.filter((line) => line.includes("the store cannot be asked for the leader"))).not.toEqual([]);
    expect(lines.length).toBeLessThan(10);
    await server.run();
    const waiting = createClient(
      ClaimService,
      makeTransport(`${leader.url},${follower.url}`, userToken, { patienceMs: 60_000 }),
    );
    await waiting.createClaim({ claim: { name: "after" } });
    const { claims } = await waiting.listClaims({});
    expect(claims.map(({ name }) => name)).toEqual(["before", "after"]);
  });
});
