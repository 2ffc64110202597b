// SPDX-License-Identifier: Apache-2.0

// Creates a replacement for a pod whose vGPUs the pool takes, if its author requests that and no controller does it.

import type { V1Pod } from "@kubernetes/client-node";
import { briefly, type Cluster, describeFailure, statusOf, unlessStatus } from "../cluster/cluster.ts";
import { keysOf, type ResourceNames } from "../request/resource-names.ts";
import { followerOf, nextName } from "../webhook/original-pod.ts";
import { nameOf, type PodWriter, uidOf } from "./pod-writer.ts";

export interface FollowerOptions {
  readonly cluster: Cluster;
  readonly names: ResourceNames;
  readonly writer: PodWriter;
}

/** How many names that other pods may have taken are tried. */
const maxTaken = 20;

export class Followers {
  readonly #options: FollowerOptions;
  /**
   * Names of replacements, by the UID of the replaced pod: a replacement that its user deletes is not created again
   * while that pod is still ending.
   */
  readonly #made = new Map<string, string>();

  constructor(options: FollowerOptions) {
    this.#options = options;
  }

  /**
   * Creates the pod's replacement, once; it names the pod. The pod is ended only afterwards, so that one of the two
   * always exists.
   *
   * @returns Its name; undefined: there is to be none, or the cluster refuses it, which an event of the pod then
   * reports.
   */
  async make(pod: V1Pod): Promise<string | undefined> {
    const { cluster, names, writer } = this.#options;
    const { namespace, name: before } = nameOf(pod);
    const uid = uidOf(pod);
    const made = this.#made.get(uid);
    if (made !== undefined) return made;
    let name = before;
    for (let taken = 0; taken < maxTaken; taken += 1) {
      name = nextName(name);
      const body = followerOf(names, pod, name);
      if (body === undefined) return undefined;
      try {
        await cluster.core.createNamespacedPod({ namespace, body }, briefly());
        this.#made.set(uid, name);
        await writer.tell(pod, "Normal", "MillpondRequeued", `${name} waits in its place`);
        return name;
      } catch (error) {
        const status = statusOf(error);
        if (status === 403 || status === 422) {
          const message = `no pod follows it: ${describeFailure(error)}`;
          await writer.tell(pod, "Warning", "MillpondNotRequeued", message);
          return undefined;
        }
        if (status !== 409) throw error;
        const there = await unlessStatus(cluster.core.readNamespacedPod({ namespace, name }), 404);
        // The pod does not exist, yet creating it was refused for a conflict: try again.
        if (there === undefined) throw error;
        if (there.metadata?.annotations?.[keysOf(names).follows] === uid) {
          this.#made.set(uid, name);
          return name;
        }
      }
    }
    await writer.tell(
      pod,
      "Warning",
      "MillpondNotRequeued",
      `no pod follows it: ${name} and others are taken`,
    );
    return undefined;
  }

  /** The replaced pod is gone. */
  forget(uid: string): void {
    this.#made.delete(uid);
  }
}
