// SPDX-License-Identifier: Apache-2.0

// Namespaces and the tenants of the pool: the tenant that is charged for a pod, and the queues in which it may wait.

import type { V1Namespace } from "@kubernetes/client-node";
import { isName } from "@millpond/api";
import { keysOf, type ResourceNames } from "../request/resource-names.ts";

export interface Tenancy {
  readonly tenant: string;
  /** The queue of pods that name none. */
  readonly queue: string;
  /** The queues that pods may name; undefined: all. */
  readonly queues: readonly string[] | undefined;
}

/**
 * Reads the annotations of a namespace: users with the right to change namespaces decide them, not the authors of pods. An
 * invalid name counts as absent. Without an annotation, the namespace is its own tenant.
 */
export function tenancyOf(names: ResourceNames, namespace: string, object: V1Namespace | undefined): Tenancy {
  const keys = keysOf(names);
  const { annotations = {} } = object?.metadata ?? {};
  const tenant = annotations[keys.tenant] ?? "";
  const queues = (annotations[keys.queues] ?? "")
    .split(",")
    .map((queue) => queue.trim())
    .filter((queue) => isName(queue));
  const queue = annotations[keys.queue] ?? "";
  const first = queues[0];
  return {
    tenant: isName(tenant) ? tenant : namespace,
    queue: isName(queue) && (first === undefined || queues.includes(queue)) ? queue : (first ?? "default"),
    queues: first === undefined ? undefined : queues,
  };
}
