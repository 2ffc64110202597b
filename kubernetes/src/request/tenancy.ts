// SPDX-License-Identifier: Apache-2.0

// Namespaces and the tenants of the pool: the tenant that is charged for a pod, and the queues in which it may wait. Users
// with the right to change namespaces decide that by annotations; authors of pods do not.

import type { V1Namespace } from "@kubernetes/client-node";
import { isName, millpondError, quote } from "@millpond/api";
import { keysOf, type ResourceNames } from "./resource-names.ts";

export interface Tenancy {
  readonly tenant: string;
  /** The queue of pods that name none. */
  readonly queue: string;
  /** The only queues that pods may name; undefined: all queues that no other namespace names as its own. */
  readonly queues: readonly string[] | undefined;
  /** Queues that other namespaces name as their own. */
  readonly foreignQueues: ReadonlySet<string>;
}

/** The queue in which every namespace may wait unless it names queues of its own. */
const commonQueue = "default";

/**
 * Reads the annotations of a namespace. Without any, the namespace is its own tenant.
 *
 * @param others All namespaces; this one may be among them.
 * @throws MILLPOND_E_FORBIDDEN for an annotation that is present and not valid: ignoring it would open a queue that it
 * should close
 */
export function tenancyOf(
  names: ResourceNames,
  namespace: V1Namespace,
  others: Iterable<V1Namespace>,
): Tenancy {
  const keys = keysOf(names);
  const { annotations = {}, name: place = "" } = namespace.metadata ?? {};
  const refuse = (key: string, why: string): Error =>
    millpondError(
      "MILLPOND_E_FORBIDDEN",
      `pods of the namespace ${place} cannot use the pool: its annotation ${key} is ${quote(annotations[key] ?? "")}, ${why}`,
      { remedy: "An administrator of the cluster has to correct or remove it." },
    );
  const nameIn = (key: string): string | undefined => {
    const value = annotations[key];
    if (value !== undefined && !isName(value)) throw refuse(key, "which is not a name");
    return value;
  };
  const tenant = nameIn(keys.tenant) ?? place;
  const queue = nameIn(keys.queue);
  const queues = queuesIn(annotations[keys.queues]);
  const wrong = queues?.find((each) => !isName(each));
  if (wrong !== undefined) throw refuse(keys.queues, "which is not a list of names");
  if (queue !== undefined && queues?.includes(queue) === false) {
    throw refuse(keys.queue, `which ${keys.queues} does not contain`);
  }
  const foreignQueues = new Set(
    [...others]
      .filter(({ metadata }) => metadata?.name !== place)
      .flatMap(({ metadata }) => queuesIn(metadata?.annotations?.[keys.queues]) ?? []),
  );
  // A queue that an administrator gives to this namespace is open to it, even if another namespace lists it.
  for (const own of [commonQueue, queue, ...(queues ?? [])]) foreignQueues.delete(own ?? "");
  return { tenant, queue: queue ?? queues?.[0] ?? commonQueue, queues, foreignQueues };
}

/** @throws MILLPOND_E_FORBIDDEN if pods of the namespace may not wait in the queue */
export function checkQueue({ queues, foreignQueues }: Tenancy, queue: string): void {
  const isOpen = queues === undefined ? !foreignQueues.has(queue) : queues.includes(queue);
  if (isOpen) return;
  throw millpondError(
    "MILLPOND_E_FORBIDDEN",
    `pods of this namespace may not wait in the queue ${quote(queue)}`,
    {
      remedy:
        queues === undefined
          ? "It is of other namespaces. Use the queue default, or have an administrator add it to the annotation of this one."
          : `Use one of its own: ${queues.join(", ")}.`,
    },
  );
}

/** An empty list parses as a list of one empty name, which is not valid. */
function queuesIn(annotation: string | undefined): string[] | undefined {
  return annotation?.split(",").map((queue) => queue.trim());
}
