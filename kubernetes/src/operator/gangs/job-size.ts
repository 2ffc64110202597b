// SPDX-License-Identifier: Apache-2.0

// How many claims the pods of a Job or of a JobSet have together: the size of their gang if its pods' annotation is
// `all`.

import type { V1JobSpec, V1Pod } from "@kubernetes/client-node";
import { millpondError, quote } from "@millpond/api";
import { type Cluster, unlessStatus } from "../../cluster/cluster.ts";
import { readPodRequest } from "../../request/pod-request.ts";
import type { ResourceNames } from "../../request/resource-names.ts";

export interface JobLike {
  readonly spec?: Partial<V1JobSpec> | undefined;
  readonly status?: { readonly succeeded?: number | undefined } | undefined;
}

interface ReplicatedJob {
  readonly name?: string;
  readonly replicas?: number;
  readonly template?: JobLike;
  readonly dependsOn?: readonly unknown[];
}

export interface JobSetLike {
  readonly spec?: {
    readonly startupPolicy?: { readonly startupPolicyOrder?: string };
    readonly replicatedJobs?: readonly ReplicatedJob[];
  };
  readonly status?: {
    readonly replicatedJobsStatus?: readonly { readonly name?: string; readonly succeeded?: number }[];
  };
}

export interface JobGang {
  /** The number of claims of all its pods together. */
  readonly size: number;
  /** The part of the JobSet, if its parts start one after the other; undefined: the gang is the whole JobSet. */
  readonly part?: string;
}

const jobSetName = "jobset.sigs.k8s.io/jobset-name";
const replicatedJobName = "jobset.sigs.k8s.io/replicatedjob-name";

/**
 * Reads the gang of a pod.
 *
 * @throws MILLPOND_E_INVALID if the pod belongs to neither, MILLPOND_E_NOT_FOUND if its owner is gone
 */
export async function readJobGang(cluster: Cluster, names: ResourceNames, pod: V1Pod): Promise<JobGang> {
  const { namespace = "", labels = {} } = pod.metadata ?? {};
  const kind = { namespace, group: "batch", version: "v1", plural: "jobs" };
  const jobSet = labels[jobSetName];
  if (jobSet !== undefined) {
    const at = { ...kind, group: "jobset.x-k8s.io", version: "v1alpha2", plural: "jobsets", name: jobSet };
    const there = found(`JobSet ${jobSet}`, await readObject<JobSetLike>(cluster, at));
    return gangOfJobSet(names, there, labels[replicatedJobName] ?? "");
  }
  const owner = pod.metadata?.ownerReferences?.find(({ controller }) => controller === true);
  if (owner?.kind !== "Job") {
    throw millpondError(
      "MILLPOND_E_INVALID",
      owner === undefined
        ? "the pod's gang-size is all, and no Job has made the pod"
        : `the pod's gang-size is all, and the size of a ${owner.kind} is not known`,
      { remedy: "Add the annotation gang-size with the number of its pods." },
    );
  }
  const job = found(`Job ${owner.name}`, await readObject<JobLike>(cluster, { ...kind, name: owner.name }));
  return { size: claimsOfJob(names, job) };
}

/** The number of claims of the pods that a Job runs at a time, from now on. A pure function. */
export function claimsOfJob(names: ResourceNames, { spec = {}, status }: JobLike): number {
  const { parallelism = 1, completions, template } = spec;
  const left = completions === undefined ? parallelism : completions - (status?.succeeded ?? 0);
  const request = template === undefined ? undefined : readPodRequest(names, template);
  return request?.isWholeJob === true ? Math.max(0, Math.min(parallelism, left)) * request.slices.length : 0;
}

/**
 * The gang of a pod of a JobSet: all pods whose template has the annotation `all`. Jobs that start only after others of
 * the JobSet are ready or complete are separate gangs; otherwise none would ever start. A pure function.
 *
 * @param own The pod's replicated job.
 */
export function gangOfJobSet(names: ResourceNames, { spec, status }: JobSetLike, own: string): JobGang {
  const { replicatedJobs: jobs = [], startupPolicy } = spec ?? {};
  const startsLater = ({ dependsOn = [] }: ReplicatedJob): boolean => dependsOn.length > 0;
  const isOrdered = startupPolicy?.startupPolicyOrder === "InOrder";
  const isAlone = isOrdered || jobs.some((job) => job.name === own && startsLater(job));
  const members = jobs.filter((job) => (isAlone ? job.name === own : !startsLater(job)));
  const succeeded = (name: string | undefined): number =>
    status?.replicatedJobsStatus?.find((each) => each.name === name)?.succeeded ?? 0;
  const size = members
    .map(
      ({ name, replicas = 1, template = {} }) =>
        Math.max(0, replicas - succeeded(name)) * claimsOfJob(names, template),
    )
    .reduce((sum, each) => sum + each, 0);
  return isAlone ? { size, part: own } : { size };
}

type At = Parameters<Cluster["objects"]["getNamespacedCustomObject"]>[0];

async function readObject<T>(cluster: Cluster, at: At): Promise<T | undefined> {
  return (await unlessStatus(cluster.objects.getNamespacedCustomObject(at), 404)) as T | undefined;
}

function found<T>(what: string, object: T | undefined): T {
  if (object !== undefined) return object;
  throw millpondError("MILLPOND_E_NOT_FOUND", `there is no ${quote(what)}, which has made the pod`, {
    remedy: "Its pods end with it.",
  });
}
