// SPDX-License-Identifier: Apache-2.0

// Which agent may report which node: a single compromised host must not control the pool.

import { millpondError } from "@millpond/api";
import type { Caller } from "../domain/caller.ts";
import type { TokenRecord } from "../domain/records.ts";
import type { Transaction } from "../state/transaction.ts";

/** The properties of a caller that determine for which node it may report. */
export type AgentCaller = Pick<Caller, "name" | "madeAt" | "node">;

/** @throws MILLPOND_E_FORBIDDEN if the token belongs to another node */
export function refuseOtherNode({ name, node: own }: Pick<AgentCaller, "name" | "node">, node: string): void {
  if (own !== undefined && own !== "" && own !== node) {
    throw millpondError(
      "MILLPOND_E_FORBIDDEN",
      `the token ${name} is for the agent of node ${own} only, this one reports node ${node}`,
      { remedy: `Make one for it: \`millpond token create NAME --role agent --node ${node}\`.` },
    );
  }
}

/** A node that an agent reports. */
export interface ReportedNode {
  readonly name: string;
  /** Revision at which the node was removed from the pool; tokens created before that are no longer valid for it. */
  readonly removedRevision: number | undefined;
}

/**
 * Refuses an agent whose token is not the node's if the node has a token of its own. Shared tokens, such as the one in
 * the state directory, are valid for nodes without a token of their own.
 *
 * @throws MILLPOND_E_FORBIDDEN
 */
export function refuseOtherToken(
  tokens: Iterable<TokenRecord>,
  { name, node: own }: Pick<AgentCaller, "name" | "node">,
  { name: node, removedRevision = -1 }: ReportedNode,
): void {
  if (own === node) {
    return;
  }
  for (const token of tokens) {
    if (token.node === node && token.revision > removedRevision) {
      throw millpondError(
        "MILLPOND_E_FORBIDDEN",
        `node ${node} has the token ${token.name}, this agent came with ${name}`,
        {
          remedy: `Give it that token or another of the node: \`millpond token create NAME --role agent --node ${node}\`.`,
        },
      );
    }
  }
}

/** Binds the token of a joining agent to this node. */
export function bindTokenToNode(
  transaction: Transaction,
  { name, node: own }: AgentCaller,
  node: string,
): void {
  if (own === undefined) {
    return;
  }
  const token = transaction.tokens.get(name);
  if (token === undefined) {
    throw millpondError("MILLPOND_E_UNAUTHENTICATED", `the token ${name} was revoked meanwhile`);
  }
  refuseOtherNode(token, node);
  if (token.node === "") {
    const removedRevision = transaction.removedNodes.get(node)?.revision;
    refuseOtherToken(transaction.tokens.all(), token, { name: node, removedRevision });
    transaction.tokens.set(name, { ...token, node });
  }
}
