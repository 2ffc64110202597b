// SPDX-License-Identifier: Apache-2.0

import type { V1Container, V1Pod } from "@kubernetes/client-node";
import { expect, test } from "vitest";
import { makeResourceNames } from "../request/resource-names.ts";
import { applyPatch } from "../testing/played/patches.ts";
import { mutateAgain } from "./mutate-again.ts";
import { type InjectionPolicy, mutatePod } from "./mutate-pod.ts";

const names = makeResourceNames();
const policies: Readonly<Record<"dra" | "device-plugin", InjectionPolicy>> = {
  dra: { names, allocation: "dra", isGated: true },
  "device-plugin": { names, allocation: "device-plugin", isGated: true },
};
const limits = {
  "millpond.dev/vgpu": "1",
  "millpond.dev/compute": "30",
  "millpond.dev/memory": "8Gi",
  cpu: "2",
};
const env = [
  { name: "LD_PRELOAD", value: "/a.so" },
  { name: "MILLPOND_PRELOAD", value: "1" },
  { name: "LD_LIBRARY_PATH", value: "/opt/lib" },
];

const written = (container: Partial<V1Container> = {}): V1Pod => ({
  metadata: { name: "p" },
  spec: {
    initContainers: [{ name: "init", image: "x", resources: { limits } }],
    containers: [
      { name: "main", image: "x", env, resources: { limits, requests: limits }, ...container },
      { name: "plain", image: "x", resources: { limits: { cpu: "1" } } },
    ],
  },
});

const patched = (pod: V1Pod, patch: readonly unknown[]) =>
  applyPatch("application/json-patch+json", pod as Record<string, unknown>, patch) as V1Pod;

/** The pod that `kubectl apply` of a manifest makes of an existing one: members that it names are as in it. */
function applied(manifest: V1Pod, existing: V1Pod): V1Pod {
  const merge = (own: readonly V1Container[] = [], there: readonly V1Container[] = []) =>
    there.map((container) => {
      const named = own.find(({ name }) => name === container.name);
      const variables = [...(named?.env ?? [])];
      for (const each of container.env ?? [])
        if (!variables.some(({ name }) => name === each.name)) variables.unshift(each);
      return {
        ...container,
        ...(named?.image === undefined ? {} : { image: named.image }),
        ...(variables.length === 0 ? {} : { env: variables }),
        resources: {
          ...container.resources,
          limits: { ...container.resources?.limits, ...named?.resources?.limits },
          ...(named?.resources?.requests && { requests: named.resources.requests }),
        },
      };
    });
  return {
    ...existing,
    spec: {
      ...existing.spec,
      containers: merge(manifest.spec?.containers, existing.spec?.containers),
      initContainers: merge(manifest.spec?.initContainers, existing.spec?.initContainers),
    },
  };
}

test.each(["dra", "device-plugin"] as const)(
  "by %s, the same manifest applied again changes nothing",
  (allocation) => {
    const policy = policies[allocation];
    const existing = patched(written(), mutatePod(policy, written()));
    const change = applied(written(), existing);
    expect(change).not.toEqual(existing);
    expect(patched(change, mutateAgain(policy, change, existing))).toEqual(existing);
  },
);

test.each<[string, Partial<V1Container>]>([
  ["another number", { resources: { limits: { ...limits, "millpond.dev/vgpu": "2" } } }],
  ["another size", { resources: { limits: { ...limits, "millpond.dev/memory": "9Gi" } } }],
  ["a fraction", { resources: { limits: { ...limits, "millpond.dev/compute": "30.5" } } }],
  ["another path", { env: [{ name: "LD_LIBRARY_PATH", value: "/other" }] }],
  ["another image", { image: "y" }],
])("%s is left to the API server to refuse, or to take", (_what, container) => {
  const existing = patched(written(), mutatePod(policies.dra, written()));
  const change = applied(written(container), existing);
  const after = patched(change, mutateAgain(policies.dra, change, existing));
  expect(after).not.toEqual(existing);
});

test.each(["dra", "device-plugin"] as const)(
  "by %s, limits that a LimitRange adds to a prepared pod go, and those of containers that asked for nothing stay",
  (allocation) => {
    const policy = policies[allocation];
    const prepared = patched(written(), mutatePod(policy, written()));
    const defaults = { "millpond.dev/vgpu": "1", "millpond.dev/compute": "5", "millpond.dev/memory": "1Gi" };
    const ranged = structuredClone(prepared);
    for (const container of [...(ranged.spec?.containers ?? []), ...(ranged.spec?.initContainers ?? [])]) {
      container.resources = {
        ...container.resources,
        limits: { ...defaults, ...container.resources?.limits },
        requests: { ...defaults, ...container.resources?.requests },
      };
    }
    const after = patched(ranged, mutateAgain(policy, ranged, undefined));
    const resourcesOf = (pod: V1Pod) => pod.spec?.containers.map(({ resources }) => resources);
    expect(resourcesOf(after)?.[0]).toEqual(resourcesOf(prepared)?.[0]);
    // The validating webhook refuses it.
    expect(resourcesOf(after)?.[1]).toEqual(resourcesOf(ranged)?.[1]);
  },
);

test("a pod that the webhook has not prepared is left alone", () => {
  expect(mutateAgain(policies.dra, written(), undefined)).toEqual([]);
  expect(mutateAgain(policies.dra, written(), written())).toEqual([]);
});
