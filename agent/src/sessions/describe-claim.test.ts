// SPDX-License-Identifier: Apache-2.0

import { generateKeyPairSync, randomUUID } from "node:crypto";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { create } from "@bufbuild/protobuf";
import {
  DescribeClaimRequestSchema,
  formatTicketPublicKey,
  SyncResponseSchema,
  signTicket,
  signViewTicket,
  type ViewTicketPayload,
} from "@millpond/api";
import { afterEach, beforeEach, expect, test } from "vitest";
import { Admission } from "./admission.ts";
import { ComputeMeter } from "../workers/compute-meter.ts";
import { type ClaimSources, describeClaim } from "./describe-claim.ts";
import { RunDirectory } from "../run-directory/run-directory.ts";

const { privateKey, publicKey } = generateKeyPairSync("ed25519");
const stranger = generateKeyPairSync("ed25519");
const gibibyte = 2 ** 30;
const card = { temperatureCelsius: 41, powerMilliwatts: 90_000, utilizationPercent: 80 };

let directory: string;
let run: RunDirectory;
let admission: Admission;

beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), "millpond-describe-"));
  run = RunDirectory.open(directory);
  admission = new Admission({ node: "node-a", run });
});
afterEach(() => {
  run[Symbol.dispose]();
  rmSync(directory, { recursive: true, force: true });
});

const now = (): number => Math.floor(Date.now() / 1000);

interface Granted {
  readonly claim: string;
  readonly epoch: number;
  readonly memoryBytes: number;
  readonly computePercent: number;
}

function allocate(...all: readonly Granted[]): void {
  admission.learn(
    create(SyncResponseSchema, {
      controller: "11111111-0000-4000-8000-000000000000",
      ticketPublicKey: formatTicketPublicKey(publicKey),
      term: 1n,
      order: 10n,
      allocations: all.map(({ claim, epoch, memoryBytes, computePercent }) => ({
        claim,
        node: "node-a",
        epoch: BigInt(epoch),
        devices: [{ uuid: "GPU-1", memoryBytes: BigInt(memoryBytes), computePercent }],
      })),
    }),
    now(),
  );
}

function payload({ claim, epoch, memoryBytes, computePercent }: Granted): ViewTicketPayload {
  const devices = [{ uuid: "GPU-1", memoryBytes, computePercent }];
  return { claim, node: "node-a", epoch, devices, term: 1, order: 9, issued: now(), expires: now() + 60 };
}

/** A session that keeps its device busy for the given fraction of the time. */
function session(of: Granted, pid: number, rate: number, isMeasured = true) {
  const compute = new ComputeMeter();
  const atMs = performance.now();
  compute.note([{ uuid: "GPU-1", computeUsedNs: 0, isMeasured }], atMs - 1000);
  compute.note([{ uuid: "GPU-1", computeUsedNs: rate * 1e9, isMeasured }], atMs);
  return {
    session: { session: randomUUID(), claim: of.claim, epoch: of.epoch, startedAt: 1_790_000_000 },
    client: { transport: "shm" as const, clientPid: pid + 1000, programPid: pid, program: `program-${pid}` },
    figures: { memoryUsedBytes: new Map([["GPU-1", 1000 * pid]]) },
    compute,
  };
}

function sources(...sessions: readonly ReturnType<typeof session>[]): ClaimSources {
  return {
    admission,
    sessions: () => sessions,
    devices: [
      {
        index: 3,
        driver: "/libcuda.so.1",
        driverVersion: "580.159.04",
        cudaVersion: 13_000,
        description: {
          ordinal: 0,
          uuid: "GPU-1",
          name: "NVIDIA H200",
          memoryBytes: 8 * gibibyte,
          pciBusId: "0000:01:00.0",
          computeCapability: "9.0",
          multiprocessors: 132,
          kind: "nvidia",
          nvlinks: 18,
        },
        topology: { numaNode: "0", pcieSwitch: "", nvlinkDomain: "" },
        costs: undefined,
      },
    ],
    figuresOf: () => card,
  };
}

const ask = (from: ClaimSources, viewTicket: string) =>
  describeClaim(from, create(DescribeClaimRequestSchema, { viewTicket }));

const half: Granted = { claim: "claim-a", epoch: 5, memoryBytes: gibibyte, computePercent: 50 };
const other: Granted = { claim: "claim-b", epoch: 6, memoryBytes: gibibyte, computePercent: 25 };

test("a claim is described without anything of others on its device", () => {
  allocate(half, other);
  const from = sources(session(half, 1, 0.2), session(half, 2, 0.1), session(other, 7, 0.25));
  const described = ask(from, signViewTicket(payload(half), privateKey));
  expect(described.sessions?.map(({ pid }) => pid)).toEqual([1, 2]);
  expect(described.devices?.[0]).toMatchObject({
    memoryBytes: BigInt(gibibyte),
    memoryUsedBytes: 3000n,
    utilizationPercent: 60,
    index: 3,
    nvlinks: 18,
  });
  // The device is shared, so the claim gets no measurements of it.
  expect(described.devices?.[0]).not.toHaveProperty("card");
  const text = JSON.stringify(described, (_, value: unknown) =>
    typeof value === "bigint" ? String(value) : value,
  );
  expect(text).not.toContain("claim-b");
  expect(text).not.toContain("program-7");
});

test("sessions of an allocation that the claim had before are not shown", () => {
  allocate(half);
  const before = session({ ...half, epoch: 4 }, 9, 0.5);
  expect(ask(sources(before), signViewTicket(payload(half), privateKey)).sessions).toEqual([]);
});

test("the claim that has the whole card gets its figures, and its utilization where nothing is measured", () => {
  const whole: Granted = { claim: "claim-a", epoch: 5, memoryBytes: 8 * gibibyte, computePercent: 100 };
  allocate(whole);
  const described = ask(sources(session(whole, 1, 0, false)), signViewTicket(payload(whole), privateKey));
  expect(described.devices?.[0]).toMatchObject({ card, utilizationPercent: 80 });
  allocate(whole, other);
  const beside = ask(sources(), signViewTicket(payload(whole), privateKey));
  expect(beside.devices?.[0]).not.toHaveProperty("card");
});

test("tickets of other kinds, keys, nodes, times and epochs describe nothing", () => {
  allocate(half);
  const good = payload(half);
  const opening = signTicket({ ...good, session: randomUUID() }, privateKey);
  expect(() => ask(sources(), opening)).toThrow("[MILLPOND_E_TICKET_INVALID]");
  expect(() => ask(sources(), opening.replace("mpt1", "mpv1"))).toThrow("[MILLPOND_E_TICKET_INVALID]");
  expect(() => ask(sources(), signViewTicket(good, stranger.privateKey))).toThrow(
    "[MILLPOND_E_TICKET_INVALID]",
  );
  expect(() => ask(sources(), "")).toThrow("[MILLPOND_E_TICKET_INVALID]");
  const of = (change: Partial<ViewTicketPayload>) => signViewTicket({ ...good, ...change }, privateKey);
  expect(() => ask(sources(), of({ node: "node-b" }))).toThrow("[MILLPOND_E_TICKET_WRONG_NODE]");
  expect(() => ask(sources(), of({ epoch: 4 }))).toThrow("[MILLPOND_E_TICKET_STALE]");
  expect(() => ask(sources(), of({ claim: "claim-b" }))).toThrow("[MILLPOND_E_TICKET_STALE]");
  const past = { issued: now() - 100, expires: now() - 50 };
  expect(() => ask(sources(), of(past))).toThrow("[MILLPOND_E_TICKET_EXPIRED]");
  allocate();
  expect(() => ask(sources(), of({}))).toThrow("[MILLPOND_E_TICKET_STALE]");
});

test("a view ticket opens no session", () => {
  allocate(half);
  const viewing = signViewTicket(payload(half), privateKey);
  expect(() => admission.admit(viewing, now())).toThrow("[MILLPOND_E_TICKET_INVALID]");
  expect(() => admission.admit(viewing.replace("mpv1", "mpt1"), now())).toThrow(
    "[MILLPOND_E_TICKET_INVALID]",
  );
});
