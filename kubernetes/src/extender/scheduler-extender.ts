// SPDX-License-Identifier: Apache-2.0

// Answers of the scheduler extender, for clusters without scheduling gates (Kubernetes before 1.27): a pod that waits
// for the pool fits no node, and a pod whose claims are granted is directed to its GPUs. The extender reads only the
// pod, so every replica can answer.

import type { V1Pod } from "@kubernetes/client-node";
import { millpondError } from "@millpond/api";
import { readPodOptions } from "../request/pod-request.ts";
import { keysOf, type ResourceNames } from "../request/resource-names.ts";

/** What kube-scheduler sends; names of members as in `k8s.io/kube-scheduler/extender/v1`. */
interface ExtenderArgs {
  readonly pod: V1Pod;
  /** Names of the remaining nodes. */
  readonly names: readonly string[];
  /** The nodes themselves, if the scheduler sends them; undefined: it sent names. */
  readonly items: readonly unknown[] | undefined;
}

interface Victims {
  readonly Pods?: readonly { readonly UID?: string; readonly metadata?: { readonly uid?: string } }[] | null;
  readonly NumPDBViolations?: number;
}

/** Largest score that a scheduler takes. */
const maxScore = 10;

/**
 * Returns the nodes that a pod fits.
 *
 * @throws MILLPOND_E_INVALID if the body is not a scheduler's request
 */
export function filterNodes(names: ResourceNames, body: unknown): unknown {
  const { pod, names: nodes, items } = parseArgs(body);
  const why = whyNot(names, pod);
  const failed = Object.fromEntries(
    nodes.flatMap((node) => {
      const obstacle = why ?? whyNotOn(names, pod, node);
      return obstacle === undefined ? [] : [[node, obstacle]];
    }),
  );
  const fits = (node: string): boolean => !Object.hasOwn(failed, node);
  return {
    ...(items === undefined
      ? { NodeNames: nodes.filter(fits) }
      : { Nodes: { items: items.filter((_, index) => fits(nodes[index] ?? "")) } }),
    FailedNodes: failed,
    // Schedulers since 1.21 evict no pods for such nodes; those before ask `preempt`.
    FailedAndUnresolvableNodes: failed,
    Error: "",
  };
}

/**
 * Scores the node that has the pod's GPUs.
 *
 * @throws MILLPOND_E_INVALID
 */
export function prioritizeNodes(names: ResourceNames, body: unknown): unknown {
  const { pod, names: nodes } = parseArgs(body);
  const host = isAnywhere(names, pod) ? undefined : hostOf(names, pod);
  return nodes.map((node) => ({ Host: node, Score: node === host ? maxScore : 0 }));
}

/**
 * Answers on which nodes other pods may be evicted: on none while the pod waits for the pool.
 *
 * @throws MILLPOND_E_INVALID
 */
export function preemptOnNodes(names: ResourceNames, body: unknown): unknown {
  const { Pod, NodeNameToVictims, NodeNameToMetaVictims } = objectOf(body);
  const pod = objectOf(Pod) as V1Pod;
  const nodes = Object.entries(objectOf(NodeNameToMetaVictims ?? NodeNameToVictims)) as [string, Victims][];
  const possible = nodes.filter(([node]) => (whyNot(names, pod) ?? whyNotOn(names, pod, node)) === undefined);
  return {
    NodeNameToMetaVictims: Object.fromEntries(
      possible.map(([node, { Pods, NumPDBViolations = 0 }]) => [
        node,
        { Pods: (Pods ?? []).map(({ UID, metadata }) => ({ UID: UID ?? metadata?.uid })), NumPDBViolations },
      ]),
    ),
  };
}

/** Why a pod fits no node; undefined: its claims are granted. */
function whyNot(names: ResourceNames, { metadata, status }: V1Pod): string | undefined {
  const keys = keysOf(names);
  const annotations = metadata?.annotations ?? {};
  if (annotations[keys.request] === undefined)
    return "Millpond's webhook has not prepared the pod: create it again";
  if (annotations[keys.node] !== undefined) return undefined;
  const said = status?.conditions?.find(({ type }) => type === keys.bound);
  return said?.status === "False" && said.message
    ? said.message
    : "the pool has not granted it its vGPUs yet";
}

function whyNotOn(names: ResourceNames, pod: V1Pod, node: string): string | undefined {
  if (readPodOptions(names, pod).options.locality !== "local-only" || node === hostOf(names, pod))
    return undefined;
  return "its vGPUs are on another node, and its locality is local-only";
}

function isAnywhere(names: ResourceNames, pod: V1Pod): boolean {
  return readPodOptions(names, pod).options.locality === "any";
}

/** The node of the cluster that has the pod's GPUs; undefined: none has. */
function hostOf(names: ResourceNames, { metadata }: V1Pod): string | undefined {
  return metadata?.annotations?.[keysOf(names).host];
}

function parseArgs(body: unknown): ExtenderArgs {
  const { Pod, Nodes, NodeNames } = objectOf(body);
  const pod = objectOf(Pod) as V1Pod;
  if (Array.isArray(NodeNames)) return { pod, names: NodeNames.map(String), items: undefined };
  const { items } = objectOf(Nodes);
  if (!Array.isArray(items)) throw notAsked();
  const named = items as readonly { readonly metadata?: { readonly name?: string } }[];
  return { pod, names: named.map(({ metadata }) => metadata?.name ?? ""), items };
}

function objectOf(value: unknown): Record<string, unknown> {
  if (typeof value !== "object" || value === null || Array.isArray(value)) throw notAsked();
  return value as Record<string, unknown>;
}

function notAsked(): Error {
  return millpondError("MILLPOND_E_INVALID", "the request is not a request of a scheduler to its extender", {
    remedy: "Only kube-scheduler calls this.",
  });
}
