// SPDX-License-Identifier: Apache-2.0

import type { V1Namespace } from "@kubernetes/client-node";
import { expect, test, vi } from "vitest";
import { makeResourceNames } from "../request/resource-names.ts";
import { Tenancies } from "./tenancies.ts";

const namespace = (name: string, queues: string): V1Namespace => ({
  metadata: { name, annotations: { "millpond.dev/queues": queues } },
});

test("the copy answers for what it has, the server for the rest, and before claims", async () => {
  const copy = [namespace("old", "vision")];
  const server = new Map([
    ["old", namespace("old", "speech")],
    ["new", namespace("new", "vision")],
  ]);
  const tenancies = new Tenancies({
    names: makeResourceNames(),
    known: () => copy,
    read: (name) => Promise.resolve(server.get(name)),
  });
  expect((await tenancies.find("old")).queue).toBe("vision");
  expect((await tenancies.read("old")).queue).toBe("speech");
  expect((await tenancies.find("new")).queue).toBe("vision");
  await expect(tenancies.read("none")).rejects.toThrow("MILLPOND_E_NOT_FOUND");
  server.set("none", namespace("none", "vision"));
  expect((await tenancies.read("none")).queue).toBe("vision");
});

test("many pods share a read of their namespace, which is soon read again, and after a failure at once", async () => {
  vi.useFakeTimers({ toFake: ["performance"] });
  let reads = 0;
  let queue = "vision";
  let failure: Error | undefined;
  const tenancies = new Tenancies({
    names: makeResourceNames(),
    known: () => [],
    read: (name) => {
      reads += 1;
      return failure === undefined ? Promise.resolve(namespace(name, queue)) : Promise.reject(failure);
    },
  });
  await Promise.all(Array.from({ length: 100 }, () => tenancies.read("team")));
  expect(reads).toBe(1);
  queue = "speech";
  vi.advanceTimersByTime(600);
  expect((await tenancies.read("team")).queue).toBe("speech");
  expect(reads).toBe(2);
  failure = new Error("the server is away");
  vi.advanceTimersByTime(600);
  await expect(tenancies.read("team")).rejects.toThrow("the server is away");
  failure = undefined;
  expect((await tenancies.read("team")).queue).toBe("speech");
  vi.useRealTimers();
});
