// SPDX-License-Identifier: Apache-2.0

// Behaviour common to all stores.

import { AuditChain, auditHash } from "@millpond/api";
import { reason } from "@millpond/api";
import { randomUUID } from "node:crypto";
import { describe, expect, test } from "vitest";
import { type Backend, backends, type Limits, type Place } from "../testing/backends.ts";
import {
  allocation,
  auditEntry,
  changes,
  claim,
  event,
  login,
  node,
  queue,
  removedNode,
  tenant,
  token,
  usage,
} from "../testing/records.ts";
import { usagePages } from "../operations/usage.ts";
import { usagePageSize } from "./usage-pages.ts";
import type { Store, StoreChanges } from "../state/store.ts";

/** A store on which this test leads. */
async function openAt(place: Place, limits: Limits = {}) {
  const store = await place.open(limits);
  const candidate = { id: randomUUID(), url: "http://127.0.0.1:7170" };
  const { term, isOurs } = await store.campaign(candidate);
  expect(isOurs).toBe(true);
  const commit = (change: StoreChanges) => store.commit(change, term);
  return { store, candidate, term, commit };
}

for (const backend of backends) {
  const why = backend.missing === undefined ? "" : ` (${backend.missing})`;
  describe.skipIf(backend.missing !== undefined)(`${backend.name}${why}`, () => {
    conform(backend);
  });
}

function conform(backend: Backend): void {
  const openNew = async (limits: Limits = {}) => openAt(await backend.makePlace(), limits);

  test("a change whose audit record cannot be written does not happen", async () => {
    const { store, commit } = await openNew();
    const broken = { ...auditEntry, who: null as unknown as string };
    await expect(commit(changes(1, { tenants: [tenant], audit: [broken] }))).rejects.toThrow(
      /\[MILLPOND_E_STATE_BROKEN\]$/,
    );
    expect(await store.load()).toMatchObject({ revision: 0, tenants: [] });
  });

  test("the audit is listed from either end, by tenant, and its oldest records are forgotten", async () => {
    const { store, commit } = await openNew({ maxAuditRecords: 4 });
    for (let revision = 1; revision <= 6; revision++) {
      const tenantName = revision % 2 === 0 ? "" : "team-a";
      await commit(changes(revision, { audit: [{ ...auditEntry, tenant: tenantName }] }));
    }
    const ids = async (query: Partial<Parameters<Store["listAudit"]>[0]>) =>
      (await store.listAudit({ after: 0, tenant: "", limit: 100, ...query })).map(({ id }) => id);
    expect(await ids({})).toEqual([3, 4, 5, 6]);
    expect(await ids({ limit: 2 })).toEqual([5, 6]);
    expect(await ids({ after: 3, limit: 2 })).toEqual([4, 5]);
    expect(await ids({ tenant: "team-a" })).toEqual([3, 5]);
  });

  test("every audit record carries the hash of the one before, however they were written and forgotten", async () => {
    const { store, commit } = await openNew({ maxAuditRecords: 4 });
    await commit(changes(1, { audit: [auditEntry, { ...auditEntry, why: "für «B», \u{1f600}" }] }));
    await commit(changes(2, { audit: [{ ...auditEntry, tenant: "" }] }));
    await commit(
      changes(3, { audit: [auditEntry, auditEntry, { ...auditEntry, result: "MILLPOND_E_INVALID" }] }),
    );
    const records = await store.listAudit({ after: 0, tenant: "", limit: 100 });
    expect(records.map(({ id }) => id)).toEqual([3, 4, 5, 6]);
    const check = (list: typeof records) => {
      const chain = new AuditChain();
      return list.map((record) => chain.add(record));
    };
    const nothing = undefined;
    expect(check(records)).toEqual([nothing, nothing, nothing, nothing]);
    const [first, second, third, last] = records;
    if (first === undefined || second === undefined || third === undefined || last === undefined) {
      throw new Error("records are missing");
    }
    expect(check([first, { ...second, who: "another" }, third, last])).toEqual([
      nothing,
      "record 4 was changed after it was written",
      nothing,
      nothing,
    ]);
    const broken = (before: number, after: number) =>
      `records between ${before} and ${after} were removed, added or reordered`;
    expect(check([first, third, last])).toEqual([nothing, broken(3, 5), nothing]);
    expect(check([first, third, second, last])).toEqual([nothing, broken(3, 5), broken(5, 4), broken(4, 6)]);
    expect(check([first, { ...second, hash: "", previousHash: "" }, third, last])).toEqual([
      nothing,
      "record 4 was changed after it was written",
      broken(4, 5),
      nothing,
    ]);
  });

  test("what was committed is there after opening again", async () => {
    const place = await backend.makePlace();
    const { store, candidate, commit } = await openAt(place);
    const fresh = await store.load();
    expect(fresh).toMatchObject({
      revision: 0,
      epoch: 0,
      lastEvent: 0,
      claims: [],
      allocations: [],
      nodes: [],
    });
    await commit(
      changes(7, {
        nodes: [node],
        claims: [claim("a")],
        allocations: [allocation("a")],
        events: [{ id: 3, ...event }],
        removedNodes: [removedNode],
        queues: [queue],
        tenants: [tenant],
        tokens: [token],
        logins: [login],
        audit: [auditEntry],
        usage: [usage],
      }),
    );
    await store.resign(candidate);
    await store.close();

    const { store: again } = await openAt(place);
    expect(await again.load()).toEqual({
      identity: fresh.identity,
      revision: 7,
      epoch: 7,
      lastEvent: 3,
      nodes: [node],
      removedNodes: [removedNode],
      claims: [claim("a")],
      allocations: [allocation("a")],
      queues: [queue],
      tenants: [tenant],
      tokens: [token],
      signingKeys: fresh.signingKeys,
      logins: [login],
    });
    expect(await again.listAudit({ after: 0, tenant: "", limit: 10 })).toEqual([
      { id: 1, ...auditEntry, previousHash: "", hash: auditHash("", auditEntry) },
    ]);
    expect(await again.listUsage({ from: 0, to: 150 })).toEqual({ records: [usage] });
  });

  test("a login is ended and forgotten, and a device is replaced whole", async () => {
    const { store, commit } = await openNew();
    await commit(changes(1, { logins: [login], nodes: [node] }));
    const devices = node.devices.map((device) => ({ ...device, overheadBytes: 77n }));
    const changed = { ...node, revision: 2, devices };
    await commit(changes(2, { logins: [{ ...login, isRevoked: true }], nodes: [changed] }));
    const state = await store.load();
    expect(state.logins).toEqual([{ ...login, isRevoked: true }]);
    expect(state.nodes).toEqual([changed]);
    await commit(changes(3, { removedLogins: [login.id] }));
    expect((await store.load()).logins).toEqual([]);
  });

  test("queues, tenants and usage are replaced, removed and found by their period", async () => {
    const { store, commit } = await openNew();
    await commit(changes(1, { queues: [queue], tenants: [tenant], usage: [usage] }));
    await commit(changes(2, { queues: [{ ...queue, weight: 9, limit: {} }], removedTenants: ["team-a"] }));
    expect(await store.load()).toMatchObject({ queues: [{ ...queue, weight: 9, limit: {} }], tenants: [] });
    expect(await store.listUsage({ from: 0, to: 100 })).toEqual({ records: [] });
    expect(await store.listUsage({ from: 199, to: 300 })).toEqual({ records: [usage] });
    expect(await store.listUsage({ from: 200, to: 300 })).toEqual({ records: [] });
  });

  test("usage is read a page at a time, however many records end in the same second", async () => {
    const { store, commit } = await openNew();
    const all = Array.from({ length: 2 * usagePageSize + 500 }, (_, i) => ({
      ...usage,
      claim: `claim-${i}`,
      beganAt: i % 7,
      endedAt: 100 + Math.floor(i / 1800),
    }));
    await commit(changes(1, { usage: all }));
    for (const [from, to] of [
      [0, 1000],
      [100, 1000],
      [0, 3],
    ] as const) {
      const found: string[] = [];
      for await (const page of usagePages(store, { from, to })) {
        expect(page.length).toBeLessThanOrEqual(usagePageSize);
        found.push(...page.map(({ claim: name }) => name));
      }
      const wanted = all.filter(({ beganAt, endedAt }) => endedAt > from && beganAt < to);
      expect(found).toEqual(wanted.map(({ claim: name }) => name));
    }
  });

  test("a node is removed with its devices, joins again, and stays known as removed", async () => {
    const { store, commit } = await openNew();
    const grant = { nodes: [node], claims: [claim("a")], allocations: [allocation("a")] };
    await commit(changes(1, grant));
    const removed = { name: node.name, removedAt: 1_790_000_002, revision: 2 };
    const ended = claim("a", {
      state: "failed",
      reason: reason("node-removed", { node: "node-1" }),
      endedAt: 1_790_000_002,
    });
    await expect(commit(changes(2, { removedNodes: [removed] }))).rejects.toThrow(/MILLPOND_E_STATE_BROKEN/);
    await commit(changes(2, { removedNodes: [removed], removedAllocations: [1], claims: [ended] }));
    expect(await store.load()).toMatchObject({ nodes: [], removedNodes: [removed], allocations: [] });
    await commit(changes(3, { nodes: [node] }));
    expect(await store.load()).toMatchObject({ nodes: [node], removedNodes: [removed] });
    const again = { ...removed, revision: 4 };
    await commit(changes(4, { removedNodes: [again] }));
    expect(await store.load()).toMatchObject({ nodes: [], removedNodes: [again] });
  });

  test("what was used is written anew with each change of an allocation", async () => {
    const { store, commit } = await openNew();
    await commit(changes(1, { nodes: [node], claims: [claim("a")], allocations: [allocation("a")] }));
    await commit(changes(2, { allocations: [allocation("a", { activeSeconds: 90 })] }));
    expect(await store.load()).toMatchObject({ allocations: [{ activeSeconds: 90 }] });
  });

  test("changes replace, release and remove", async () => {
    const { store, commit } = await openNew();
    await commit(changes(1, { nodes: [node], claims: [claim("a")], allocations: [allocation("a")] }));
    const ended = claim("a", {
      state: "released",
      reason: reason("session-ended"),
      version: 2,
      endedAt: 1_790_000_002,
    });
    await commit(
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
    await commit(
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

  test("one claim grows into what another gives back by the same change, whichever is written first", async () => {
    for (const growing of [1, 2]) {
      const { store, commit } = await openNew();
      const half = (epoch: number, gigabytes: bigint) =>
        allocation(epoch === 1 ? "a" : "b", {
          epoch,
          sizeRevision: 2,
          devices: [{ uuid: "GPU-0", memoryBytes: gigabytes << 30n, computePercent: Number(gigabytes) }],
        });
      const device = {
        ...node,
        devices: node.devices.map((each) => ({ ...each, memoryBytes: 100n << 30n })),
      };
      const shrinking = 3 - growing;
      await commit(
        changes(1, {
          epoch: 2,
          nodes: [device],
          claims: [claim("a"), claim("b", { arrival: 2 })],
          allocations: [half(growing, 20n), half(shrinking, 80n)],
        }),
      );
      await commit(
        changes(2, { allocations: [half(1, growing === 1 ? 70n : 30n), half(2, growing === 2 ? 70n : 30n)] }),
      );
      const after = (await store.load()).allocations.map(
        ({ devices }) => (devices[0]?.memoryBytes ?? 0n) >> 30n,
      );
      expect(after).toEqual(growing === 1 ? [70n, 30n] : [30n, 70n]);
      await expect(commit(changes(3, { allocations: [half(growing, 71n)] }))).rejects.toThrow(
        /MILLPOND_E_STATE_BROKEN/,
      );
    }
  });

  test("a resize that is under way is there after opening again, and gone when it is over", async () => {
    const { store, commit } = await openNew();
    const { devices } = allocation("a");
    const resizing = {
      from: devices,
      to: devices.map((each) => ({ ...each, memoryBytes: 1n << 30n })),
      asked: { memoryBytes: 1n << 30n, memoryPercent: 0, computePercent: 50 },
      until: 1_790_000_100,
    };
    const during = allocation("a", { resizing, sizeRevision: 1 });
    await commit(changes(1, { nodes: [node], claims: [claim("a")], allocations: [during] }));
    expect((await store.load()).allocations).toEqual([during]);
    const after = { ...during, resizing: null, devices: resizing.to, grantedAt: 1_790_000_050 };
    await commit(changes(2, { allocations: [after] }));
    expect((await store.load()).allocations).toEqual([after]);
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
      const { store, commit } = await openNew();
      await commit(changes(1, { nodes: [node], claims: [claim("a")], allocations: [allocation("a")] }));
      const before = await store.load();
      await expect(commit(bad)).rejects.toThrow(/MILLPOND_E_(STATE_BROKEN|INTERNAL)/);
      expect(await store.load()).toEqual(before);
      await commit(changes(2, { claims: [claim("d", { arrival: 2 })] }));
      expect((await store.load()).claims).toHaveLength(2);
    });
  });

  test("events are listed from either end, by subject, and the oldest are forgotten", async () => {
    const { store, commit } = await openNew({ maxEvents: 4 });
    for (let id = 1; id <= 6; id++) {
      await commit(changes(id, { events: [{ id, ...event, subject: id % 2 === 0 ? "node/x" : "claim/a" }] }));
    }
    const ids = async (query: Partial<Parameters<Store["listEvents"]>[0]>) =>
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

  test("a term begins with every controller that leads, and those before it write no more", async () => {
    const place = await backend.makePlace();
    const before = await openAt(place);
    await before.commit(changes(1, { claims: [claim("a")] }));
    const lead = await before.store.campaign(before.candidate);
    expect(lead).toEqual({ term: before.term, url: before.candidate.url, isOurs: true });
    await before.store.resign(before.candidate);
    await before.store.close();

    const { store, term, commit } = await openAt(place);
    expect(term).toBeGreaterThan(before.term);
    await expect(store.commit(changes(2, { forgottenClaims: ["a"] }), before.term)).rejects.toThrow(
      /\[MILLPOND_E_NOT_LEADER\]$/,
    );
    expect(await store.load()).toMatchObject({ revision: 1, claims: [{ name: "a" }] });
    await commit(changes(2));
  });

  test("nothing was committed after the newest revision", async () => {
    const { store, commit } = await openNew();
    expect(await store.changesAfter(0)).toEqual([]);
    await commit(changes(1));
    expect(await store.changesAfter(1)).toEqual([]);
  });
}
