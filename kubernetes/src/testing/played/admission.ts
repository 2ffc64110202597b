// SPDX-License-Identifier: Apache-2.0

// The admission of a simulated API server: calls the registered webhooks over TLS, as a real one does.

import { randomUUID } from "node:crypto";
import { Agent, request as httpsRequest } from "node:https";
import { holds } from "./cel.ts";
import { type ObjectStore, Refused } from "./object-store.ts";
import { applyPatch, type Json } from "./patches.ts";

interface Webhook {
  readonly name: string;
  readonly clientConfig: { readonly url: string; readonly caBundle: string };
  readonly failurePolicy: "Fail" | "Ignore";
  readonly rules: readonly {
    readonly apiGroups: readonly string[];
    readonly resources: readonly string[];
    readonly operations: readonly string[];
  }[];
  readonly objectSelector?: {
    readonly matchExpressions?: readonly { readonly key: string; readonly operator: string }[];
  };
  readonly matchConditions?: readonly { readonly expression: string }[];
}

export interface AdmissionAttempt {
  /** `group/resource`, or `group/resource/subresource`. */
  readonly kind: string;
  readonly operation: "CREATE" | "UPDATE";
  readonly namespace: string;
  readonly user: string;
  readonly object: Json;
  readonly oldObject: Json | null;
}

const configurations = {
  mutating: "admissionregistration.k8s.io/mutatingwebhookconfigurations",
  validating: "admissionregistration.k8s.io/validatingwebhookconfigurations",
} as const;

/**
 * Returns the object with the webhooks' changes.
 *
 * @throws Refused if one of them refuses it, or must answer and does not
 */
export async function admit(store: ObjectStore, attempt: AdmissionAttempt): Promise<Json> {
  let { object } = attempt;
  for (const phase of ["mutating", "validating"] as const) {
    const webhooks = store
      .list(configurations[phase])
      .flatMap((configuration) => (configuration["webhooks"] ?? []) as Webhook[]);
    for (const webhook of webhooks) {
      if (!matches(webhook, { ...attempt, object })) continue;
      object = await ask(webhook, { ...attempt, object });
    }
  }
  return object;
}

function matches(webhook: Webhook, attempt: AdmissionAttempt): boolean {
  const { kind, operation, user, namespace, object, oldObject } = attempt;
  const [group = "", ...resource] = kind.split("/");
  const isRule = webhook.rules.some(
    ({ apiGroups, resources, operations }) =>
      apiGroups.includes(group) && resources.includes(resource.join("/")) && operations.includes(operation),
  );
  const keys = (webhook.objectSelector?.matchExpressions ?? []).filter(
    ({ operator }) => operator === "Exists",
  );
  const isSelected = [object, oldObject].some((each) => {
    const { labels = {} } = (each?.["metadata"] ?? {}) as { labels?: object };
    return each !== null && keys.every(({ key }) => Object.hasOwn(labels, key));
  });
  if (!isRule || !isSelected) return false;
  const request = { operation, namespace, userInfo: { username: user } };
  try {
    return (webhook.matchConditions ?? []).every(({ expression }) =>
      holds(expression, { object, oldObject, request }),
    );
  } catch (error) {
    throw new Refused(403, `the condition of ${webhook.name} cannot be decided: ${String(error)}`);
  }
}

async function ask(webhook: Webhook, attempt: AdmissionAttempt): Promise<Json> {
  const { kind, operation, namespace, user, object, oldObject } = attempt;
  const [group, resource, subResource] = kind.split("/");
  const request = {
    uid: randomUUID(),
    operation,
    namespace,
    resource: { group, version: "v1", resource },
    ...(subResource === undefined ? {} : { subResource }),
    userInfo: { username: user },
    object,
    oldObject,
  };
  const review = { apiVersion: "admission.k8s.io/v1", kind: "AdmissionReview", request };
  let answer: string;
  try {
    answer = await post(webhook.clientConfig, JSON.stringify(review));
  } catch (error) {
    if (webhook.failurePolicy === "Ignore") return object;
    throw new Refused(500, `failed calling webhook "${webhook.name}": ${String(error)}`);
  }
  const { response } = JSON.parse(answer) as {
    response: {
      allowed: boolean;
      patch?: string;
      status?: { code: number; message: string };
    };
  };
  if (!response.allowed)
    throw new Refused(
      response.status?.code ?? 400,
      `admission webhook "${webhook.name}" denied the request: ${response.status?.message}`,
    );
  if (response.patch === undefined) return object;
  const patch: unknown = JSON.parse(Buffer.from(response.patch, "base64").toString("utf8"));
  return applyPatch("application/json-patch+json", object, patch);
}

/** A real API server reuses connections, too. */
const agent = new Agent({ keepAlive: true, maxFreeSockets: 25 });

function post({ url, caBundle }: Webhook["clientConfig"], body: string): Promise<string> {
  return new Promise((resolve, reject) => {
    const options = { method: "POST", ca: Buffer.from(caBundle, "base64"), agent, timeout: 5000 };
    const call = httpsRequest(url, options, (response) => {
      let text = "";
      response.setEncoding("utf8").on("data", (part: string) => (text += part));
      response.on("end", () => {
        if (response.statusCode === 200) resolve(text);
        else reject(new Error(`status ${response.statusCode}: ${text}`));
      });
    });
    call.on("timeout", () => call.destroy(new Error("no answer within 5 s")));
    call.on("error", reject).end(body);
  });
}
