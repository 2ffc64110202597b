// SPDX-License-Identifier: Apache-2.0

// AdmissionReviews: the API server's requests and the responses to them.

import { errorCodeOf, millpondError } from "@millpond/api";
import type { ResourceV1ResourceClaim, V1Pod } from "@kubernetes/client-node";
import { readPodRequest } from "../request/pod-request.ts";
import { checkAgainstPool, type PoolLimits } from "./pool-limits.ts";
import { keysOf, type ResourceNames } from "../request/resource-names.ts";
import type { Tenancy } from "../request/tenancy.ts";
import type { UserClaim } from "../request/user-claims.ts";
import { refuseForeignClaims } from "./guarded.ts";
import { mutateAgain } from "./mutate-again.ts";
import { mutateUserClaims } from "./mutate-user-claims.ts";
import { type InjectionPolicy, isFollowed, mutatePod } from "./mutate-pod.ts";
import { type ClaimChecks, validateRequests } from "./validate-claims.ts";
import {
  validateChange,
  validateClaimMetadata,
  validateCreation,
  validateDebugging,
  validateTemplate,
} from "./validate-pod.ts";

export interface AdmissionPolicy extends InjectionPolicy {
  /** Namespace of Millpond's own pods, which may mount Millpond's own files. */
  readonly systemNamespace: string;
  /** User name of the operator's service account. */
  readonly operatorUser: string;
  /** The capacity and queues of the pool; undefined: unknown at present, so they are not checked. */
  readonly limits: () => PoolLimits | undefined;
  /** Which ResourceClaims of a pod, written by users, are for the pool. */
  readonly userClaimsOf: (namespace: string, pod: V1Pod) => Promise<readonly UserClaim[]>;
  /** Whether a class of this name has only devices of the pool. */
  readonly isClassOfPool: (name: string) => boolean;
  /** Whether the operator has the right to create pods, which depends on the installation. */
  readonly canMakePods: () => Promise<boolean>;
  /** @throws MILLPOND_E_FORBIDDEN if the namespace may not use the pool */
  readonly tenancyOf: (namespace: string) => Promise<Tenancy>;
}

interface AdmissionRequest {
  readonly uid: string;
  readonly operation: string;
  /** `pods`, and other resources for which the webhooks are registered. */
  readonly resource: string;
  /** `ephemeralcontainers`, or empty. */
  readonly subresource: string;
  readonly namespace: string;
  readonly user: string;
  readonly object: V1Pod;
  readonly oldObject: V1Pod;
}

export interface AdmissionReview {
  readonly apiVersion: "admission.k8s.io/v1";
  readonly kind: "AdmissionReview";
  readonly response: {
    readonly uid: string;
    readonly allowed: boolean;
    readonly patchType?: "JSONPatch";
    readonly patch?: string;
    readonly status?: { readonly code: number; readonly reason: string; readonly message: string };
  };
}

/**
 * Reads a review.
 *
 * @throws MILLPOND_E_INVALID
 */
function parseReview(body: unknown): AdmissionRequest {
  const review = body as { readonly apiVersion?: unknown; readonly request?: Record<string, unknown> } | null;
  const request = review?.request;
  if (review?.apiVersion !== "admission.k8s.io/v1" || typeof request?.["uid"] !== "string") {
    throw millpondError(
      "MILLPOND_E_INVALID",
      "the request is not an AdmissionReview of admission.k8s.io/v1",
      {
        remedy: "Only an API server calls this.",
      },
    );
  }
  const resource = request["resource"] as { readonly resource?: unknown } | undefined;
  const user = request["userInfo"] as { readonly username?: unknown } | undefined;
  return {
    uid: request["uid"],
    operation: String(request["operation"]),
    resource: typeof resource?.resource === "string" ? resource.resource : "pods",
    subresource: typeof request["subResource"] === "string" ? request["subResource"] : "",
    namespace: typeof request["namespace"] === "string" ? request["namespace"] : "",
    user: typeof user?.username === "string" ? user.username : "",
    object: request["object"] ?? {},
    oldObject: request["oldObject"] ?? {},
  };
}

/**
 * Answers a review of the mutating webhook.
 *
 * @throws MILLPOND_E_INVALID if the body is not a review
 */
export async function reviewMutation(policy: AdmissionPolicy, body: unknown): Promise<AdmissionReview> {
  const request = parseReview(body);
  return await answerLater(request.uid, async () => {
    if (request.operation !== "CREATE") return [];
    const own = request.user === policy.operatorUser ? [keysOf(policy.names).follows] : [];
    const asked = readPodRequest(policy.names, request.object, own);
    if (asked !== undefined) {
      checkAgainstPool(asked, policy.limits(), await policy.tenancyOf(request.namespace));
      if (isFollowed(request.object, asked) && !(await policy.canMakePods()))
        throw cannotFollow(policy.names);
    }
    return mutatePod(policy, request.object, { own });
  });
}

/**
 * Answers a review of a prepared pod to which its limits have come back. Such a pod was accepted by the mutating webhook in the same
 * request, or before.
 *
 * @throws MILLPOND_E_INVALID if the body is not a review
 */
export function reviewAgain(policy: AdmissionPolicy, body: unknown): AdmissionReview {
  const { uid, operation, object, oldObject } = parseReview(body);
  return answer(uid, () => mutateAgain(policy, object, operation === "CREATE" ? undefined : oldObject));
}

/**
 * Answers a review of the webhook for ResourceClaims that users write.
 *
 * @throws MILLPOND_E_INVALID if the body is not a review
 */
export async function reviewUserClaims(policy: AdmissionPolicy, body: unknown): Promise<AdmissionReview> {
  const { uid, operation, namespace, object } = parseReview(body);
  const isNew =
    operation === "CREATE" && object.metadata?.annotations?.[keysOf(policy.names).request] === undefined;
  return await answerLater(uid, async () => {
    if (!isNew) return [];
    const claims = await policy.userClaimsOf(namespace, object);
    refuseForeignClaims(object, undefined);
    if (claims.length > 0) await policy.tenancyOf(namespace);
    if (claims.length > 0 && readPodRequest(policy.names, object) !== undefined) {
      throw millpondError("MILLPOND_E_INVALID", "the pod asks for the pool by limits and by ResourceClaims", {
        remedy: "Use one of them.",
      });
    }
    return mutateUserClaims(policy.names, object, claims);
  });
}

/**
 * Answers a review of the validating webhook.
 *
 * @throws MILLPOND_E_INVALID if the body is not a review
 */
export function reviewValidation(policy: AdmissionPolicy, body: unknown): AdmissionReview {
  const request = parseReview(body);
  return answer(request.uid, () => {
    if (request.resource !== "pods") {
      if (request.user === policy.operatorUser) return [];
      validateClaimMetadata(policy.names, request.oldObject, request.object);
      if (request.resource === "resourceclaimtemplates") validateTemplate(policy.names, request.object);
      // The requests cannot change later.
      if (request.operation === "CREATE") validateRequests(claimChecks(policy), devicesOf(request));
    } else if (request.subresource === "ephemeralcontainers") {
      validateDebugging(policy.names, request.object);
    } else if (request.operation === "CREATE") {
      const isOwn = request.namespace === policy.systemNamespace;
      validateCreation(policy.names, policy.allocation, request.object, { isOwn });
    } else if (request.operation === "UPDATE") {
      validateChange(policy.names, request.oldObject, request.object, request.user === policy.operatorUser);
    }
    return [];
  });
}

function claimChecks({ names, isClassOfPool, limits }: AdmissionPolicy): ClaimChecks {
  return { domain: names.domain, isOurs: isClassOfPool, limits: limits() };
}

/** What a ResourceClaim, or the claims of a ResourceClaimTemplate, requests. */
function devicesOf({ resource, object }: AdmissionRequest): ResourceV1ResourceClaim["spec"]["devices"] {
  const { spec } = object as { readonly spec?: { readonly spec?: unknown } };
  const own = resource === "resourceclaimtemplates" ? spec?.spec : spec;
  return (own as ResourceV1ResourceClaim["spec"] | undefined)?.devices;
}

function cannotFollow(names: ResourceNames): Error {
  return millpondError(
    "MILLPOND_E_FORBIDDEN",
    `the pod has the annotation ${keysOf(names).requeue}, and Millpond's operator may not make pods in this cluster`,
    {
      remedy:
        "Make the pod by a Job, or have an administrator apply kubernetes/deploy/requeue (Helm: operator.requeue=true).",
    },
  );
}

function answer(uid: string, decide: () => readonly unknown[]): AdmissionReview {
  try {
    return allow(uid, decide());
  } catch (error) {
    return refuse(uid, error);
  }
}

async function answerLater(uid: string, decide: () => Promise<readonly unknown[]>): Promise<AdmissionReview> {
  try {
    return allow(uid, await decide());
  } catch (error) {
    return refuse(uid, error);
  }
}

const kind = { apiVersion: "admission.k8s.io/v1", kind: "AdmissionReview" } as const;

function allow(uid: string, patch: readonly unknown[]): AdmissionReview {
  if (patch.length === 0) return { ...kind, response: { uid, allowed: true } };
  const encoded = Buffer.from(JSON.stringify(patch)).toString("base64");
  return { ...kind, response: { uid, allowed: true, patchType: "JSONPatch", patch: encoded } };
}

/** @throws the error itself, unless it is meant for a user */
function refuse(uid: string, error: unknown): AdmissionReview {
  const code = errorCodeOf(error);
  if (code === undefined || !(error instanceof Error)) throw error;
  const message = "rawMessage" in error ? String(error.rawMessage) : error.message;
  const isForbidden = code === "MILLPOND_E_FORBIDDEN";
  return {
    ...kind,
    response: {
      uid,
      allowed: false,
      status: { code: isForbidden ? 403 : 422, reason: isForbidden ? "Forbidden" : "Invalid", message },
    },
  };
}
