// SPDX-License-Identifier: Apache-2.0

import { expect, test } from "vitest";
import { makeResourceNames } from "../request/resource-names.ts";
import { describes, type RegistrationOptions, toWebhooks } from "./registration.ts";

const options: RegistrationOptions = {
  names: makeResourceNames("millpond.dev", "vgpu=pool.kubernetes.io/gpu"),
  name: "millpond",
  target: { service: { namespace: "millpond-system", name: "millpond", port: 443 } },
  bundle: "pem",
  operatorUser: "system:serviceaccount:millpond-system:millpond-operator",
  namespace: "millpond-system",
  hasResourceClaims: true,
  classLimits: [],
  classes: ["half-a-gpu"],
  hasMatchConditions: true,
};

const byName = (list: ReturnType<typeof toWebhooks>["mutating"]) =>
  Object.fromEntries(list.map((webhook) => [webhook.name, webhook as Record<string, unknown>]));
const expressionOf = (webhook: Record<string, unknown> | undefined): string =>
  (webhook?.["matchConditions"] as { expression: string }[] | undefined)?.[0]?.expression ?? "";

test("API servers with match conditions call for pods that ask, by any name, and fail closed", () => {
  const { mutating, validating } = toWebhooks(options);
  const first = byName(mutating)["pods.millpond.dev"];
  expect(first).toMatchObject({ failurePolicy: "Fail" });
  for (const name of ["millpond.dev/vgpu", "pool.kubernetes.io/gpu", "millpond.dev/managed"])
    expect(expressionOf(first)).toContain(JSON.stringify(name));
  for (const webhook of [...mutating, ...validating]) {
    expect(webhook["matchConditions"] ?? webhook["objectSelector"], webhook.name).not.toEqual({});
    expect(webhook.name).not.toMatch(/^any-pods/);
  }
});

test("API servers without them call for every pod, and only those with our label fail closed", () => {
  const old = toWebhooks({ ...options, hasMatchConditions: false, hasResourceClaims: false });
  for (const list of [old.mutating, old.validating]) {
    const { "any-pods.millpond.dev": any, "pods.millpond.dev": labelled } = byName(list);
    expect(any).toMatchObject({
      failurePolicy: "Ignore",
      objectSelector: { matchExpressions: [{ key: "millpond.dev/managed", operator: "DoesNotExist" }] },
      namespaceSelector: {
        matchExpressions: [{ operator: "NotIn", values: ["kube-system", "millpond-system"] }],
      },
    });
    expect(labelled).toMatchObject({
      failurePolicy: "Fail",
      objectSelector: { matchExpressions: [{ key: "millpond.dev/managed", operator: "Exists" }] },
    });
    for (const webhook of list) expect(webhook["matchConditions"]).toBeUndefined();
  }
});

test("a change of a pod is looked at where it may be of what is ours, through the status, too", () => {
  const { "changes.millpond.dev": changes } = byName(toWebhooks(options).validating);
  expect(changes?.rules).toMatchObject([{ operations: ["UPDATE"], resources: ["pods", "pods/status"] }]);
  const conditions = changes?.["matchConditions"] as { expression: string }[] | undefined;
  for (const path of ["metadata.labels", "metadata.annotations", "spec.schedulingGates"])
    expect(conditions?.[1]?.expression).toContain(`(has(oldObject.${path}) ? oldObject.${path} : `);
  // Otherwise every kubelet would cause a call with every status update.
  const { "changes.millpond.dev": old } = byName(
    toWebhooks({ ...options, hasMatchConditions: false, hasResourceClaims: false }).validating,
  );
  expect(old?.rules).toMatchObject([{ resources: ["pods"] }]);
});

test("ResourceClaims that the cluster makes from templates are looked at, as are the templates", () => {
  const { "claims.millpond.dev": claims } = byName(toWebhooks(options).validating);
  expect(claims?.rules).toMatchObject([{ resources: ["resourceclaims", "resourceclaimtemplates"] }]);
  expect(expressionOf(claims)).toMatch(
    /^\(request\.operation == "CREATE" \? request\.userInfo\.username != "system:serviceaccount:millpond-system:/,
  );
  expect(expressionOf(claims)).toContain("object.spec.metadata.annotations.exists(");
});

test("limits of other classes of our devices lead to the webhook of ResourceClaims", () => {
  const claims = (classLimits: readonly string[]) =>
    expressionOf(byName(toWebhooks({ ...options, classLimits }).mutating)["resource-claims.millpond.dev"]);
  expect(claims([])).not.toContain("example.org/half");
  expect(claims(["example.org/half"])).toContain('k in ["example.org/half"]');
});

test("a registration that others have changed is noticed, and one that the API server has completed is left alone", () => {
  const { mutating: wanted } = toWebhooks(options);
  const completed = (change: object) =>
    wanted.map((each, index) => ({ reinvocationPolicy: "Never", ...each, ...(index === 0 ? change : {}) }));
  expect(describes(completed({}), wanted)).toBe(true);
  expect(describes(completed({ serverSetsThis: 1 }), wanted)).toBe(true);
  const exempted = { matchExpressions: [{ key: "skip", operator: "DoesNotExist" }] };
  for (const change of [
    { failurePolicy: "Ignore" },
    { timeoutSeconds: 30 },
    { namespaceSelector: exempted },
    { objectSelector: exempted },
    { matchConditions: [] },
    { rules: [] },
    { clientConfig: { caBundle: "b3RoZXI=", service: { namespace: "other", name: "millpond", port: 443 } } },
  ])
    expect(describes(completed(change), wanted), JSON.stringify(change)).toBe(false);
  expect(describes(wanted.slice(1), wanted)).toBe(false);
  expect(describes([...wanted, ...wanted], wanted)).toBe(false);
  expect(describes(undefined, wanted)).toBe(false);
});
