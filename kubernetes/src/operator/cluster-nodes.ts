// SPDX-License-Identifier: Apache-2.0

// Machines that are nodes of both the cluster and the pool: which pods are on the machine of their GPUs, and which
// nodes of the pool accept no new claims because their nodes of the cluster accept no new pods.

import type { V1Node } from "@kubernetes/client-node";
import { errorCodeOf, type Node } from "@millpond/api";
import type { Connection } from "@millpond/cli";
import type { Logger } from "pino";

/** The members of a node of the pool that matter here. */
export type PoolNode = Pick<Node, "name" | "bootId" | "cordoned" | "cordonReason">;

/**
 * The node of the cluster on the machine of a node of the pool; if several kubelets share the machine, the one with the
 * same name. Undefined: there is none.
 */
export function findHost(
  poolNode: Pick<PoolNode, "name" | "bootId">,
  nodes: Iterable<V1Node>,
): V1Node | undefined {
  const onMachine = [...nodes].filter(
    ({ status }) => poolNode.bootId !== "" && status?.nodeInfo?.bootID === poolNode.bootId,
  );
  return onMachine.find(({ metadata }) => metadata?.name === poolNode.name) ?? onMachine.at(-1);
}

/** The labels by which pods select a node. */
export function hostLabelOf({ metadata }: V1Node): string {
  return metadata?.labels?.["kubernetes.io/hostname"] ?? metadata?.name ?? "";
}

/** Why the operator has cordoned a node of the pool. This text distinguishes its own cordons from those of administrators. */
export function cordonReason(node: string): string {
  return `node ${node} of Kubernetes is cordoned`;
}

export interface CordonChange {
  readonly name: string;
  readonly cordoned: boolean;
  readonly reason: string;
}

/** The cordons of the pool that must change to follow the cluster. A pure function. */
export function cordonsToChange(poolNodes: readonly PoolNode[], nodes: readonly V1Node[]): CordonChange[] {
  return poolNodes.flatMap((poolNode): CordonChange[] => {
    const host = findHost(poolNode, nodes);
    if (host === undefined) return [];
    const reason = cordonReason(host.metadata?.name ?? "");
    const isWanted = host.spec?.unschedulable === true;
    if (isWanted && !poolNode.cordoned) return [{ name: poolNode.name, cordoned: true, reason }];
    // Cordons that administrators set stay.
    if (!isWanted && poolNode.cordoned && poolNode.cordonReason === reason)
      return [{ name: poolNode.name, cordoned: false, reason: "" }];
    return [];
  });
}

/** `kubectl cordon` of a node with GPUs keeps new claims off them, and `kubectl uncordon` admits them again. */
export async function followCordons(
  pool: Pick<Connection, "pool">,
  poolNodes: readonly PoolNode[],
  nodes: readonly V1Node[],
  log: Logger,
): Promise<void> {
  for (const change of cordonsToChange(poolNodes, nodes)) {
    try {
      await pool.pool.cordonNode(change);
      log.info(change, "cordoned or uncordoned a node of the pool as in Kubernetes");
    } catch (error) {
      // It has been removed in the meantime.
      if (errorCodeOf(error) !== "MILLPOND_E_NOT_FOUND") throw error;
    }
  }
}
