// SPDX-License-Identifier: Apache-2.0

import { expect, test } from "vitest";
import { roomForWorkers } from "./room-for-workers.ts";

const uuid = "GPU-1";
const device = { uuid, memoryBytes: 100, overheadBytes: 4 };
const part = (claim: string, memoryBytes: number, epoch = 1) => ({ claim, epoch, memoryBytes });
const session = (claim: string, memoryBytes: number, on = uuid, epoch = 1) => ({
  claim,
  epoch,
  devices: [{ uuid: on, memoryBytes, computePercent: 50, serviceClass: "guaranteed" as const }],
});

test("an unused device has room for as many contexts as fit", () => {
  expect(roomForWorkers(device, [], [])).toBe(25);
  expect(roomForWorkers({ ...device, overheadBytes: 0 }, [part("a", 100)], [])).toBe(
    Number.POSITIVE_INFINITY,
  );
});

test("allocations and the context of each leave the rest, and the context itself until they have a session", () => {
  const parts = [part("a", 40), part("b", 40)];
  expect(roomForWorkers(device, parts, [])).toBe(3 + 2);
  expect(roomForWorkers(device, parts, [session("a", 40)])).toBe(3 + 1);
  expect(roomForWorkers(device, parts, [session("a", 40), session("a", 40), session("b", 40)])).toBe(3);
});

test("a whole device has one worker, which waits for its first session, and none afterwards", () => {
  expect(roomForWorkers(device, [part("a", 100)], [])).toBe(1);
  expect(roomForWorkers(device, [part("a", 100)], [session("a", 100)])).toBe(0);
});

test("sessions of allocations that the controller has not reported count", () => {
  expect(roomForWorkers(device, [], [session("a", 92), session("a", 92)])).toBe(1);
  // A session of an earlier epoch belongs to another allocation, and a session on another device does not count.
  expect(roomForWorkers(device, [part("a", 40, 2)], [session("a", 44)])).toBe(2 + 1);
  expect(roomForWorkers(device, [], [session("a", 92, "GPU-2")])).toBe(25);
});
