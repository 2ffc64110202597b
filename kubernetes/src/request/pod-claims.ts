// SPDX-License-Identifier: Apache-2.0

// Converts pods to claims and back: pure functions.

import type { MessageInitShape } from "@bufbuild/protobuf";
import { type ClaimSchema, type ClaimValues, millpondError, toClaimMessage } from "@millpond/api";
import type { V1Pod } from "@kubernetes/client-node";
import { createHash } from "node:crypto";
import type { PodRequest } from "./pod-request.ts";

/** Owner of the pod, and the tenant that it requests. */
export interface PodIdentity {
  readonly namespace: string;
  readonly name: string;
  readonly uid: string;
  /** The tenant of its namespace, which is charged. */
  readonly tenant: string;
  /** The queue of a pod that names none. */
  readonly queue: string;
  /** -1000 to 1000. */
  readonly priority: number;
  /** Key that the pods of a gang share: the UID of their job, and its attempt. Absent: it belongs to no job. */
  readonly group?: string | undefined;
  /** The gang of all pods of its Job or JobSet; absent: the pod does not request one. */
  readonly wholeGang?: WholeGang | undefined;
}

/** The gang of a Job, of a JobSet, or of the part of a JobSet that starts at one time. */
export interface WholeGang {
  readonly name: string;
  /** The number of claims of all its pods; 1: the pod is bound alone. */
  readonly claims: number;
}

/** Whether claims with such a name belong to pods. */
const claimNamePattern =
  /^pod-([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})(?:-([1-9]|1[0-5]))?$/;

/** The key that the pods of one Job, or of one attempt of a JobSet, share; undefined: the pod belongs to neither. */
export function groupOf({ metadata }: Pick<V1Pod, "metadata">): string | undefined {
  const { labels = {}, ownerReferences = [] } = metadata ?? {};
  const jobSet = labels["jobset.sigs.k8s.io/jobset-uid"] ?? labels["jobset.sigs.k8s.io/jobset-name"];
  // A JobSet that failed creates all its Jobs again, and pods of both attempts may exist.
  if (jobSet !== undefined) return `${jobSet}/${labels["jobset.sigs.k8s.io/restart-attempt"] ?? "0"}`;
  return ownerReferences.find(({ controller }) => controller === true)?.uid;
}

/** Name of a pod's claim, derived from its UID, which no user chooses. The name of the first has no number. */
export function claimName(uid: string, index: number): string {
  return index === 0 ? `pod-${uid}` : `pod-${uid}-${index}`;
}

/** The pod of a claim; undefined: it belongs to none. */
export function podOfClaim(name: string): { readonly uid: string; readonly index: number } | undefined {
  const match = claimNamePattern.exec(name);
  return match === null ? undefined : { uid: match[1] ?? "", index: Number(match[2] ?? 0) };
}

/** Label of the claims that a cluster's operator manages; its value is the cluster's name. */
export const clusterLabel = "kubernetes/cluster";

/** Seconds for which a claim outlives its operator; the operator renews the lease three times within that time. */
export const leaseSeconds = 300;

/**
 * The claims that a pod needs, in the order of its slices.
 *
 * @throws MILLPOND_E_INVALID for a gang of more members than there can be
 */
export function toClaims(
  request: PodRequest,
  pod: PodIdentity,
  cluster: string,
): MessageInitShape<typeof ClaimSchema>[] {
  const values = withGang(request, pod);
  return request.slices.map(({ slice, containers }, index) => ({
    ...toClaimMessage({ ...values, ...slice, queue: values.queue ?? pod.queue, locality: "any" }),
    name: claimName(pod.uid, index),
    owner: `pod ${pod.namespace}/${pod.name} ${containers.join(",")}`.slice(0, maxOwnerLength),
    tenant: pod.tenant,
    priority: pod.priority,
    labels: {
      [clusterLabel]: cluster,
      "kubernetes/namespace": pod.namespace,
      "kubernetes/pod": labelValue(pod.name),
    },
    leaseSeconds,
  }));
}

/** The most characters of a claim's owner. */
export const maxOwnerLength = 256;

/**
 * Reads the object for which an operator has created a claim; undefined: the claim is of another kind.
 *
 * @returns `name` is undefined if it was too long for the claim's owner.
 */
export function parseOwner(
  kind: "pod" | "resourceclaim",
  owner: string,
): { readonly namespace: string; readonly name: string | undefined } | undefined {
  const [, found, namespace, name] = /^(\S+) ([^/ ]+)\/(\S+)/.exec(owner) ?? [];
  if (found !== kind || namespace === undefined) return undefined;
  const isCut = owner.length >= maxOwnerLength && owner.endsWith(name ?? "");
  return { namespace, name: isCut ? undefined : name };
}

/** Names of gangs are unique in the pool, and pods of one namespace must not join those of another. */
function withGang({ slices, options }: PodRequest, pod: PodIdentity): ClaimValues {
  const { gang, gangSize, ...values } = options;
  if (pod.wholeGang !== undefined) {
    return pod.wholeGang.claims < 2 ? values : { ...values, ...toGang(pod.wholeGang) };
  }
  if (gang === undefined && gangSize === undefined) {
    if (slices.length === 1) return values;
    return { ...values, gang: `pod-${pod.uid}`, gangSize: slices.length };
  }
  if (gangSize === undefined) {
    throw millpondError(
      "MILLPOND_E_INVALID",
      `the pod is of the gang ${gang} and does not say of how many pods`,
      {
        remedy: "Add the annotation gang-size with the number of its pods.",
      },
    );
  }
  const group = gang ?? pod.group;
  if (group === undefined) {
    throw millpondError("MILLPOND_E_INVALID", "the pod has a gang-size, and neither a gang nor a job", {
      remedy: "Name the gang by the annotation gang, or make the pod by a Job or JobSet.",
    });
  }
  return { ...values, ...toGang({ name: gangName(pod.namespace, group), claims: gangSize * slices.length }) };
}

/** @throws MILLPOND_E_INVALID for more claims than a gang can have */
function toGang({ name, claims }: WholeGang) {
  if (claims > 256) {
    throw millpondError(
      "MILLPOND_E_INVALID",
      `the pods of the gang have ${claims} claims together, which is more than 256`,
      { remedy: "Use fewer pods, or fewer containers that request vGPUs." },
    );
  }
  return { gang: name, gangSize: claims };
}

/** Name of the gang of a group of pods. */
export function gangName(namespace: string, group: string): string {
  return `pods-${createHash("sha256").update(`${namespace}/${group}`).digest("hex").slice(0, 20)}`;
}

/** The longest prefix of a name that fits into a label. */
function labelValue(name: string): string {
  return name.slice(0, 63).replace(/[-.]+$/, "");
}

/** A PriorityClass may have any value; claims have priorities from -1000 to 1000, and the order is preserved. */
export function toClaimPriority(priority: number | undefined): number {
  return Math.max(-1000, Math.min(1000, Math.trunc(priority ?? 0)));
}
