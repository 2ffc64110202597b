// SPDX-License-Identifier: Apache-2.0

import { create, type MessageInitShape, toBinary } from "@bufbuild/protobuf";
import { SyncRequestSchema, type SyncResponse } from "@millpond/api";

type Report = MessageInitShape<typeof SyncRequestSchema>;

/** What hardly ever changes of a node. */
export type NodeDescription = Pick<
  Report,
  "agentUrl" | "agentVersion" | "hostname" | "bootId" | "labels" | "devices"
>;

/** What the agent has said of its node, so that it need not say it again to a controller that remembers it. */
export class SelfDescription {
  #said: { readonly sequence: bigint; readonly bytes: Uint8Array; isRemembered: boolean } | undefined;

  /** What the call of this sequence has to say of the node. */
  say(sequence: bigint, description: NodeDescription): NodeDescription & Pick<Report, "describedBy"> {
    const bytes = toBinary(SyncRequestSchema, create(SyncRequestSchema, description));
    const said = this.#said;
    if (said?.isRemembered === true && Buffer.compare(said.bytes, bytes) === 0) {
      return { describedBy: said.sequence };
    }
    this.#said = { sequence, bytes, isRemembered: false };
    return description;
  }

  /** @returns Whether the answer is to a call of which nothing was taken over: it has to be made again, with everything. */
  learn(asked: Report, { describedBy }: Pick<SyncResponse, "describedBy">): boolean {
    const wasLeftOut = asked.describedBy !== undefined;
    if (describedBy === 0n) {
      this.#said = undefined;
      return wasLeftOut;
    }
    if (this.#said?.sequence === describedBy) {
      this.#said.isRemembered = true;
    }
    return false;
  }
}
