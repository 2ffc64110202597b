// SPDX-License-Identifier: Apache-2.0

// All writes of the operator to pods, and of objects for pods.

import { createHash } from "node:crypto";
import type { V1Pod } from "@kubernetes/client-node";
import type { Logger } from "pino";
import {
  asJsonPatch,
  asMergePatch,
  asStrategicPatch,
  briefly,
  type Cluster,
  describeFailure,
  statusOf,
  unlessStatus,
} from "../cluster/cluster.ts";
import type { Keys } from "../request/resource-names.ts";

export interface Condition {
  readonly type: string;
  readonly status: "True" | "False";
  /** One word in PascalCase. */
  readonly reason: string;
  readonly message: string;
}

/** Why a pod waits changes with every claim of others, so it is written no more often than this. */
export const waitingWriteMs = 5000;
/** A repetition of an event within this time is omitted. */
export const eventRepeatMs = 30_000;
const maxEventsKept = 20_000;

export class PodWriter {
  readonly #cluster: Cluster;
  readonly #keys: Keys;
  readonly #log: Logger;
  readonly #written = new Map<string, number>();
  readonly #events = new Map<string, { readonly name: string; count: number; atMs: number }>();

  constructor(cluster: Cluster, keys: Keys, log: Logger) {
    this.#cluster = cluster;
    this.#keys = keys;
    this.#log = log;
  }

  /**
   * Writes a condition if it differs from the pod's.
   *
   * @param leastMs The shortest time between two messages of the same reason.
   * @returns Milliseconds after which to try again, if it is too soon for another message of the same reason.
   */
  async setCondition(
    pod: V1Pod,
    condition: Condition,
    leastMs = waitingWriteMs,
  ): Promise<number | undefined> {
    const { type, status, reason, message } = condition;
    const now = pod.status?.conditions?.find((each) => each.type === type);
    if (now?.status === status && now.reason === reason && now.message === message) return undefined;
    const key = `${uidOf(pod)} ${type}`;
    const sinceMs = performance.now() - (this.#written.get(key) ?? Number.NEGATIVE_INFINITY);
    if (now?.status === status && now.reason === reason && sinceMs < leastMs) return leastMs - sinceMs;
    const at = new Date().toISOString().replace(/\.\d+Z$/, "Z");
    const transition = now?.status === status ? now.lastTransitionTime : at;
    const body = {
      metadata: { uid: uidOf(pod) },
      status: { conditions: [{ type, status, reason, message, lastTransitionTime: transition ?? at }] },
    };
    await unlessStatus(
      this.#cluster.core.patchNamespacedPodStatus({ ...nameOf(pod), body }, briefly(asStrategicPatch)),
      404,
      409,
    );
    this.#written.set(key, performance.now());
    return undefined;
  }

  /** Forgets a pod that is gone. */
  forget(uid: string): void {
    for (const map of [this.#written, this.#events]) {
      for (const key of map.keys()) if (key.startsWith(uid)) map.delete(key);
    }
  }

  /**
   * Writes an event about the pod. An event that cannot be written is logged, and delays nothing.
   *
   * @param leastMs The shortest time between two events of the same reason.
   */
  async tell(
    pod: V1Pod,
    type: "Normal" | "Warning",
    reason: string,
    message: string,
    leastMs = eventRepeatMs,
  ): Promise<void> {
    const { namespace, name } = nameOf(pod);
    const key = `${uidOf(pod)} ${reason}`;
    const known = this.#events.get(key);
    if (known !== undefined && performance.now() - known.atMs < leastMs) return;
    const at = new Date().toISOString().replace(/\.\d+Z$/, "Z");
    try {
      if (known !== undefined) {
        const count = known.count + 1;
        const body = { count, message: shorten(message), lastTimestamp: at };
        const patched = await unlessStatus(
          this.#cluster.core.patchNamespacedEvent(
            { namespace, name: known.name, body },
            briefly(asMergePatch),
          ),
          404,
        );
        if (patched !== undefined) {
          this.#events.set(key, { name: known.name, count, atMs: performance.now() });
          return;
        }
      }
      const hash = createHash("sha256").update(`${key} ${at} ${Math.random()}`).digest("hex").slice(0, 16);
      const event = {
        metadata: { name: `${name.slice(0, 200).replace(/[-.]+$/, "")}.${hash}`, namespace },
        involvedObject: { apiVersion: "v1", kind: "Pod", namespace, name, uid: uidOf(pod) },
        type,
        reason,
        message: shorten(message),
        source: { component: "millpond" },
        reportingComponent: "millpond",
        reportingInstance: "operator",
        count: 1,
      };
      const body = { ...event, firstTimestamp: new Date(at), lastTimestamp: new Date(at) };
      await this.#cluster.core.createNamespacedEvent({ namespace, body }, briefly());
      if (this.#events.size > maxEventsKept) this.#events.clear();
      this.#events.set(key, { name: event.metadata.name, count: 1, atMs: performance.now() });
    } catch (error) {
      this.#log.warn(
        { pod: `${namespace}/${name}`, reason, failure: describeFailure(error) },
        "an event is lost",
      );
    }
  }

  /**
   * Releases the pod to the scheduler, with the node of its GPUs.
   *
   * @param host The Kubernetes node that has the GPUs; undefined: none.
   * @param where `required`: only there; `preferred`: there if it has room.
   * @returns `changed`: the pod has changed in the meantime, which also arrives as an event; any other text: why the
   * cluster refuses it; undefined: it is released.
   */
  async openGate(
    pod: V1Pod,
    gpuNode: string,
    host: string | undefined,
    where: "required" | "preferred",
  ): Promise<string | undefined> {
    const gates = pod.spec?.schedulingGates ?? [];
    if (!gates.some(({ name }) => name === this.#keys.gate)) return undefined;
    const patch: Record<string, unknown>[] = [
      { op: "test", path: "/metadata/uid", value: uidOf(pod) },
      { op: "test", path: "/spec/schedulingGates", value: gates },
      {
        op: "replace",
        path: "/spec/schedulingGates",
        value: gates.filter(({ name }) => name !== this.#keys.gate),
      },
      { op: "add", path: `/metadata/annotations/${escapePointer(this.#keys.node)}`, value: gpuNode },
    ];
    if (host !== undefined)
      patch.push({ op: "add", path: "/spec/affinity", value: withAffinity(pod, host, where) });
    try {
      await this.#cluster.core.patchNamespacedPod({ ...nameOf(pod), body: patch }, briefly(asJsonPatch));
      return undefined;
    } catch (error) {
      if (statusOf(error) === 409) return "changed";
      if (!isRefusal(error)) throw error;
      // API servers also answer 422 when a test of a JSON patch fails.
      const now = await unlessStatus(this.#cluster.core.readNamespacedPod(nameOf(pod)), 404);
      const gatesOf = ({ spec }: V1Pod): string =>
        (spec?.schedulingGates ?? []).map(({ name }) => name).join();
      const isSame = now !== undefined && uidOf(now) === uidOf(pod) && gatesOf(now) === gatesOf(pod);
      return isSame ? describeFailure(error) : "changed";
    }
  }

  /**
   * Marks a pod without a gate as granted: the scheduler extender reads that from its annotations.
   *
   * @param host The name of the node, as in `openGate`.
   */
  async markGranted(pod: V1Pod, gpuNode: string, host: string | undefined): Promise<void> {
    await this.annotate(pod, {
      [this.#keys.node]: gpuNode,
      ...(host === undefined ? {} : { [this.#keys.host]: host }),
    });
  }

  async annotate(pod: V1Pod, annotations: Readonly<Record<string, string>>): Promise<void> {
    const body = { metadata: { uid: uidOf(pod), annotations } };
    await unlessStatus(
      this.#cluster.core.patchNamespacedPod({ ...nameOf(pod), body }, briefly(asMergePatch)),
      404,
      409,
    );
  }

  /**
   * Sets Kubernetes' own condition for an end that the program did not cause: a Job need not count it as a
   * failure.
   */
  async markDisruption(pod: V1Pod, reason: string, message: string): Promise<void> {
    await this.setCondition(pod, { type: "DisruptionTarget", status: "True", reason, message });
  }

  /** Ends a pod; a pod that is gone, or has another UID by now, is not an error. */
  async end(pod: V1Pod, graceSeconds: number): Promise<void> {
    const body = { gracePeriodSeconds: graceSeconds, preconditions: { uid: uidOf(pod) } };
    await unlessStatus(this.#cluster.core.deleteNamespacedPod({ ...nameOf(pod), body }), 404, 409);
  }

  /** Creates the Secret by which the pod's programs find their pool. An existing one is left unchanged. */
  async makeSecret(pod: V1Pod, name: string, values: Readonly<Record<string, string>>): Promise<void> {
    const { namespace } = nameOf(pod);
    const body = {
      metadata: {
        name,
        namespace,
        labels: { [this.#keys.managed]: "true" },
        ownerReferences: [ownerReference(pod)],
      },
      type: "Opaque",
      immutable: true,
      stringData: { ...values },
    };
    await unlessStatus(this.#cluster.core.createNamespacedSecret({ namespace, body }, briefly()), 409);
  }
}

export function ownerReference(pod: V1Pod) {
  return { apiVersion: "v1", kind: "Pod", name: nameOf(pod).name, uid: uidOf(pod) };
}

export function uidOf({ metadata }: V1Pod): string {
  return metadata?.uid ?? "";
}

export function nameOf({ metadata }: V1Pod): { readonly namespace: string; readonly name: string } {
  return { namespace: metadata?.namespace ?? "", name: metadata?.name ?? "" };
}

/** Whether the condition of a pod says that it has its vGPUs. @param type Of the condition */
export function isBound({ status }: V1Pod, type: string): boolean {
  return status?.conditions?.some((each) => each.type === type && each.status === "True") ?? false;
}

/** Whether nothing of the pod runs or ever will. */
export function isOver({ status }: V1Pod): boolean {
  return status?.phase === "Succeeded" || status?.phase === "Failed";
}

/** Whether Kubernetes' scheduler has considered the pod. */
export function isPlaced({ spec }: V1Pod): boolean {
  return spec?.nodeName !== undefined && spec.nodeName !== "";
}

/** Whether a container cannot start because a Secret or ConfigMap is missing, which may have been deleted while the pod ran. */
export function lacksSecret({ status }: V1Pod): boolean {
  return [...(status?.containerStatuses ?? []), ...(status?.initContainerStatuses ?? [])].some(
    ({ state }) => state?.waiting?.reason === "CreateContainerConfigError",
  );
}

export function hasStarted({ status }: V1Pod): boolean {
  return [...(status?.containerStatuses ?? []), ...(status?.initContainerStatuses ?? [])].some(
    // One that waits to be started again has the end of its last run.
    ({ state, lastState }) =>
      state?.running !== undefined || state?.terminated !== undefined || lastState?.terminated !== undefined,
  );
}

/** Whether the kubelet refused the pod, for example because its device plugin was unavailable: nothing of it has run. */
export function wasRefused(pod: V1Pod): boolean {
  const { metadata, status } = pod;
  return status?.phase === "Failed" && metadata?.deletionTimestamp === undefined && !hasStarted(pod);
}

/**
 * Why the API server refuses to create an object, because of a quota or a policy of the cluster for example; undefined: it has
 * created it.
 */
export async function refusalOf(creation: Promise<void>): Promise<string | undefined> {
  try {
    await creation;
    return undefined;
  } catch (error) {
    if (!isRefusal(error)) throw error;
    return describeFailure(error);
  }
}

/** Whether the same request will be refused again: by quotas and admission webhooks with 403, by policies with 422. */
function isRefusal(error: unknown): boolean {
  return [400, 403, 422].includes(statusOf(error) ?? 0);
}

function withAffinity(pod: V1Pod, host: string, where: "required" | "preferred"): unknown {
  const affinity = pod.spec?.affinity ?? {};
  const node = affinity.nodeAffinity ?? {};
  const here = { key: "kubernetes.io/hostname", operator: "In", values: [host] };
  if (where === "preferred") {
    const before = node.preferredDuringSchedulingIgnoredDuringExecution ?? [];
    const preferred = [...before, { weight: 100, preference: { matchExpressions: [here] } }];
    return {
      ...affinity,
      nodeAffinity: { ...node, preferredDuringSchedulingIgnoredDuringExecution: preferred },
    };
  }
  const before = node.requiredDuringSchedulingIgnoredDuringExecution?.nodeSelectorTerms ?? [{}];
  const nodeSelectorTerms = before.map((term) => ({
    ...term,
    matchExpressions: [...(term.matchExpressions ?? []), here],
  }));
  return {
    ...affinity,
    nodeAffinity: { ...node, requiredDuringSchedulingIgnoredDuringExecution: { nodeSelectorTerms } },
  };
}

function escapePointer(key: string): string {
  return key.replaceAll("~", "~0").replaceAll("/", "~1");
}

/** The longest text that fits into an event. */
function shorten(message: string): string {
  return message.length > 1000 ? `${message.slice(0, 997)}…` : message;
}
