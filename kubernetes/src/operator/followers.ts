// SPDX-License-Identifier: Apache-2.0

// Makes another pod in place of one whose vGPUs the pool takes, where its author asks for that and no controller does it.

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

/** Names that other pods may have taken. */
const maxTaken = 20;

export class Followers {
  readonly #options: FollowerOptions;
  /** Names of followers, by the UID of the pod before: one that its user deletes is not made again while that pod still ends. */
  readonly #made = new Map<string, string>();

  constructor(options: FollowerOptions) {
    this.#options = options;
  }

  /**
   * Makes the pod's follower, once: it names the pod. The pod is ended only after that, so that one of the two is always there.
   *
   * @returns Its name; undefined: none is to follow, or the cluster refuses it, which an event of the pod then says.
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
        // Not there, and refused for a conflict: another try.
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

  /** The pod before is gone. */
  forget(uid: string): void {
    this.#made.delete(uid);
  }
}
