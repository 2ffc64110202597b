// SPDX-License-Identifier: Apache-2.0

// Properties of every pod that is admitted, whatever its author has written.

import type { V1Pod } from "@kubernetes/client-node";
import { claimFieldNames, claimFieldSpecs } from "@millpond/api";
import fc from "fast-check";
import { expect, test } from "vitest";
import { parseSlices, readPodRequest } from "../request/pod-request.ts";
import { allResourceNames, keysOf, makeResourceNames } from "../request/resource-names.ts";
import { type AdmissionPolicy, type AdmissionReview, reviewMutation, reviewValidation } from "./admission.ts";

const names = makeResourceNames();
const keys = keysOf(names);
const basePolicy: Omit<AdmissionPolicy, "allocation" | "isGated"> = {
  names,
  systemNamespace: "millpond-system",
  operatorUser: "system:serviceaccount:millpond-system:millpond-operator",
  limits: () => ({ largestDeviceBytes: 80n << 30n, mostDevices: 8, queues: ["default", "vision"] }),
  userClaimsOf: () => Promise.resolve([]),
  isClassOfPool: (name) => name === "millpond.dev" || name === "half",
  canMakePods: () => Promise.resolve(false),
  tenancyOf: () =>
    Promise.resolve({ tenant: "t", queue: "vision", queues: ["vision"], foreignQueues: new Set<string>() }),
};
const policies = fc.constantFrom<AdmissionPolicy>(
  { ...basePolicy, allocation: "dra", isGated: true },
  { ...basePolicy, allocation: "device-plugin", isGated: false },
);

const ownVariables = new Set([
  ...claimFieldNames.map((name) => claimFieldSpecs[name].env),
  ...["POD_UID", "CLAIM", "CONTROLLER", "CA", "TOKEN", "WORKER", "TICKET", "LINK_SECRET"].map(
    (name) => `MILLPOND_${name}`,
  ),
]);
const foreignSecret = "millpond-0123456789abcdef";
const ownSecret = /^millpond-[0-9a-f]{16}$/;

const quantity = fc.oneof(
  { weight: 4, arbitrary: fc.constantFrom("1", "2", "8", "30") },
  { weight: 1, arbitrary: fc.constantFrom("9", "0", "-1", "500m", "4Gi", "200Gi", "1e30", "101") },
);
const resourceName = fc.oneof(
  { weight: 3, arbitrary: fc.constantFrom("cpu", "memory", "nvidia.com/gpu") },
  { weight: 2, arbitrary: fc.constantFrom(...allResourceNames(names)) },
);
const quantities = fc.dictionary(resourceName, quantity, { maxKeys: 3 });
const secretName = fc.constantFrom(foreignSecret, "team", "millpond-team");
const variable = fc.oneof(
  fc.record({ name: fc.constantFrom("MODE", "LD_LIBRARY_PATH"), value: fc.string() }),
  fc.record({ name: fc.constantFrom("MODE", ...ownVariables), value: fc.string() }),
  secretName.map((name) => ({ name: "X", valueFrom: { secretKeyRef: { name, key: "token-0" } } })),
);
/** Keeps odd members rare, because a pod in which every member is odd is never admitted. */
const seldom = <T>(arbitrary: fc.Arbitrary<T>): fc.Arbitrary<T | undefined> =>
  fc.oneof({ weight: 3, arbitrary: fc.constant(undefined) }, { weight: 1, arbitrary });
const containerMembers = {
  env: seldom(fc.array(variable, { maxLength: 2 })),
  envFrom: seldom(
    fc.array(
      secretName.map((name) => ({ secretRef: { name } })),
      { maxLength: 1 },
    ),
  ),
  resources: fc.record({ limits: quantities, requests: seldom(quantities) }),
  volumeMounts: fc.constant([{ name: "v0", mountPath: "/usr/lib/millpond" }]),
};
const containersNamed = (prefix: string, minLength: number) =>
  fc
    .array(fc.record(containerMembers), { minLength, maxLength: 3 })
    .map((list) => list.map((each, index) => ({ ...each, name: `${prefix}${index}`, image: "x" })));
const segment = fc.constantFrom(
  "run",
  "var",
  "lib",
  "millpond",
  "kubelet",
  "plugins",
  "millpond.dev",
  "srv",
  "millponds",
  ".",
  "..",
  "",
  "proc",
  "1",
  "root",
);
const hostPath = fc.oneof(
  fc.array(segment, { maxLength: 7 }).map((parts) => `/${parts.join("/")}`),
  fc.constantFrom("/run/millpond", "/proc/1/root/run/millpond", "/var/lib/millpond/client", "/srv", "/"),
);
const volume = fc.oneof(
  hostPath.map((path) => ({ hostPath: { path } })),
  secretName.map((name) => ({ secret: { secretName: name } })),
  secretName.map((name) => ({ projected: { sources: [{ secret: { name } }] } })),
  fc.constant({ emptyDir: {} }),
);
const annotationKey = fc.constantFrom(
  "note",
  "other.org/x",
  keys.queue,
  keys.resize,
  keys.request,
  keys.id,
  keys.claims,
  keys.node,
  keys.retries,
  ...["gang", "gang-size", "preemptible", "tenant", "priority", "memory"].map((key) => `millpond.dev/${key}`),
);
const annotationValue = fc.oneof(
  fc.constantFrom("vision", "default", "true", "4", "[]", '[{"gpus":64,"containers":["c0"]}]', "a\nb"),
  fc.string(),
);
const pods = fc
  .record({
    annotations: seldom(fc.dictionary(annotationKey, annotationValue, { maxKeys: 2 })),
    labels: seldom(
      fc.dictionary(
        fc.constantFrom("app", keys.managed, keys.queue),
        fc.constantFrom("true", "vision", "default"),
        {
          maxKeys: 2,
        },
      ),
    ),
    containers: containersNamed("c", 1),
    initContainers: seldom(containersNamed("i", 0)),
    ephemeralContainers: seldom(containersNamed("e", 0)),
    volumes: seldom(fc.array(volume, { maxLength: 2 })),
    nodeName: seldom(fc.constantFrom("worker-1", "")),
  })
  .map(({ annotations, labels, volumes, ...spec }): V1Pod => {
    const listed = volumes?.map((each, index) => ({ name: `v${index}`, ...each }));
    return JSON.parse(
      JSON.stringify({ metadata: { name: "p", annotations, labels }, spec: { ...spec, volumes: listed } }),
    ) as V1Pod;
  });

const review = (object: V1Pod, more: object = {}) => ({
  apiVersion: "admission.k8s.io/v1",
  request: { uid: "u1", operation: "CREATE", namespace: "team-a", object, ...more },
});

/** The pod after the patch, applied as RFC 6902 defines `add`. */
function apply(pod: V1Pod, { response }: AdmissionReview): V1Pod {
  const copy = structuredClone(pod);
  const patch = JSON.parse(Buffer.from(response.patch ?? "", "base64").toString() || "[]") as {
    path: string;
    value: unknown;
  }[];
  for (const { path, value } of patch) {
    const parts = path.split("/").slice(1);
    const last = parts.pop() ?? "";
    let target = copy as unknown as Record<string, unknown>;
    for (const part of parts) target = target[part] as Record<string, unknown>;
    target[last] = value;
  }
  return copy;
}

function expectHouseForm({ response }: AdmissionReview): void {
  expect([403, 422]).toContain(response.status?.code);
  // The message states the problem, its reason, the remedy and the code.
  expect(response.status?.message).toMatch(/^[^\n]+\. [^\n]+ \[MILLPOND_E_[A-Z_]+\]$/);
}

/** Runs both webhooks; undefined: one of them has refused the pod. */
async function admit(policy: AdmissionPolicy, pod: V1Pod): Promise<V1Pod | undefined> {
  const changed = await reviewMutation(policy, review(pod));
  const prepared = apply(pod, changed);
  const answer = changed.response.allowed ? reviewValidation(policy, review(prepared)) : changed;
  if (answer.response.allowed) return prepared;
  expectHouseForm(answer);
  return undefined;
}

const containersOf = ({ spec }: V1Pod) => [...(spec?.containers ?? []), ...(spec?.initContainers ?? [])];

/**
 * The directories of the host that a path exposes, as found by resolving it, with `/proc/1/root` as the host's root.
 */
function walk(path: string): string {
  const at: string[] = [];
  for (const part of path.split("/")) {
    if (part === "..") at.pop();
    else if (part !== "" && part !== ".") at.push(part);
  }
  while (at[0] === "proc" && at.length > 2 && at[2] === "root") at.splice(0, 3);
  return `/${at.map((part) => `${part}/`).join("")}`;
}

test("an admitted pod has what it asked for and nothing of Millpond's besides, whatever is written in it", async () => {
  const seen = { asking: 0, plain: 0, refused: 0 };
  await fc.assert(
    fc.asyncProperty(policies, pods, async (policy, pod) => {
      const before = structuredClone(pod);
      const admitted = await admit(policy, pod);
      expect(pod).toEqual(before);
      if (admitted === undefined) {
        seen.refused += 1;
        return;
      }
      const shown = (admitted.spec?.volumes ?? []).flatMap((each) => each.hostPath?.path ?? []).map(walk);
      for (const own of ["/run/millpond/", "/var/run/millpond/", "/var/lib/millpond/"])
        expect(shown.filter((path) => path.startsWith(own))).toEqual([]);
      // No text from the pod's author refers to the token of another pod.
      const id = admitted.metadata?.annotations?.[keys.id];
      const secrets: string[] = JSON.stringify(admitted.spec).match(/millpond-[0-9a-f]{16}(?=")/g) ?? [];
      expect(secrets.filter((name) => ownSecret.test(name) && name !== `millpond-${id}`)).toEqual([]);
      const asked = readPodRequest(names, pod);
      if (asked === undefined) {
        seen.plain += 1;
        expect(admitted).toEqual(pod);
        return;
      }
      seen.asking += 1;
      expect(id).toMatch(/^[0-9a-f]{16}$/);
      expect(parseSlices(admitted.metadata?.annotations?.[keys.request] ?? "")).toEqual(asked.slices);
      for (const key of [keys.claims, keys.node])
        expect(admitted.metadata?.annotations?.[key]).toBeUndefined();
      for (const path of shown)
        for (const own of ["/run/millpond/", "/var/run/millpond/", "/var/lib/kubelet/"])
          expect(own.startsWith(path) || path.startsWith(own)).toBe(false);
      const claimed = admitted.spec?.resourceClaims ?? [];
      expect(claimed).toHaveLength(policy.allocation === "dra" ? asked.slices.length : 0);
      for (const container of containersOf(admitted)) {
        const slice = asked.slices.find(({ containers }) => containers.includes(container.name));
        const ours = allResourceNames(names);
        const left = Object.entries({
          ...container.resources?.requests,
          ...container.resources?.limits,
        }).filter(([name]) => ours.includes(name));
        expect(left).toEqual(
          policy.allocation === "device-plugin" && slice !== undefined
            ? [["millpond.dev/vgpu", String(slice.slice.gpus)]]
            : [],
        );
        if (slice === undefined) {
          expect(container).toEqual(containersOf(pod).find(({ name }) => name === container.name));
          continue;
        }
        const variables = (container.env ?? []).filter(({ name }) => ownVariables.has(name));
        expect(variables.map(({ name }) => name)).toEqual([
          "MILLPOND_POD_UID",
          "MILLPOND_CLAIM",
          "MILLPOND_CONTROLLER",
          "MILLPOND_CA",
          "MILLPOND_TOKEN",
        ]);
        expect(variables[4]?.valueFrom?.secretKeyRef?.name).toBe(`millpond-${id}`);
      }
    }),
    { numRuns: 1500, seed: 20_261_124 },
  );
  // The generated pods cover each of the three outcomes.
  for (const count of Object.values(seen)) expect(count).toBeGreaterThan(30);
});

test("a container that is added to a pod that runs gets no token but the pod's own, and nothing of the pool", async () => {
  const plain: V1Pod = { metadata: { name: "p" }, spec: { containers: [{ name: "c0", image: "x" }] } };
  const asking: V1Pod = {
    metadata: { name: "p" },
    spec: { containers: [{ name: "c0", image: "x", resources: { limits: { "millpond.dev/vgpu": "1" } } }] },
  };
  const policy: AdmissionPolicy = { ...basePolicy, allocation: "dra", isGated: true };
  const seen = { allowed: 0, refused: 0 };
  await fc.assert(
    fc.asyncProperty(
      fc.constantFrom(plain, asking),
      containersNamed("e", 1),
      fc.boolean(),
      async (pod, added, usesOwn) => {
        const running = await admit(policy, pod);
        const id = running?.metadata?.annotations?.[keys.id];
        const own = JSON.stringify(added).replaceAll(
          foreignSecret,
          usesOwn && id !== undefined ? `millpond-${id}` : foreignSecret,
        );
        const after = {
          ...running,
          spec: { ...running?.spec, ephemeralContainers: JSON.parse(own) as unknown },
        } as V1Pod;
        const more = { operation: "UPDATE", subResource: "ephemeralcontainers", oldObject: running };
        const answer = reviewValidation(policy, review(after, { ...more, userInfo: { username: "ann" } }));
        const text = JSON.stringify(after.spec?.ephemeralContainers);
        const readsForeign = text.includes(foreignSecret);
        const asks = allResourceNames(names).some((name) => text.includes(JSON.stringify(name)));
        expect(answer.response.allowed).toBe(!readsForeign && !asks);
        if (!answer.response.allowed) expectHouseForm(answer);
        seen[answer.response.allowed ? "allowed" : "refused"] += 1;
      },
    ),
    { numRuns: 500, seed: 20_261_124 },
  );
  for (const count of Object.values(seen)) expect(count).toBeGreaterThan(30);
});

test("a change by others than the operator leaves all that is Millpond's on a pod as it is", async () => {
  const prepared = await admit(
    { ...basePolicy, allocation: "dra", isGated: true },
    {
      metadata: { name: "p", labels: { [keys.queue]: "vision" } },
      spec: { containers: [{ name: "c0", image: "x", resources: { limits: { "millpond.dev/vgpu": "1" } } }] },
    },
  );
  const texts = fc.dictionary(annotationKey, annotationValue, { maxKeys: 3 });
  const changedLabels = fc.dictionary(
    fc.constantFrom("app", keys.managed, keys.queue),
    fc.constantFrom("true", "vision", "default"),
    { maxKeys: 2 },
  );
  const policy: AdmissionPolicy = { ...basePolicy, allocation: "dra", isGated: true };
  fc.assert(
    fc.property(texts, changedLabels, fc.boolean(), fc.boolean(), (annotations, labels, replaces, opens) => {
      const after = structuredClone(prepared) as V1Pod;
      after.metadata = {
        ...after.metadata,
        annotations: { ...(replaces ? {} : prepared?.metadata?.annotations), ...annotations },
        labels: { ...(replaces ? {} : prepared?.metadata?.labels), ...labels },
      };
      if (opens)
        after.spec = { ...after.spec, containers: after.spec?.containers ?? [], schedulingGates: [] };
      const answer = reviewValidation(
        policy,
        review(after, { operation: "UPDATE", oldObject: prepared, userInfo: { username: "ann" } }),
      );
      if (!answer.response.allowed) {
        expectHouseForm(answer);
        return;
      }
      const ours = (list: Record<string, string> = {}) =>
        Object.entries(list).filter(([key]) => key.startsWith("millpond.dev/") && key !== keys.resize);
      expect(opens).toBe(false);
      expect(Object.fromEntries(ours(after.metadata.annotations))).toEqual(
        Object.fromEntries(ours(prepared?.metadata?.annotations)),
      );
      expect(Object.fromEntries(ours(after.metadata.labels))).toEqual(
        Object.fromEntries(ours(prepared?.metadata?.labels)),
      );
    }),
    { numRuns: 500, seed: 20_261_124 },
  );
});
