// SPDX-License-Identifier: Apache-2.0

import type { V1EnvVar } from "@kubernetes/client-node";
import { expect, test } from "vitest";
import { makeResourceNames } from "../request/resource-names.ts";
import { mutatePod } from "./mutate-pod.ts";

const policy = { names: makeResourceNames(), allocation: "dra", isGated: true } as const;

/** LD_PRELOAD of a container with these variables, after the webhook's changes. */
function preloadOf(...env: V1EnvVar[]): string | undefined {
  const resources = { limits: { "millpond.dev/vgpu": "1" } };
  const patch = mutatePod(policy, { spec: { containers: [{ name: "main", image: "x", env, resources }] } });
  const variables = patch.find(({ path }) => path === "/spec/containers/0/env")?.value as V1EnvVar[];
  const found = variables.filter(({ name }) => name === "LD_PRELOAD");
  expect(found.length).toBeLessThan(2);
  return found[0]?.value;
}

test("a container that asks for it preloads the libraries for profilers, after its own", () => {
  const wanted = { name: "MILLPOND_PRELOAD", value: "1" };
  const ours = "/usr/lib/millpond/libcupti.so.13:/usr/lib/millpond/libcupti.so.12";
  expect(preloadOf()).toBeUndefined();
  expect(preloadOf({ name: "LD_PRELOAD", value: "/a.so /b.so" })).toBe("/a.so /b.so");
  expect(preloadOf(wanted)).toBe(ours);
  expect(preloadOf({ name: "LD_PRELOAD", value: "/a.so /b.so" }, wanted)).toBe(`/a.so:/b.so:${ours}`);
  expect(preloadOf({ ...wanted, value: "0" })).toBeUndefined();
  const elsewhere = { name: "LD_PRELOAD", valueFrom: { configMapKeyRef: { name: "c", key: "k" } } };
  expect(() => preloadOf(elsewhere, wanted)).toThrow(/LD_PRELOAD/);
});
