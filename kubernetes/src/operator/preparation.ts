// SPDX-License-Identifier: Apache-2.0

// Kubelets that could not prepare a pod's ResourceClaims, because the node plugin was away or the pool had not granted
// them yet, try again only after a minute or more. Changing an annotation makes them try immediately.

import type { V1Pod } from "@kubernetes/client-node";
import type { Keys } from "../request/resource-names.ts";
import { type PodWriter, uidOf } from "./pod-writer.ts";

export interface PreparationOptions {
  readonly keys: Keys;
  readonly writer: Pick<PodWriter, "annotate">;
  /** Time after which a pod without a sandbox is annotated again. Default 8000. */
  readonly patienceMs?: number;
}

/** After this many attempts the cause is another one, such as a volume. */
const mostRetries = 20;

export class Preparation {
  readonly #options: Required<PreparationOptions>;
  /** When each pod was found without a sandbox, or last annotated, by its UID. */
  readonly #seenAtMs = new Map<string, number>();

  constructor(options: PreparationOptions) {
    this.#options = { patienceMs: 8000, ...options };
  }

  /**
   * @returns Milliseconds after which to check again; undefined: the pod has its sandbox, or waits for something else.
   */
  async look(pod: V1Pod): Promise<number | undefined> {
    const { keys, writer, patienceMs } = this.#options;
    const uid = uidOf(pod);
    const retries = Number(pod.metadata?.annotations?.[keys.retries] ?? 0);
    if (!isUnprepared(pod) || !(retries < mostRetries)) {
      this.#seenAtMs.delete(uid);
      return undefined;
    }
    const nowMs = performance.now();
    const seenAtMs = this.#seenAtMs.get(uid);
    if (seenAtMs === undefined) this.#seenAtMs.set(uid, nowMs);
    const waitMs = (seenAtMs ?? nowMs) + patienceMs - nowMs;
    if (waitMs > 0) return waitMs;
    this.#seenAtMs.set(uid, nowMs);
    await writer.annotate(pod, { [keys.retries]: String(retries + 1) });
    return patienceMs;
  }

  forget(uid: string): void {
    this.#seenAtMs.delete(uid);
  }
}

/** Whether a kubelet has the pod but has not created its sandbox: images are pulled after that. */
function isUnprepared({ spec, status }: V1Pod): boolean {
  const sandbox = status?.conditions?.find(({ type }) => type === "PodReadyToStartContainers");
  return (spec?.nodeName ?? "") !== "" && status?.phase === "Pending" && sandbox?.status === "False";
}
