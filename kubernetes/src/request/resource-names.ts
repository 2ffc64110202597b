// SPDX-License-Identifier: Apache-2.0

// The names of a cluster for requests to the pool: extended resources of containers, and annotations and
// labels of pods, namespaces and priority classes.

import { millpondError, quote } from "@millpond/api";

/** Resources that a container can request. */
export const resourceKinds = ["vgpu", "compute", "memory", "memory-percent"] as const;

export type ResourceKind = (typeof resourceKinds)[number];

export interface ResourceNames {
  /**
   * The domain of annotations, labels, the scheduling gate, conditions and the DRA driver: `millpond.dev`.
   */
  readonly domain: string;
  /** All names of a resource; messages use the first one. */
  readonly resources: Readonly<Record<ResourceKind, readonly string[]>>;
}

const domainPattern = /^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)+$/;
const resourcePattern = /^([a-z0-9.-]+)\/[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$/;

/**
 * @param aliases Additional names of resources: `vgpu=pool.kubernetes.io/gpu,memory=pool.kubernetes.io/memory`. Empty:
 * none.
 * @throws MILLPOND_E_INVALID
 */
export function makeResourceNames(domain = "millpond.dev", aliases = ""): ResourceNames {
  if (!domainPattern.test(domain) || domain.length > 63) {
    throw millpondError("MILLPOND_E_INVALID", `${quote(domain)} is not a domain such as millpond.dev`);
  }
  const resources = new Map<ResourceKind, string[]>(
    resourceKinds.map((kind) => [kind, [`${domain}/${kind}`]]),
  );
  // The name by which Kubernetes itself refers to a device of our class in limits.
  resources.get("vgpu")?.push(`deviceclass.resource.kubernetes.io/${domain}`);
  for (const alias of aliases.split(",").filter((part) => part.trim() !== "")) {
    const [kind, name = ""] = alias.trim().split("=");
    const names = resources.get(kind as ResourceKind);
    const prefix = resourcePattern.exec(name)?.[1] ?? "";
    if (names === undefined || !domainPattern.test(prefix)) {
      throw millpondError(
        "MILLPOND_E_INVALID",
        `the resource name ${quote(alias.trim())} is not one such as vgpu=pool.example.org/gpu, of ${resourceKinds.join(", ")}`,
      );
    }
    if ([...resources.values()].some((taken) => taken.includes(name))) {
      throw millpondError("MILLPOND_E_INVALID", `the resource name ${quote(name)} is given twice`);
    }
    names.push(name);
  }
  const get = (kind: ResourceKind): readonly string[] => resources.get(kind) ?? [];
  return {
    domain,
    resources: {
      vgpu: get("vgpu"),
      compute: get("compute"),
      memory: get("memory"),
      "memory-percent": get("memory-percent"),
    },
  };
}

/** The resource of ours that a name means; undefined: none. */
export function kindOfResource(names: ResourceNames, name: string): ResourceKind | undefined {
  return resourceKinds.find((kind) => names.resources[kind].includes(name));
}

/** Every name by which a container requests the pool. */
export function allResourceNames(names: ResourceNames): string[] {
  return resourceKinds.flatMap((kind) => [...names.resources[kind]]);
}

/** Annotations and labels that Millpond writes onto objects and reads from them. */
export function keysOf({ domain }: Pick<ResourceNames, "domain">) {
  return {
    /** Label of every pod that requests the pool, by which the webhooks and the operator find it. */
    managed: `${domain}/managed`,
    /** Annotation: the request as parsed by the webhook, JSON. */
    request: `${domain}/request`,
    /** Annotation: a name for the pod's objects, available before the pod has a UID. */
    id: `${domain}/id`,
    /** Annotations that only the webhook and the operator write. */
    claims: `${domain}/claims`,
    node: `${domain}/gpu-node`,
    host: `${domain}/host`,
    retries: `${domain}/retries`,
    /** Annotation of a pod that is to be replaced: the pod before the webhook changed it, JSON. */
    original: `${domain}/original`,
    /** Annotation: UID of the pod that this one replaces. */
    follows: `${domain}/follows`,
    /** Annotation of pods: whether the pod is replaced when the pool takes its vGPUs. */
    requeue: `${domain}/requeue`,
    /** Scheduling gate. */
    gate: `${domain}/queue`,
    /** Type of the pod condition. */
    bound: `${domain}/Bound`,
    resized: `${domain}/Resized`,
    /** Label or annotation of pods, or annotation of namespaces: the queue of claims that name none. */
    queue: `${domain}/queue`,
    /** Annotations of namespaces. */
    tenant: `${domain}/tenant`,
    queues: `${domain}/queues`,
    /** Annotation of priority classes. */
    priority: `${domain}/priority`,
    /** Annotation of pods: the new size. */
    resize: `${domain}/resize`,
  } as const;
}

export type Keys = ReturnType<typeof keysOf>;
