// SPDX-License-Identifier: Apache-2.0

import {
  chmodSync,
  copyFileSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import type { QueueSpec, TenantSpec } from "@millpond/scheduler";
import { describe, expect, onTestFinished, test } from "vitest";
import { makeTestDirectory } from "../testing/test-pool.ts";
import { migrate, schemaVersion } from "./migrations.ts";
import { databaseFileName, SqliteStore } from "./sqlite-store.ts";
import { defaultClaimSpec } from "./claim-spec.ts";
import type {
  AllocationRecord,
  AuditEntry,
  ClaimRecord,
  NodeRecord,
  StoreChanges,
  TokenRecord,
  UsageRecord,
} from "./store.ts";

function open(directory = makeTestDirectory(), maxEvents?: number): SqliteStore {
  const store = SqliteStore.open({ directory, ...(maxEvents === undefined ? {} : { maxEvents }) });
  onTestFinished(() => store.close().catch(() => undefined));
  return store;
}

const node: NodeRecord = {
  name: "node-a",
  agentUrl: "http://127.0.0.1:7171",
  agentVersion: "0.1.0",
  hostname: "host",
  bootId: "boot",
  isCordoned: true,
  cordonReason: "new fans",
  labels: { zone: "a" },
  agentLabels: { rack: "7" },
  revision: 1,
  joinedAt: 1_790_000_000,
  devices: [0, 1].map((index) => ({
    index,
    uuid: `GPU-${index}`,
    name: "NVIDIA H200",
    kind: "nvidia",
    memoryBytes: 1n << 37n,
    pciBusId: `0000:0${index}:00.0`,
    computeCapability: "9.0",
    multiprocessors: 132,
    numaNode: "1",
    pcieSwitch: "0000:17:00.0",
    nvlinkDomain: "",
    driverVersion: "580.159.04",
    cudaVersion: 13_000,
    isHealthy: index === 0,
    healthReason: index === 0 ? "" : "Xid 79",
    isCordoned: index === 1,
  })),
};

function claim(name: string, change: Partial<ClaimRecord> = {}): ClaimRecord {
  return {
    ...defaultClaimSpec,
    name,
    arrival: 1,
    memoryBytes: 1n << 50n,
    computePercent: 50,
    owner: "ann@host:1 'quoted'; DROP TABLE claims; --",
    isSessionBound: true,
    models: ["H200"],
    labels: { app: "web" },
    serviceClass: "burstable",
    state: "bound",
    reason: "",
    version: 1,
    createdAt: 1_790_000_000,
    boundAt: 1_790_000_001,
    endedAt: null,
    waitingSince: null,
    preemptAt: null,
    requeues: 0,
    ...change,
  };
}

function allocation(name: string, change: Partial<AllocationRecord> = {}): AllocationRecord {
  return {
    claim: name,
    node: "node-a",
    epoch: 1,
    grantedAt: 1_790_000_001,
    releasedRevision: null,
    devices: [
      { uuid: "GPU-1", memoryBytes: 1n << 36n, computePercent: 50 },
      { uuid: "GPU-0", memoryBytes: 1n << 36n, computePercent: 50 },
    ],
    ...change,
  };
}

function changes(revision: number, change: Partial<StoreChanges> = {}): StoreChanges {
  return {
    revision,
    epoch: revision,
    nodes: [],
    claims: [],
    forgottenClaims: [],
    allocations: [],
    removedAllocations: [],
    queues: [],
    removedQueues: [],
    tenants: [],
    removedTenants: [],
    tokens: [],
    removedTokens: [],
    audit: [],
    usage: [],
    events: [],
    ...change,
  };
}

const event = { at: 1_790_000_000, kind: "ClaimBound", subject: "claim/a", message: "bound" };

const queue: QueueSpec = {
  name: "research",
  parent: "company",
  weight: 3,
  borrowing: "preemptible",
  guaranteed: { gpuMilli: 1500 },
  limit: { computePercent: 800, memoryBytes: 1n << 40n },
};

const tenant: TenantSpec = { name: "team-a", limit: { gpuMilli: 4000 } };

const usage: UsageRecord = {
  kind: "held",
  claim: "a",
  tenant: "team-a",
  queue: "research",
  gpuMilli: 500,
  beganAt: 100,
  endedAt: 200,
  activeSeconds: 60,
};

const token: TokenRecord = {
  name: "ci",
  hash: "0".repeat(64),
  role: "user",
  tenant: "team-a",
  createdAt: 1_790_000_000,
  expiresAt: null,
  createdBy: "file:user",
};

const auditEntry: AuditEntry = {
  at: 1_790_000_000,
  who: "ci",
  role: "user",
  tenant: "team-a",
  what: "ClaimService/ReleaseClaim",
  subject: "claim/a",
  why: "",
  result: "ok",
};

test("a change whose audit record cannot be written does not happen", async () => {
  const store = open();
  const broken = { ...auditEntry, who: null as unknown as string };
  await expect(store.commit(changes(1, { tenants: [tenant], audit: [broken] }))).rejects.toThrow(
    /\[MILLPOND_E_STATE_BROKEN\]$/,
  );
  expect(await store.load()).toMatchObject({ revision: 0, tenants: [] });
});

test("the audit is listed from either end, by tenant, and its oldest records are forgotten", async () => {
  const store = SqliteStore.open({ directory: makeTestDirectory(), maxAuditRecords: 4 });
  onTestFinished(() => store.close());
  for (let revision = 1; revision <= 6; revision++) {
    const tenantName = revision % 2 === 0 ? "" : "team-a";
    await store.commit(changes(revision, { audit: [{ ...auditEntry, tenant: tenantName }] }));
  }
  const ids = async (query: Partial<Parameters<SqliteStore["listAudit"]>[0]>) =>
    (await store.listAudit({ after: 0, tenant: "", limit: 100, ...query })).map(({ id }) => id);
  expect(await ids({})).toEqual([3, 4, 5, 6]);
  expect(await ids({ limit: 2 })).toEqual([5, 6]);
  expect(await ids({ after: 3, limit: 2 })).toEqual([4, 5]);
  expect(await ids({ tenant: "team-a" })).toEqual([3, 5]);
});

test("what was committed is there after opening again", async () => {
  const directory = makeTestDirectory();
  const store = open(directory);
  const fresh = await store.load();
  expect(fresh).toMatchObject({
    revision: 0,
    epoch: 0,
    lastEvent: 0,
    claims: [],
    allocations: [],
    nodes: [],
  });
  await store.commit(
    changes(7, {
      nodes: [node],
      claims: [claim("a")],
      allocations: [allocation("a")],
      events: [{ id: 3, ...event }],
      queues: [queue],
      tenants: [tenant],
      tokens: [token],
      audit: [auditEntry],
      usage: [usage],
    }),
  );
  await store.close();

  const again = open(directory);
  expect(await again.load()).toEqual({
    identity: fresh.identity,
    ticketKey: fresh.ticketKey,
    revision: 7,
    epoch: 7,
    lastEvent: 3,
    nodes: [node],
    claims: [claim("a")],
    allocations: [allocation("a")],
    queues: [queue],
    tenants: [tenant],
    tokens: [token],
  });
  expect(await again.listAudit({ after: 0, tenant: "", limit: 10 })).toEqual([{ id: 1, ...auditEntry }]);
  expect(await again.listUsage({ from: 0, to: 150 })).toEqual([usage]);
});

test("queues, tenants and usage are replaced, removed and found by their period", async () => {
  const store = open();
  await store.commit(changes(1, { queues: [queue], tenants: [tenant], usage: [usage] }));
  await store.commit(
    changes(2, { queues: [{ ...queue, weight: 9, limit: {} }], removedTenants: ["team-a"] }),
  );
  expect(await store.load()).toMatchObject({ queues: [{ ...queue, weight: 9, limit: {} }], tenants: [] });
  expect(await store.listUsage({ from: 0, to: 100 })).toEqual([]);
  expect(await store.listUsage({ from: 199, to: 300 })).toEqual([usage]);
  expect(await store.listUsage({ from: 200, to: 300 })).toEqual([]);
});

test("a database of the first version is brought up to date with all that is in it", async () => {
  const directory = makeTestDirectory();
  const database = new DatabaseSync(join(directory, databaseFileName), { enableForeignKeyConstraints: true });
  const first = new URL("./migrations/000001_initial.sql", import.meta.url);
  database.exec(readFileSync(first, "utf8"));
  database.exec(`PRAGMA user_version = 1;
    INSERT INTO pool VALUES (1, 'an-identity', 9, 4, x'00');
    INSERT INTO nodes VALUES ('node-a', 'http://127.0.0.1:1', '0.1.0', 'host', 'boot', 1, 5, 100);
    INSERT INTO devices VALUES ('node-a', 'GPU-0', 0, 'H200', 'nvidia', 1000000, '', '9.0', 132, '', 13000, 1, '');
    INSERT INTO claims VALUES ('old', 3, 1, 600000, 0, 40, 'ann', 30, 1, 'bound', '', 4, 100, 101, NULL);
    INSERT INTO claims VALUES ('waits', 4, 2, 0, 50, 0, '', 15, 0, 'pending', 'no room', 4, 102, NULL, NULL);
    INSERT INTO allocations VALUES ('old', 'node-a', 4, NULL);
    INSERT INTO virtual_gpus VALUES ('old', 0, 'node-a', 'GPU-0', 600000, 40);`);
  database.close();

  const store = open(directory);
  const state = await store.load();
  expect(state).toMatchObject({
    identity: "an-identity",
    revision: 9,
    nodes: [{ name: "node-a", isCordoned: true, labels: {}, devices: [{ isCordoned: false }] }],
    claims: [
      {
        ...defaultClaimSpec,
        name: "old",
        memoryBytes: 600_000n,
        computePercent: 40,
        owner: "ann",
        leaseSeconds: 30,
        isSessionBound: true,
        state: "bound",
        waitingSince: null,
      },
      { ...defaultClaimSpec, name: "waits", gpus: 2, memoryPercent: 50, state: "pending", waitingSince: 102 },
    ],
    allocations: [
      {
        claim: "old",
        epoch: 4,
        grantedAt: 101,
        devices: [{ uuid: "GPU-0", memoryBytes: 600_000n, computePercent: 40 }],
      },
    ],
  });
  const more = { epoch: 5, devices: [{ uuid: "GPU-0", memoryBytes: 500_000n, computePercent: 1 }] };
  const bound = claim("waits", { ...state.claims[1], state: "bound", waitingSince: null, version: 10 });
  const overfull = changes(10, { epoch: 5, claims: [bound], allocations: [allocation("waits", more)] });
  await expect(store.commit(overfull)).rejects.toThrow(/over-allocated/);
});

test("changes replace, release and remove", async () => {
  const store = open();
  await store.commit(changes(1, { nodes: [node], claims: [claim("a")], allocations: [allocation("a")] }));
  const ended = claim("a", {
    state: "released",
    reason: "released by its owner",
    version: 2,
    endedAt: 1_790_000_002,
  });
  await store.commit(
    changes(2, {
      nodes: [{ ...node, isCordoned: false, revision: 2 }],
      claims: [ended],
      allocations: [allocation("a", { releasedRevision: 2 })],
    }),
  );
  expect(await store.load()).toMatchObject({
    nodes: [{ isCordoned: false, revision: 2 }],
    claims: [ended],
    allocations: [{ claim: "a", releasedRevision: 2, devices: allocation("a").devices }],
  });
  await store.commit(
    changes(3, {
      nodes: [{ ...node, devices: node.devices.slice(1) }],
      removedAllocations: [1],
      forgottenClaims: ["a"],
    }),
  );
  expect(await store.load()).toMatchObject({
    nodes: [{ devices: [{ uuid: "GPU-1" }] }],
    claims: [],
    allocations: [],
  });
});

describe("a change that cannot be is refused whole", () => {
  test.each([
    ["a revision that does not grow", changes(1, { claims: [claim("b")] })],
    ["an epoch that goes back", changes(2, { epoch: 0, claims: [claim("b")] })],
    [
      "an allocation of nobody",
      changes(2, { claims: [claim("b", { arrival: 2 })], allocations: [allocation("c", { epoch: 2 })] }),
    ],
    [
      "an over-allocated device",
      changes(2, {
        claims: [claim("b", { arrival: 2 }), claim("c", { arrival: 3 })],
        allocations: [allocation("b", { epoch: 2 }), allocation("c", { epoch: 3 })],
      }),
    ],
    [
      "over-allocated compute",
      changes(2, {
        claims: [claim("b", { arrival: 2 })],
        allocations: [
          allocation("b", {
            epoch: 2,
            devices: [{ uuid: "GPU-0", memoryBytes: 1n << 20n, computePercent: 51 }],
          }),
        ],
      }),
    ],
    [
      "two vGPUs on one device",
      changes(2, {
        claims: [claim("b", { arrival: 2 })],
        allocations: [
          allocation("b", {
            epoch: 2,
            devices: [1, 2].map(() => ({ uuid: "GPU-0", memoryBytes: 1n << 20n, computePercent: 1 })),
          }),
        ],
      }),
    ],
    [
      "a device that is held and taken away",
      changes(2, { claims: [claim("b", { arrival: 2 })], nodes: [{ ...node, devices: [] }] }),
    ],
    ["a bound claim that has ended", changes(2, { claims: [claim("b", { arrival: 2, endedAt: 1 })] })],
  ])("%s", async (_what, bad) => {
    const store = open();
    await store.commit(changes(1, { nodes: [node], claims: [claim("a")], allocations: [allocation("a")] }));
    const before = await store.load();
    await expect(store.commit(bad)).rejects.toThrow(/MILLPOND_E_(STATE_BROKEN|INTERNAL)/);
    expect(await store.load()).toEqual(before);
    await store.commit(changes(2, { claims: [claim("d", { arrival: 2 })] }));
    expect((await store.load()).claims).toHaveLength(2);
  });
});

test("events are listed from either end, by subject, and the oldest are forgotten", async () => {
  const store = open(undefined, 4);
  for (let id = 1; id <= 6; id++) {
    await store.commit(
      changes(id, { events: [{ id, ...event, subject: id % 2 === 0 ? "node/x" : "claim/a" }] }),
    );
  }
  const ids = async (query: Partial<Parameters<SqliteStore["listEvents"]>[0]>) =>
    (await store.listEvents({ after: 0, subject: "", limit: 100, end: "newest", ...query })).map(
      ({ id }) => id,
    );
  expect(await ids({})).toEqual([3, 4, 5, 6]);
  expect(await ids({ limit: 2 })).toEqual([5, 6]);
  expect(await ids({ limit: 2, end: "oldest" })).toEqual([3, 4]);
  expect(await ids({ after: 4, end: "oldest" })).toEqual([5, 6]);
  expect(await ids({ subject: "node/x" })).toEqual([4, 6]);
  expect((await store.load()).lastEvent).toBe(6);
});

describe("opening", () => {
  test("makes files that only the owner can read", () => {
    const directory = makeTestDirectory();
    open(directory);
    for (const name of readdirSync(directory)) {
      expect([name, statSync(join(directory, name)).mode & 0o077]).toEqual([name, 0]);
    }
  });

  test("migrating again changes nothing", async () => {
    const directory = makeTestDirectory();
    const store = open(directory);
    const { identity } = await store.load();
    await store.close();
    const database = new DatabaseSync(join(directory, databaseFileName));
    const before = { version: schemaVersion(database), schema: readSchema(database) };
    migrate(database);
    expect({ version: schemaVersion(database), schema: readSchema(database) }).toEqual(before);
    expect(before.version).toBeGreaterThan(0);
    database.close();
    expect((await open(directory).load()).identity).toBe(identity);
  });

  test("a newer schema is refused and left alone", async () => {
    const directory = makeTestDirectory();
    await open(directory).close();
    const path = join(directory, databaseFileName);
    const database = new DatabaseSync(path);
    database.exec("PRAGMA user_version = 999");
    database.close();
    expect(() => open(directory)).toThrow(/the state has schema version 999, .*\[MILLPOND_E_STATE_NEWER\]$/);
    const after = new DatabaseSync(path);
    expect(schemaVersion(after)).toBe(999);
    after.close();
  });

  test("a second store on the same directory is refused, also in the same process", async () => {
    const directory = makeTestDirectory();
    const store = open(directory);
    expect(() => open(directory)).toThrow(/another process holds it\. .*\[MILLPOND_E_STATE_LOCKED\]$/);
    await store.commit(changes(1));
    await store.close();
    expect((await open(directory).load()).revision).toBe(1);
  });

  test("something else than a database is refused", () => {
    const directory = makeTestDirectory();
    writeFileSync(
      join(directory, databaseFileName),
      "not a database, but long enough to be looked at as one".repeat(20),
    );
    expect(() => open(directory)).toThrow(
      /cannot be opened: file is not a database\. .*\[MILLPOND_E_STATE_BROKEN\]$/,
    );
  });

  test("a directory that cannot be used is refused", () => {
    const directory = join(makeTestDirectory(), "missing");
    expect(() => open(directory)).toThrow(/\[MILLPOND_E_STATE_BROKEN\]$/);
  });

  test("a migration that was cut off half-way is begun again", async () => {
    const directory = makeTestDirectory();
    const path = join(directory, databaseFileName);
    const database = new DatabaseSync(path);
    database.exec("PRAGMA journal_mode = WAL");
    database.exec("BEGIN; CREATE TABLE pool (id INTEGER); PRAGMA user_version = 1");
    const copy = join(makeTestDirectory(), "copy");
    mkdirSync(copy);
    for (const name of readdirSync(directory)) {
      copyFileSync(join(directory, name), join(copy, name));
      chmodSync(join(copy, name), 0o600);
    }
    database.close();
    expect((await open(copy).load()).revision).toBe(0);
  });
});

function readSchema(database: DatabaseSync): unknown[] {
  return database.prepare("SELECT type, name, sql FROM sqlite_schema ORDER BY type, name").all();
}
