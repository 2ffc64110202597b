// SPDX-License-Identifier: Apache-2.0

// The match conditions of the webhooks, evaluated: for which requests API servers call the webhooks, and for which not.

import fc from "fast-check";
import { expect, test } from "vitest";
import { readPodRequest } from "../request/pod-request.ts";
import { allResourceNames, makeResourceNames } from "../request/resource-names.ts";
import { holds } from "../testing/played/cel.ts";
import { toWebhooks } from "./registration.ts";

const names = makeResourceNames("millpond.dev", "vgpu=pool.kubernetes.io/gpu");
const operator = "system:serviceaccount:millpond-system:millpond-operator";
const { mutating, validating } = toWebhooks({
  names,
  name: "millpond",
  target: { service: { namespace: "millpond-system", name: "millpond", port: 443 } },
  bundle: "pem",
  operatorUser: operator,
  namespace: "millpond-system",
  hasResourceClaims: true,
  classLimits: ["example.org/half"],
  classes: ["half-a-gpu", "millpond.dev"],
  hasMatchConditions: true,
});

interface Asked {
  readonly object: unknown;
  readonly oldObject?: unknown;
  readonly user?: string;
  readonly operation?: string;
  readonly namespace?: string;
}

function isAsked(list: "mutating" | "validating", name: string, asked: Asked): boolean {
  const found = (list === "mutating" ? mutating : validating).find((each) => each.name === name);
  const conditions = found?.["matchConditions"] as readonly { readonly expression: string }[] | undefined;
  expect(conditions, name).toBeDefined();
  const { object, oldObject = null, user = "ann", operation = "CREATE", namespace = "default" } = asked;
  const request = { operation, namespace, userInfo: { username: user } };
  return (conditions ?? []).every(({ expression }) => holds(expression, { object, oldObject, request }));
}

const main = (resources?: object) => ({ name: "main", image: "x", ...(resources && { resources }) });
const pod = (spec: object, metadata: object = {}) => ({
  metadata: { name: "p", ...metadata },
  spec: { containers: [main()], ...spec },
});

test.each([
  ["a plain pod", pod({}), false],
  [
    "limits of another kind",
    pod({ containers: [main({ limits: { cpu: "1", "example.org/gpu": "1" } })] }),
    false,
  ],
  [
    "one of our limits",
    pod({ containers: [main(), main({ limits: { "millpond.dev/memory": "1Gi" } })] }),
    true,
  ],
  ["an alias", pod({ containers: [main({ limits: { "pool.kubernetes.io/gpu": "1" } })] }), true],
  ["a request alone", pod({ containers: [main({ requests: { "millpond.dev/vgpu": "1" } })] }), true],
  ["an init container", pod({ initContainers: [main({ limits: { "millpond.dev/vgpu": "1" } })] }), true],
  ["an annotation of ours", pod({}, { annotations: { "millpond.dev/queue": "vision" } }), true],
  [
    "an annotation that looks like ours",
    pod({}, { annotations: { "notmillpond.dev/queue": "vision" } }),
    false,
  ],
  ["the label of ours", pod({}, { labels: { "millpond.dev/managed": "true" } }), true],
] as const)("a pod with %s", (_what, object, expected) => {
  expect(isAsked("mutating", "pods.millpond.dev", { object })).toBe(expected);
  expect(isAsked("validating", "pods.millpond.dev", { object })).toBe(expected);
});

const reads = (name: string) => ({ name: "X", valueFrom: { secretKeyRef: { name, key: "token-0" } } });

test.each([
  [
    "a hostPath of Millpond's",
    pod({ volumes: [{ name: "v", hostPath: { path: "/run/millpond/s" } }] }),
    true,
  ],
  ["another hostPath", pod({ volumes: [{ name: "v", hostPath: { path: "/var/log" } }] }), false],
  [
    "a Secret of ours",
    pod({ volumes: [{ name: "v", secret: { secretName: "millpond-0123456789abcdef" } }] }),
    true,
  ],
  [
    "another Secret",
    pod({
      volumes: [
        { name: "v", secret: { secretName: "mine" } },
        { name: "e", emptyDir: {} },
      ],
    }),
    false,
  ],
  [
    "a projected Secret of ours",
    pod({
      volumes: [
        { name: "v", projected: { sources: [{ configMap: {} }, { secret: { name: "millpond-x" } }] } },
      ],
    }),
    true,
  ],
  [
    "a variable of ours",
    pod({ containers: [{ ...main(), env: [{ name: "A", value: "1" }, reads("millpond-x")] }] }),
    true,
  ],
  [
    "variables of another Secret",
    pod({ containers: [{ ...main(), envFrom: [{ secretRef: { name: "mine" } }] }] }),
    false,
  ],
  [
    "an init container's variables",
    pod({ initContainers: [{ ...main(), envFrom: [{ secretRef: { name: "millpond-x" } }] }] }),
    true,
  ],
] as const)("a pod that asks for nothing, with %s", (_what, object, expected) => {
  expect(isAsked("mutating", "pods.millpond.dev", { object })).toBe(false);
  expect(isAsked("validating", "pods.millpond.dev", { object })).toBe(expected);
  // Millpond's own pods may mount Millpond's own files.
  expect(isAsked("validating", "pods.millpond.dev", { object, namespace: "millpond-system" })).toBe(false);
});

test("pods with ResourceClaims, or limits of a class of our devices, are asked about apart", () => {
  const name = "resource-claims.millpond.dev";
  const claims = pod({ resourceClaims: [{ name: "gpu", resourceClaimName: "mine" }] });
  expect(isAsked("mutating", name, { object: claims })).toBe(true);
  const half = pod({ containers: [main({ limits: { "example.org/half": "1" } })] });
  expect(isAsked("mutating", name, { object: half })).toBe(true);
  expect(isAsked("mutating", name, { object: pod({}) })).toBe(false);
  const both = {
    ...claims,
    spec: { ...claims.spec, containers: [main({ limits: { "millpond.dev/vgpu": "1" } })] },
  };
  expect(isAsked("mutating", name, { object: both })).toBe(false);
});

test("of a change only labels, annotations and gates are looked at, and none of the cluster's own parts waits", () => {
  const before = pod(
    { schedulingGates: [{ name: "millpond.dev/queue" }] },
    { labels: { "millpond.dev/managed": "true" }, annotations: { "millpond.dev/id": "1" } },
  );
  const changed = (after: object, user = "ann") =>
    isAsked("validating", "changes.millpond.dev", {
      object: after,
      oldObject: before,
      user,
      operation: "UPDATE",
    });
  expect(changed(before)).toBe(false);
  expect(changed({ ...before, metadata: { ...before.metadata, finalizers: ["x"] } })).toBe(false);
  expect(changed({ ...before, status: { phase: "Running" } })).toBe(false);
  const forged = { ...before, metadata: { ...before.metadata, annotations: { "millpond.dev/id": "2" } } };
  expect(changed(forged)).toBe(true);
  expect(changed({ ...before, metadata: { name: "p" } })).toBe(true);
  expect(changed({ ...before, spec: { containers: [main()] } })).toBe(true);
  // A kubelet updates a pod's status, and may not change our keys either.
  expect(changed(forged, "system:node:worker-1")).toBe(true);
  for (const user of [operator, "system:kube-scheduler", "system:serviceaccount:kube-system:job-controller"])
    expect(changed(forged, user)).toBe(false);
});

test("prepared pods are looked at again when they are created and when their containers change", () => {
  const again = (object: object, more: Partial<Asked> = {}) =>
    isAsked("mutating", "again.millpond.dev", { object, ...more });
  // Without a first call there would be no second one.
  expect(again(pod({}))).toBe(true);
  const changed = (object: object) => again(object, { operation: "UPDATE", oldObject: pod({}) });
  expect(changed(pod({}, { finalizers: ["x"] }))).toBe(false);
  expect(changed(pod({ schedulingGates: [] }))).toBe(false);
  expect(changed(pod({ containers: [main({ limits: { "millpond.dev/vgpu": "1" } })] }))).toBe(true);
  const selector = mutating.find(({ name }) => name === "again.millpond.dev")?.["objectSelector"];
  expect(selector).toEqual({ matchExpressions: [{ key: "millpond.dev/managed", operator: "Exists" }] });
});

test("ResourceClaims that say that they are the pool's are looked at, whoever creates them but the operator", () => {
  const controller = "system:serviceaccount:kube-system:resource-claim-controller";
  const ours = { metadata: { name: "c", annotations: { "millpond.dev/epoch": "1" } }, spec: {} };
  const plain = { metadata: { name: "c" }, spec: {} };
  const asked = (more: Asked) => isAsked("validating", "claims.millpond.dev", more);
  expect(asked({ object: plain })).toBe(false);
  for (const user of ["ann", controller, "system:kube-scheduler"])
    expect(asked({ object: ours, user })).toBe(true);
  expect(asked({ object: ours, user: operator })).toBe(false);
  const update = { operation: "UPDATE", oldObject: ours } as const;
  expect(asked({ ...update, object: plain })).toBe(true);
  // It removes finalizers.
  expect(asked({ ...update, object: ours, user: controller })).toBe(false);
  const template = { metadata: { name: "t" }, spec: { metadata: ours.metadata, spec: {} } };
  expect(asked({ object: template })).toBe(true);
  expect(asked({ object: { ...template, spec: { spec: {} } } })).toBe(false);
});

test("ResourceClaims and templates that request devices of the pool are looked at, and those of other drivers are not", () => {
  const asked = (requests: object[] | undefined, user = "ann", operation = "CREATE") => {
    const spec = { devices: requests === undefined ? {} : { requests } };
    const of = (object: object) =>
      isAsked("validating", "requests.millpond.dev", { object, user, operation });
    const both = [of({ metadata: { name: "c" }, spec }), of({ metadata: { name: "t" }, spec: { spec } })];
    expect(both[0]).toBe(both[1]);
    return both[0];
  };
  const exactly = (deviceClassName: string, expression?: string) => ({
    name: "gpu",
    exactly: { deviceClassName, ...(expression !== undefined && { selectors: [{ cel: { expression } }] }) },
  });
  const alternatives = { name: "gpu", firstAvailable: [{ name: "a", deviceClassName: "half-a-gpu" }] };
  expect(asked([exactly("nics.example.org"), exactly("millpond.dev")])).toBe(true);
  expect(asked([alternatives])).toBe(true);
  expect(asked([exactly("any-gpu", 'device.driver == "millpond.dev"')])).toBe(true);
  expect(asked([exactly("nics.example.org", 'device.driver == "nics.example.org"')])).toBe(false);
  expect(asked([])).toBe(false);
  expect(asked(undefined)).toBe(false);
  // The operator creates them for granted claims, and the cluster from templates.
  expect(asked([exactly("millpond.dev")], operator)).toBe(false);
  expect(
    asked([exactly("millpond.dev")], "system:serviceaccount:kube-system:resource-claim-controller"),
  ).toBe(false);
});

test("containers for debugging are asked about where they want what is the pool's", () => {
  const asked = (...ephemeralContainers: object[]) =>
    isAsked("validating", "debugging.millpond.dev", {
      object: pod({ ephemeralContainers }),
      oldObject: pod({}),
      operation: "UPDATE",
    });
  expect(asked(main())).toBe(false);
  expect(asked(main({ limits: { "millpond.dev/vgpu": "1" } }))).toBe(true);
  expect(asked(main(), { ...main(), env: [reads("millpond-0123456789abcdef")] })).toBe(true);
});

test("API servers ask about exactly the pods that request something, whatever else is in them", () => {
  const resource = fc.constantFrom(...allResourceNames(names), "cpu", "nvidia.com/gpu");
  const resources = fc.option(
    fc.record(
      { limits: fc.dictionary(resource, fc.constantFrom("1", "8Gi"), { maxKeys: 2 }) },
      { requiredKeys: [] },
    ),
    { nil: undefined },
  );
  const containers = fc.array(resources.map(main), { minLength: 1, maxLength: 3 });
  const pods = fc.record({ containers, initContainers: containers }, { requiredKeys: ["containers"] });
  let asking = 0;
  fc.assert(
    fc.property(pods, (spec) => {
      const named = (list: readonly object[] | undefined, prefix: string) =>
        list?.map((each, index) => ({ ...each, name: `${prefix}${index}` }));
      const object = pod({
        ...spec,
        containers: named(spec.containers, "c"),
        ...(spec.initContainers && { initContainers: named(spec.initContainers, "i") }),
      });
      let requests: boolean;
      try {
        requests = readPodRequest(names, object) !== undefined;
      } catch {
        requests = true;
      }
      if (requests) asking += 1;
      expect(isAsked("mutating", "pods.millpond.dev", { object })).toBe(requests);
    }),
    { numRuns: 400, seed: 20_261_125 },
  );
  expect(asking).toBeGreaterThan(50);
});
