// SPDX-License-Identifier: Apache-2.0

import { nodesForLabels, settleAffinity } from "./constraints.ts";
import { bestOffer } from "./placement/claim-placement.ts";
import { usualWorkload } from "./placement/claim-workload.ts";
import type { ClaimRequest } from "./request.ts";
import type { Snapshot } from "./snapshot.ts";
import type { Statement } from "./statement.ts";

/**
 * Places a claim where its policy scores best. Ties go to the node whose name comes first and to the lowest ordinals, so the
 * same pool always gives the same statement, in whatever order its nodes are listed.
 *
 * @returns undefined when no node has room now
 */
export function place(snapshot: Snapshot, asked: ClaimRequest): Statement | undefined {
  const { workload = usualWorkload } = snapshot;
  const constraints = settleAffinity(asked.constraints, snapshot.nodes);
  const request = constraints === undefined ? asked : { ...asked, constraints };
  const best = bestOffer(nodesForLabels(snapshot.nodes, request.labels), request, workload);
  if (best === undefined) {
    return undefined;
  }
  const devices = best.offer.taken
    .map(({ device, share }) => ({ uuid: device.uuid, index: device.index, ...share }))
    .sort((a, b) => a.index - b.index);
  const { claim, labels } = request;
  return { claim, node: best.node.name, devices, ...(labels === undefined ? {} : { labels }) };
}
