// SPDX-License-Identifier: Apache-2.0

// Authorization of every method, over real sockets.

import type { DescMethod } from "@bufbuild/protobuf";
import { expect, test } from "vitest";
import { methodName, ruleOf, services } from "./access.ts";
import { as, type Clients, refusal, startTenants } from "../testing/tenants.ts";
import { GiB, TestPool } from "../testing/test-pool.ts";

test("every method of every service has a rule", () => {
  const methods = services.flatMap((service) => service.methods);
  expect(methods.length).toBeGreaterThan(25);
  for (const method of methods) {
    expect(ruleOf(method).role).toMatch(/^(any|claim|program|user|tenant-admin|agent|admin)$/);
  }
});

/** The authorization table, written a second time: a method missing here fails the test. */
const users = ["user", "tenant-admin", "admin"];
const chiefs = ["tenant-admin", "admin"];
const programs = ["claim", "program", ...users];
const creators = ["program", ...users];
const mayCallIt: Readonly<Record<string, readonly string[]>> = {
  "ClaimService/CreateClaim": creators,
  "ClaimService/WaitClaim": programs,
  "ClaimService/CreateTicket": programs,
  "ClaimService/ViewClaim": programs,
  "ClaimService/CreateClaimToken": programs,
  "ClaimService/CreateProgramToken": users,
  "ClaimService/ReleaseClaim": creators,
  "ClaimService/PrioritizeClaim": users,
  "ClaimService/ResizeClaim": users,
  "ClaimService/GetClaim": programs,
  "ClaimService/ExplainClaim": programs,
  "ClaimService/ListClaims": programs,
  "PoolService/ListNodes": users,
  "PoolService/GetNode": users,
  "PoolService/CordonNode": ["admin"],
  "PoolService/DrainNode": ["admin"],
  "PoolService/RemoveNode": ["admin"],
  "PoolService/LabelNode": ["admin"],
  "PoolService/ListDevices": users,
  "PoolService/ListSessions": programs,
  "PoolService/ListEvents": programs,
  "PoolService/GetVersion": [...programs, "agent"],
  "QueueService/PutQueue": ["admin"],
  "QueueService/ListQueues": users,
  "QueueService/DeleteQueue": ["admin"],
  "QueueService/PutTenant": ["admin"],
  "QueueService/ListTenants": users,
  "QueueService/DeleteTenant": ["admin"],
  "QueueService/GetUsage": users,
  "AccessService/CreateToken": chiefs,
  "AccessService/ListTokens": chiefs,
  "AccessService/RevokeToken": chiefs,
  "AccessService/ListAudit": chiefs,
  "AccessService/ListKeys": ["admin"],
  "AccessService/RotateKey": ["admin"],
  "AccessService/CreateLoginCode": users,
  "AccessService/CreateLogin": users,
  "AccessService/ListLogins": users,
  "AccessService/RevokeLogin": users,
  "AccessService/GetCaller": [...programs, "agent"],
  "PoolService/BackUp": ["admin"],
  "AgentService/Sync": ["agent"],
};

async function post(
  pool: TestPool,
  { parent, name }: Pick<DescMethod, "parent" | "name">,
  token: string,
  body: string,
): Promise<{ readonly status: number; readonly text: string }> {
  const response = await fetch(`${pool.controller.url}/${parent.typeName}/${name}`, {
    method: "POST",
    headers: { "content-type": "application/json", authorization: `Bearer ${token}` },
    body,
  });
  return { status: response.status, text: await response.text() };
}

test("a role may call its methods and no others, and the refusal says which role is missing, whatever is asked", async () => {
  const pool = await TestPool.start({ "node-a": [GiB] });
  const admin = as(pool, pool.controller.userToken);
  await admin.queues.putTenant({ tenant: { name: "team-a" } });
  const secrets = new Map<string, string>();
  for (const role of ["user", "tenant-admin", "agent", "admin"]) {
    const tenant = role === "user" || role === "tenant-admin" ? "team-a" : "";
    const { secret } = await admin.access.createToken({ name: `a-${role}`, role, tenant });
    secrets.set(role, secret);
  }
  await admin.claims.createClaim({ claim: { name: "own", tenant: "team-a", memoryBytes: 1n << 20n } });
  secrets.set("claim", (await admin.claims.createClaimToken({ name: "own" })).secret);
  secrets.set("program", (await admin.claims.createProgramToken({ tenant: "team-a" })).secret);
  const methods = services.flatMap((service) => service.methods);
  expect(methods.map(methodName).toSorted()).toEqual(Object.keys(mayCallIt).toSorted());
  for (const method of methods) {
    const may = mayCallIt[methodName(method)] ?? [];
    for (const [role, secret] of secrets) {
      // The body of an unauthorized call is not parsed: it need not even be JSON.
      const { status, text } = await post(pool, method, secret, "{");
      const what = `${methodName(method)} by ${role}: ${text}`;
      if (may.includes(role)) {
        expect(status, what).toBe(400);
      } else {
        expect(status, what).toBe(403);
        expect(text, what).toMatch(
          /needs a token of the role (?:claim|program|user|tenant-admin|admin|agent), this token has/,
        );
        expect(text, what).toContain(`this token has the role ${role}. `);
      }
    }
    expect((await post(pool, method, "no-such-token-0000000", "{")).status).toBe(401);
  }
});

test.each([
  { name: "pod-11111111-2222-3333-4444-555555555555" },
  { name: "pod-11111111-2222-3333-4444-555555555555-1" },
  { name: "rc-11111111-2222-3333-4444-555555555555-0123abcd" },
  { gang: "pods-0123456789abcdef0123", gangSize: 2 },
  { gang: "pod-11111111-2222-3333-4444-555555555555", gangSize: 2 },
  { labels: { "kubernetes/cluster": "c1" } },
])("only administrators make claims in the name of pods: %j", async (reserved) => {
  const { ann, chief, admin } = await startTenants();
  const claim = { memoryBytes: GiB, ...reserved };
  for (const { claims } of [ann, chief])
    expect(await refusal(claims.createClaim({ claim }))).toMatchObject({ code: "MILLPOND_E_FORBIDDEN" });
  expect((await admin.claims.listClaims({})).claims).toEqual([]);
  await admin.claims.createClaim({ claim: { ...claim, tenant: "team-a" } });
  for (const name of ["pod-1", "podium", "rc-next"]) await ann.claims.createClaim({ claim: { name } });
});

test("a claim of another tenant is as if it were not there", async () => {
  const { pool, ann, bob, admin } = await startTenants();
  const { claim } = await ann.claims.createClaim({ claim: { name: "secret", memoryBytes: GiB } });
  expect(claim).toMatchObject({ tenant: "team-a" });
  const calls = (name: string) => [
    bob.claims.getClaim({ name }),
    bob.claims.explainClaim({ name }),
    bob.claims.waitClaim({ name }),
    bob.claims.waitClaim({ name, wake: true }),
    bob.claims.createTicket({ claim: name }),
    bob.claims.createClaimToken({ name }),
    bob.claims.resizeClaim({ name, memoryBytes: GiB }),
    bob.claims.resizeClaim({ name, gpus: 2, wait: true }),
    bob.claims.releaseClaim({ name }),
    bob.claims.releaseClaim({ name, requeue: true }),
  ];
  const [there, notThere] = await Promise.all(
    ["secret", "nobody"].map(async (name) => {
      const refusals = await Promise.all(calls(name).map(refusal));
      return refusals.map(({ code, message }) => ({ code, message: message.replace(name, "NAME") }));
    }),
  );
  expect(there).toEqual(notThere);
  expect(there?.every(({ code }) => code === "MILLPOND_E_NOT_FOUND")).toBe(true);
  expect((await bob.claims.listClaims({})).claims).toEqual([]);
  expect((await bob.pool.listEvents({})).events).toEqual([]);
  expect((await ann.pool.listEvents({})).events.map(({ subject }) => subject)).toContain("claim/secret");
  const { ticket } = await ann.claims.createTicket({ claim: "secret" });
  await pool.agent("node-a").openSession(ticket);
  expect((await ann.pool.listSessions({})).sessions).toHaveLength(1);
  expect((await bob.pool.listSessions({})).sessions).toEqual([]);
  expect((await bob.queues.listTenants({})).tenants.map(({ name }) => name)).toEqual(["team-b"]);
  expect((await bob.queues.getUsage({})).usage).toEqual([]);
  expect((await admin.claims.getClaim({ name: "secret" })).claim?.name).toBe("secret");
});

async function openSessions(pool: TestPool, clients: Clients, claims: readonly string[]): Promise<void> {
  for (const claim of claims) {
    const { ticket } = await clients.claims.createTicket({ claim });
    await pool.agent("node-a").openSession(ticket);
  }
}

/** Asserts that every list contains only this claim, and that nothing about its queue or tenant is disclosed. */
async function expectSeesOnly(program: Clients, own: string, others: readonly string[]): Promise<void> {
  expect((await program.claims.listClaims({ includeEnded: true })).claims.map(({ name }) => name)).toEqual([
    own,
  ]);
  const { sessions } = await program.pool.listSessions({});
  expect([...new Set(sessions.map(({ claim }) => claim))]).toEqual([own]);
  const { events } = await program.pool.listEvents({});
  expect([...new Set(events.map(({ subject }) => subject))]).toEqual([`claim/${own}`]);
  expect(await program.claims.explainClaim({ name: own })).toMatchObject({ claim: { name: own }, facts: [] });
  for (const name of others) {
    expect((await refusal(program.claims.explainClaim({ name }))).code).toBe("MILLPOND_E_NOT_FOUND");
    expect((await program.pool.listSessions({ claim: name })).sessions).toEqual([]);
    expect((await program.pool.listEvents({ subject: `claim/${name}` })).events).toEqual([]);
  }
  expect((await program.pool.listEvents({ subject: "node/node-a" })).events).toEqual([]);
}

test("the token of a claim sees that claim and nothing else, not even a later one of the same name", async () => {
  const { pool, ann, bob } = await startTenants();
  await ann.claims.createClaim({ claim: { name: "own", memoryBytes: GiB } });
  await ann.claims.createClaim({ claim: { name: "other", memoryBytes: GiB } });
  const { secret } = await ann.claims.createClaimToken({ name: "own" });
  expect((await ann.claims.createClaimToken({ name: "own" })).secret).toBe(secret);
  const program = as(pool, secret);
  expect((await program.claims.getClaim({ name: "own" })).claim?.name).toBe("own");
  expect((await program.claims.waitClaim({ name: "own" })).claim?.name).toBe("own");
  expect((await program.claims.createTicket({ claim: "own" })).ticket).toMatch(/^mpt1\./);
  for (const name of ["other", "nobody"]) {
    for (const call of [
      program.claims.getClaim({ name }),
      program.claims.waitClaim({ name }),
      program.claims.createTicket({ claim: name }),
    ]) {
      expect((await refusal(call)).code).toBe("MILLPOND_E_NOT_FOUND");
    }
  }
  await openSessions(pool, ann, ["own", "other"]);
  await expectSeesOnly(program, "own", ["other", "nobody"]);
  // The contents of a token are authenticated.
  for (const forged of [secret.replace("own", "other"), secret.replace("team-a", "team-b"), `${secret}A`]) {
    expect((await refusal(as(pool, forged).claims.getClaim({ name: "other" }))).code).toBe(
      "MILLPOND_E_UNAUTHENTICATED",
    );
  }
  const metrics = await fetch(`${pool.controller.url}/metrics`, {
    headers: { authorization: `Bearer ${secret}` },
  });
  expect(metrics.status).toBe(403);
  await ann.claims.releaseClaim({ name: "own" });
  expect((await refusal(program.claims.createTicket({ claim: "own" }))).code).toBe("MILLPOND_E_CLAIM_ENDED");
  expect((await refusal(ann.claims.createClaimToken({ name: "own" }))).code).toBe("MILLPOND_E_CLAIM_ENDED");
  pool.clock.advance(3600_000);
  await pool.agent("node-a").settle();
  await bob.claims.createClaim({ claim: { name: "own", memoryBytes: GiB } });
  expect((await refusal(program.claims.getClaim({ name: "own" }))).code).toBe("MILLPOND_E_NOT_FOUND");
  expect((await refusal(program.claims.createTicket({ claim: "own" }))).code).toBe("MILLPOND_E_NOT_FOUND");
});

test("the token of a program creates claims for it, and sees no others, not even of the same tenant", async () => {
  const { pool, ann, bob } = await startTenants();
  await ann.claims.createClaim({ claim: { name: "other", memoryBytes: GiB, sessionBound: true } });
  const { secret } = await ann.claims.createProgramToken({});
  const second = (await ann.claims.createProgramToken({})).secret;
  expect(second).not.toBe(secret);
  const program = as(pool, secret);
  const own = { name: "own", memoryBytes: GiB };
  expect((await refusal(program.claims.createClaim({ claim: own }))).code).toBe("MILLPOND_E_FORBIDDEN");
  expect(
    (await refusal(program.claims.createClaim({ claim: { ...own, tenant: "team-b", sessionBound: true } })))
      .code,
  ).toBe("MILLPOND_E_FORBIDDEN");
  const { claim } = await program.claims.createClaim({ claim: { ...own, sessionBound: true } });
  expect(claim?.tenant).toBe("team-a");
  expect((await program.claims.waitClaim({ name: "own" })).claim?.name).toBe("own");
  expect((await program.claims.createTicket({ claim: "own" })).ticket).toMatch(/^mpt1\./);
  await openSessions(pool, ann, ["own", "other"]);
  await expectSeesOnly(program, "own", ["other", "nobody"]);
  // A claim that a user created with a token is as visible to that user as any other claim of the tenant.
  expect((await ann.claims.getClaim({ name: "own" })).claim?.name).toBe("own");
  for (const [stranger, name] of [
    [program, "other"],
    [as(pool, second), "own"],
  ] as const) {
    const refusals = await Promise.all(
      [
        stranger.claims.getClaim({ name }),
        stranger.claims.waitClaim({ name }),
        stranger.claims.createTicket({ claim: name }),
        stranger.claims.viewClaim({ name }),
        stranger.claims.createClaimToken({ name }),
        stranger.claims.releaseClaim({ name }),
      ].map(refusal),
    );
    expect(refusals.map(({ code }) => code)).toEqual(Array.from({ length: 6 }, () => "MILLPOND_E_NOT_FOUND"));
  }
  const forged = [secret.replace("team-a", "team-b"), secret.replace(".ann.", ".bob."), `${secret}A`];
  for (const text of forged) {
    expect((await refusal(as(pool, text).claims.getClaim({ name: "own" }))).code).toBe(
      "MILLPOND_E_UNAUTHENTICATED",
    );
  }
  const headers = { authorization: `Bearer ${secret}` };
  expect((await fetch(`${pool.controller.url}/metrics`, { headers })).status).toBe(403);
  await program.claims.releaseClaim({ name: "own" });
  expect((await refusal(bob.claims.createProgramToken({ tenant: "team-a" }))).code).toBe(
    "MILLPOND_E_FORBIDDEN",
  );
});

test("the token of a program ends with the one that it was created with", async () => {
  const { pool, ann, admin } = await startTenants();
  const { secret } = await ann.claims.createProgramToken({});
  await as(pool, secret).claims.createClaim({ claim: { name: "own", memoryBytes: GiB, sessionBound: true } });
  const name =
    (await admin.access.listTokens({})).tokens.find(({ tenant }) => tenant === "team-a")?.name ?? "";
  await admin.access.revokeToken({ name });
  const isRefused = async () =>
    (await refusal(as(pool, secret).claims.getClaim({ name: "own" }))).code === "MILLPOND_E_UNAUTHENTICATED";
  expect(await isRefused()).toBe(true);
  // A new token with the name of an old one is a different token.
  await admin.access.createToken({ name, role: "user", tenant: "team-a" });
  expect(await isRefused()).toBe(true);
});

test("a name that another tenant uses, or used, tells nothing of what it was for", async () => {
  const { pool, ann, bob } = await startTenants();
  const gang = { gang: "crew", gangSize: 2, memoryBytes: GiB };
  await ann.claims.createClaim({ claim: { name: "secret-one", ...gang } });
  for (const gangSize of [2, 3]) {
    const { code, message } = await refusal(bob.claims.createClaim({ claim: { ...gang, gangSize } }));
    expect([code, message]).toEqual(["MILLPOND_E_ALREADY_EXISTS", expect.not.stringContaining("secret")]);
  }
  await ann.claims.createClaim({ claim: { name: "secret-two", owner: "ann@lab", memoryBytes: GiB } });
  const { ticket } = await ann.claims.createTicket({ claim: "secret-two" });
  const session = await pool.agent("node-a").openSession(ticket);
  const inUse = await refusal(bob.claims.createClaim({ claim: { name: "secret-two" } }));
  pool.agent("node-a").isObedient = false;
  await ann.claims.releaseClaim({ name: "secret-two" });
  // The claim's session continues.
  expect(await refusal(bob.claims.createClaim({ claim: { name: "secret-two" } }))).toEqual(inUse);
  pool.agent("node-a").endSession(session);
  await pool.agent("node-a").settle();
  await bob.claims.createClaim({ claim: { name: "secret-two" } });
  for (const query of [{}, { subject: "claim/secret-two" }, { limit: 3 }, { after: 1n, limit: 5 }]) {
    const { events } = await bob.pool.listEvents(query);
    expect(events.map(({ message }) => message).join()).not.toMatch(/ann|released/);
  }
  const { events } = await bob.pool.listEvents({ subject: "claim/secret-two" });
  expect(events.map(({ kind }) => kind)).toEqual(["ClaimCreated", "ClaimBound"]);
});

test("a user asks for his own tenant only, whether the other one exists or not", async () => {
  const { ann } = await startTenants();
  for (const tenant of ["team-b", "nobody"]) {
    const { code, message } = await refusal(ann.claims.createClaim({ claim: { tenant } }));
    expect(code).toBe("MILLPOND_E_FORBIDDEN");
    expect(message).toContain("the token is for the tenant team-a only");
    expect(message).not.toContain(tenant);
  }
});

test("what a user is told of why he waits does not name claims of others", async () => {
  const { ann, bob } = await startTenants();
  const whole = { memoryBytes: GiB, exclusive: false };
  await ann.claims.createClaim({ claim: { name: "big-secret", gpus: 2, ...whole, timeLimitSeconds: 60 } });
  await ann.claims.createClaim({ claim: { name: "next-secret", gpus: 2, ...whole } });
  await bob.claims.createClaim({ claim: { name: "mine", ...whole } });
  const explained = await bob.claims.explainClaim({ name: "mine" });
  const { claim } = await bob.claims.getClaim({ name: "mine" });
  expect(claim?.reason).not.toBe("");
  const text = JSON.stringify([explained, claim], (_key, value: unknown) =>
    typeof value === "bigint" ? String(value) : value,
  );
  expect(text).not.toContain("secret");
});

test("administrators of a tenant make, list and revoke tokens of that tenant only", async () => {
  const { pool, admin, chief } = await startTenants();
  const { token, secret } = await chief.access.createToken({ name: "ci", role: "user" });
  expect(token).toMatchObject({ tenant: "team-a", role: "user", createdBy: "chief", expiresAt: 0n });
  await as(pool, secret).claims.listClaims({});
  expect((await chief.access.listTokens({})).tokens.map(({ name }) => name)).toEqual(["ann", "chief", "ci"]);
  expect((await admin.access.listTokens({})).tokens).toHaveLength(4);
  const foreign = await refusal(chief.access.revokeToken({ name: "bob" }));
  const absent = await refusal(chief.access.revokeToken({ name: "bop" }));
  expect(foreign).toEqual({ code: absent.code, message: absent.message.replace("bop", "bob") });
  for (const request of [
    { name: "x", role: "admin" },
    { name: "x", role: "agent" },
    { name: "x", role: "user", tenant: "team-b" },
    { name: "x", role: "user", tenant: "nobody" },
  ]) {
    expect((await refusal(chief.access.createToken(request))).code).toBe("MILLPOND_E_FORBIDDEN");
  }
});

test("a revoked token lets nobody in, also after a restart; a tenant with tokens stays", async () => {
  const { pool, admin } = await startTenants();
  const { secret } = await admin.access.createToken({ name: "old", role: "admin" });
  const kept = (await admin.access.createToken({ name: "kept", role: "admin" })).secret;
  await as(pool, secret).claims.listClaims({});
  expect((await refusal(admin.queues.deleteTenant({ name: "team-b" }))).message).toContain("such as bob");
  await admin.access.revokeToken({ name: "old" });
  expect((await refusal(as(pool, secret).claims.listClaims({}))).code).toBe("MILLPOND_E_UNAUTHENTICATED");
  await pool.restart();
  expect((await refusal(as(pool, secret).claims.listClaims({}))).code).toBe("MILLPOND_E_UNAUTHENTICATED");
  await as(pool, kept).access.revokeToken({ name: "bob" });
  await as(pool, kept).queues.deleteTenant({ name: "team-b" });
});

test("a token expires", async () => {
  const { pool, admin } = await startTenants();
  const { secret, token } = await admin.access.createToken({
    name: "brief",
    role: "user",
    lifetimeSeconds: 60n,
  });
  expect(token?.expiresAt).toBe((token?.createdAt ?? 0n) + 60n);
  await as(pool, secret).claims.listClaims({});
  await pool.passTime(60);
  const { code, message } = await refusal(as(pool, secret).claims.listClaims({}));
  expect(code).toBe("MILLPOND_E_UNAUTHENTICATED");
  expect(message).toContain("the request's token has expired");
});

test("a token that expires makes none that is good for longer", async () => {
  const { pool, admin } = await startTenants();
  const { secret } = await admin.access.createToken({
    name: "brief-chief",
    role: "tenant-admin",
    tenant: "team-a",
    lifetimeSeconds: 60n,
  });
  const { access } = as(pool, secret);
  const made = { name: "heir", role: "user" };
  for (const lifetimeSeconds of [0n, 61n]) {
    const { code, message } = await refusal(access.createToken({ ...made, lifetimeSeconds }));
    expect(code).toBe("MILLPOND_E_FORBIDDEN");
    expect(message).toContain("a token cannot outlive the token that creates it, which expires in 1m");
  }
  expect((await access.createToken({ ...made, lifetimeSeconds: 60n })).token?.createdBy).toBe("brief-chief");
});

test.each([
  ["a bad name", { name: "A b", role: "user" }, "MILLPOND_E_INVALID"],
  ["an unknown role", { name: "x", role: "root" }, "MILLPOND_E_INVALID"],
  ["an agent of a tenant", { name: "x", role: "agent", tenant: "team-a" }, "MILLPOND_E_INVALID"],
  ["a time in the past", { name: "x", role: "user", lifetimeSeconds: -1n }, "MILLPOND_E_INVALID"],
  ["an unknown tenant", { name: "x", role: "user", tenant: "nobody" }, "MILLPOND_E_NOT_FOUND"],
  ["a name in use", { name: "ann", role: "user" }, "MILLPOND_E_ALREADY_EXISTS"],
])("a token with %s is refused and not made", async (_what, request, code) => {
  const { admin } = await startTenants();
  const before = (await admin.access.listTokens({})).tokens;
  expect((await refusal(admin.access.createToken(request))).code).toBe(code);
  expect((await admin.access.listTokens({})).tokens).toEqual(before);
});

test("metrics name no tenant but the caller's, and all of them to an administrator only", async () => {
  const { pool, admin } = await startTenants();
  const secretOf = async (name: string, role: string, tenant: string) =>
    (await admin.access.createToken({ name, role, tenant })).secret;
  const tenantsIn = async (token: string) => {
    const headers = { authorization: `Bearer ${token}` };
    const text = await (await fetch(`${pool.controller.url}/metrics`, { headers })).text();
    expect(text).toContain("millpond_nodes");
    const named = Array.from(text.matchAll(/tenant="([^"]*)"/g), ([, tenant = ""]) => tenant);
    return [...new Set(named)].toSorted();
  };
  expect(await tenantsIn(await secretOf("eve", "user", "team-b"))).toEqual(["team-b"]);
  expect(await tenantsIn(await secretOf("eves-chief", "tenant-admin", "team-b"))).toEqual(["team-b"]);
  expect(await tenantsIn(pool.controller.agentToken)).toEqual([]);
  expect(await tenantsIn(pool.controller.userToken)).toEqual(["team-a", "team-b"]);
});

test("text for people has nothing that turns lines around or hides", async () => {
  const { ann } = await startTenants();
  const owner = "ann\u202Eyrollam\u200B!\u2066";
  const { claim } = await ann.claims.createClaim({ claim: { name: "a", owner } });
  expect(claim?.owner).toBe("ann yrollam ! ");
});
