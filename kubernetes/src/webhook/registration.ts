// SPDX-License-Identifier: Apache-2.0

// Registers the webhooks for pods that request the pool, and for no others.

import { allResourceNames, keysOf, type ResourceNames } from "../request/resource-names.ts";
import { readsTokenExpression, touchesExpression } from "./guarded.ts";
import { asMergePatch, type Cluster } from "../cluster/cluster.ts";

export interface RegistrationOptions {
  readonly names: ResourceNames;
  /** Name of both configurations, which the installation creates. */
  readonly name: string;
  /** Address of the webhooks for API servers: a Service, or a URL in tests. */
  readonly target:
    | { readonly service: { readonly namespace: string; readonly name: string; readonly port: number } }
    | { readonly url: string };
  /** PEM. */
  readonly bundle: string;
  /** User name of the operator's service account. */
  readonly operatorUser: string;
  /** Namespace of Millpond's own pods, which may mount Millpond's own files. */
  readonly namespace: string;
  /** Whether API servers have ResourceClaims. */
  readonly hasResourceClaims: boolean;
  /** Limits that request devices of the pool by other classes than its own. */
  readonly classLimits: readonly string[];
  /** Names of all classes that have only devices of the pool. */
  readonly classes: readonly string[];
  /** Whether API servers support match conditions (Kubernetes ≥ 1.28). */
  readonly hasMatchConditions: boolean;
}

interface Webhook {
  readonly name: string;
  readonly rules: readonly unknown[];
  readonly [member: string]: unknown;
}

/** Returns the webhooks of both configurations. A pure function. */
export function toWebhooks(options: RegistrationOptions): {
  readonly mutating: readonly Webhook[];
  readonly validating: readonly Webhook[];
} {
  const { names, target, bundle, hasMatchConditions, hasResourceClaims, namespace, operatorUser } = options;
  const { managed } = keysOf(names);
  const clientConfig = (path: string) => ({
    caBundle: Buffer.from(bundle).toString("base64"),
    ...("url" in target ? { url: `${target.url}${path}` } : { service: { ...target.service, path } }),
  });
  const common = {
    admissionReviewVersions: ["v1"],
    sideEffects: "None",
    // A pod that requests the pool and is not prepared would run without vGPUs, or not at all.
    failurePolicy: "Fail",
    timeoutSeconds: 5,
    matchPolicy: "Equivalent",
    // No namespace and no object can be exempted by a label.
    namespaceSelector: {},
    objectSelector: {},
  };
  const labelled = { matchExpressions: [{ key: managed, operator: "Exists" }] };
  const rule = (operations: readonly string[], ...resources: readonly string[]) => ({
    apiGroups: [""],
    apiVersions: ["v1"],
    resources: resources.length === 0 ? ["pods"] : resources,
    scope: "Namespaced",
    operations,
  });
  // Without match conditions only a webhook that sees all pods finds those that request the pool. It fails open: a pod
  // that it has missed finds no pool, and the scheduler extender assigns it no node.
  const anyPod = {
    ...common,
    failurePolicy: "Ignore",
    timeoutSeconds: 2,
    name: `any-pods.${names.domain}`,
    rules: [rule(["CREATE"])],
    objectSelector: { matchExpressions: [{ key: managed, operator: "DoesNotExist" }] },
    namespaceSelector: {
      matchExpressions: [
        { key: "kubernetes.io/metadata.name", operator: "NotIn", values: ["kube-system", namespace] },
      ],
    },
  };
  const matching = (name: string, expression: string) =>
    hasMatchConditions ? { matchConditions: [{ name, expression }] } : { objectSelector: labelled };
  const asks = asksExpression(names);
  const byClass = (list: string): string => asksIn(`object.spec.${list}`, options.classLimits);
  const askByClass =
    options.classLimits.length === 0
      ? ""
      : `${byClass("containers")} || (has(object.spec.initContainers) && ${byClass("initContainers")})`;
  // The cluster's own components must not wait while no operator answers.
  const byOthers = [
    `!(request.userInfo.username in ${JSON.stringify([operatorUser, "system:kube-scheduler", "system:kube-controller-manager"])})`,
    `!request.userInfo.username.startsWith("system:serviceaccount:kube-system:")`,
  ].join(" && ");
  const touches = `request.namespace != ${JSON.stringify(namespace)} && (${touchesExpression(names.domain)})`;
  // On a ResourceClaim that the cluster itself creates, our keys come from a template that a user has written.
  const byOthersOrNew = `(request.operation == "CREATE" ? request.userInfo.username != ${JSON.stringify(operatorUser)} : ${byOthers})`;
  const claimRule = {
    apiGroups: ["resource.k8s.io"],
    apiVersions: ["v1"],
    resources: ["resourceclaims", "resourceclaimtemplates"],
    scope: "Namespaced",
    operations: ["CREATE", "UPDATE"],
  };
  return {
    mutating: [
      {
        ...common,
        ...matching("asks-for-the-pool", asks),
        name: `pods.${names.domain}`,
        clientConfig: clientConfig("/mutate"),
        rules: [rule(["CREATE"])],
        reinvocationPolicy: "Never",
      },
      ...(hasMatchConditions
        ? []
        : [{ ...anyPod, clientConfig: clientConfig("/mutate"), reinvocationPolicy: "Never" }]),
      // A LimitRange, or `kubectl apply` of the same manifest, gives a prepared pod its limits again.
      {
        ...common,
        ...(hasMatchConditions
          ? { matchConditions: [{ name: "may-have-its-limits-again", expression: againExpression() }] }
          : {}),
        objectSelector: labelled,
        name: `again.${names.domain}`,
        clientConfig: clientConfig("/mutate-again"),
        rules: [rule(["CREATE", "UPDATE"])],
        reinvocationPolicy: "IfNeeded",
      },
      // ResourceClaims may be for other drivers. Without this webhook's patch a program finds no pool, and so no GPU.
      ...(hasResourceClaims && hasMatchConditions
        ? [
            {
              ...common,
              ...matching(
                "has-resource-claims",
                `(has(object.spec.resourceClaims)${askByClass === "" ? "" : ` || ${askByClass}`}) && !(${asks})`,
              ),
              failurePolicy: "Ignore",
              name: `resource-claims.${names.domain}`,
              clientConfig: clientConfig("/mutate-claims"),
              rules: [rule(["CREATE"])],
              reinvocationPolicy: "Never",
            },
          ]
        : []),
    ],
    validating: [
      {
        ...common,
        ...matching("asks-for-the-pool-or-shows-it", `${asks} || (${touches})`),
        name: `pods.${names.domain}`,
        clientConfig: clientConfig("/validate"),
        rules: [rule(["CREATE"])],
      },
      ...(hasMatchConditions ? [] : [{ ...anyPod, clientConfig: clientConfig("/validate") }]),
      {
        ...common,
        ...(hasMatchConditions
          ? {
              matchConditions: [
                { name: "by-others", expression: byOthers },
                { name: "changes-what-may-be-the-pools", expression: changesExpression },
              ],
            }
          : {}),
        objectSelector: labelled,
        name: `changes.${names.domain}`,
        clientConfig: clientConfig("/validate"),
        // A status update can change annotations and labels, too. Without match conditions every kubelet would wait.
        rules: [hasMatchConditions ? rule(["UPDATE"], "pods", "pods/status") : rule(["UPDATE"])],
      },
      // `kubectl debug` adds containers to existing pods through a separate resource.
      {
        ...common,
        ...matching(
          "debugs-with-what-is-the-pools",
          `has(object.spec.ephemeralContainers) && ((${asksIn("object.spec.ephemeralContainers", allResourceNames(names))}) || (${readsTokenExpression("object.spec.ephemeralContainers")}))`,
        ),
        name: `debugging.${names.domain}`,
        clientConfig: clientConfig("/validate"),
        rules: [rule(["UPDATE"], "pods/ephemeralcontainers")],
      },
      // Without match conditions every ResourceClaim of the cluster would wait for this webhook.
      ...(hasResourceClaims && hasMatchConditions
        ? [
            {
              ...common,
              ...matching("says-that-it-is-the-pools", `${byOthersOrNew} && (${claimsExpression(names)})`),
              name: `claims.${names.domain}`,
              clientConfig: clientConfig("/validate"),
              rules: [claimRule],
            },
            {
              ...common,
              ...matching(
                "requests-devices-of-the-pool",
                `${byOthers} && (${requestsExpression(names, options.classes)})`,
              ),
              name: `requests.${names.domain}`,
              clientConfig: clientConfig("/validate"),
              rules: [{ ...claimRule, operations: ["CREATE"] }],
            },
          ]
        : []),
    ],
  };
}

/** CEL: whether a pod requests the pool, or has one of our keys. */
export function asksExpression(names: ResourceNames): string {
  const { managed } = keysOf(names);
  return [
    asksIn("object.spec.containers", allResourceNames(names)),
    `(has(object.spec.initContainers) && ${asksIn("object.spec.initContainers", allResourceNames(names))})`,
    `(has(object.metadata.labels) && ${JSON.stringify(managed)} in object.metadata.labels)`,
    `(has(object.metadata.annotations) && object.metadata.annotations.exists(k, k.startsWith(${JSON.stringify(`${names.domain}/`)})))`,
  ].join(" || ");
}

/**
 * CEL: whether a pod is created, or its containers change. An API server asks again, after a LimitRange, only webhooks that it has asked
 * before.
 */
function againExpression(): string {
  const of = (object: string, list: string): string =>
    `(has(${object}.spec.${list}) ? ${object}.spec.${list} : [])`;
  const changes = ["containers", "initContainers"].map(
    (list) => `${of("object", list)} != ${of("oldObject", list)}`,
  );
  return ['request.operation == "CREATE"', ...changes].join(" || ");
}

/** CEL: whether one of the containers of a list has a limit or request of one of the resources. */
function asksIn(containers: string, resources: readonly string[]): string {
  const list = JSON.stringify(resources);
  const among = (member: "limits" | "requests"): string =>
    `(has(c.resources.${member}) && c.resources.${member}.exists(k, k in ${list}))`;
  return `${containers}.exists(c, has(c.resources) && (${among("limits")} || ${among("requests")}))`;
}

/** CEL: whether a change of a pod affects its labels, annotations or gates. Other changes do not concern us. */
const changesExpression = ["metadata.labels", "metadata.annotations", "spec.schedulingGates"]
  .map((path) => {
    const none = path.startsWith("spec") ? "[]" : "{}";
    const of = (object: string): string => `(has(${object}.${path}) ? ${object}.${path} : ${none})`;
    return `${of("object")} != ${of("oldObject")}`;
  })
  .join(" || ");

/** CEL: whether the old or new metadata of an object, or of a template in it, has one of our keys. */
function claimsExpression({ domain }: ResourceNames): string {
  const has = (object: string, list: string): string =>
    `(has(${object}.metadata.${list}) && ${object}.metadata.${list}.exists(k, k.startsWith(${JSON.stringify(`${domain}/`)})))`;
  const any = (object: string): string => `${has(object, "labels")} || ${has(object, "annotations")}`;
  const template = `(has(object.spec) && has(object.spec.metadata) && (${any("object.spec")}))`;
  return `${any("object")} || ${template} || (oldObject != null && (${any("oldObject")}))`;
}

/** CEL: whether a ResourceClaim or a template requests devices of such a class, or may select them. */
function requestsExpression({ domain }: ResourceNames, classes: readonly string[]): string {
  const list = JSON.stringify([...new Set([domain, ...classes])].sort());
  const isOurs = (asked: string): string =>
    `${asked}.deviceClassName in ${list} || (has(${asked}.selectors) && ${asked}.selectors.exists(s, has(s.cel) && s.cel.expression.contains(${JSON.stringify(domain)})))`;
  const among = (devices: string): string =>
    `(has(${devices}.requests) && ${devices}.requests.exists(r, (has(r.exactly) && (${isOurs("r.exactly")})) || (has(r.firstAvailable) && r.firstAvailable.exists(a, ${isOurs("a")}))))`;
  return [
    `(has(object.spec.devices) && ${among("object.spec.devices")})`,
    `(has(object.spec.spec) && has(object.spec.spec.devices) && ${among("object.spec.spec.devices")})`,
  ].join(" || ");
}

/** Writes both configurations if they differ. */
export async function register(cluster: Cluster, options: RegistrationOptions): Promise<void> {
  const { mutating, validating } = toWebhooks(options);
  const { name } = options;
  const before = await cluster.admission.readMutatingWebhookConfiguration({ name });
  // Written only when it changes: every write is an event for all watchers.
  if (!describes(before.webhooks, mutating)) {
    await cluster.admission.patchMutatingWebhookConfiguration(
      { name, body: { webhooks: mutating } },
      asMergePatch,
    );
  }
  const other = await cluster.admission.readValidatingWebhookConfiguration({ name });
  if (!describes(other.webhooks, validating)) {
    await cluster.admission.patchValidatingWebhookConfiguration(
      { name, body: { webhooks: validating } },
      asMergePatch,
    );
  }
}

/** Whether existing webhooks are the desired ones, apart from members for which API servers have set a default. */
export function describes(there: readonly unknown[] | undefined, wanted: readonly Webhook[]): boolean {
  return isAs(JSON.parse(JSON.stringify(there ?? [])), JSON.parse(JSON.stringify(wanted)));
}

/** Whether all that is desired is there. Of an object that is to be empty, everything is desired. */
function isAs(there: unknown, wanted: unknown): boolean {
  if (typeof wanted !== "object" || wanted === null) return there === wanted;
  if (typeof there !== "object" || there === null) return false;
  const [a, b] = [there as Record<string, unknown>, wanted as Record<string, unknown>];
  const isWhole = Array.isArray(wanted) || Object.keys(b).length === 0;
  if (isWhole && Object.keys(a).length !== Object.keys(b).length) return false;
  return Object.keys(b).every((key) => isAs(a[key], b[key]));
}
