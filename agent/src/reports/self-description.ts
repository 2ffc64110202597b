// SPDX-License-Identifier: Apache-2.0

import { create, type MessageInitShape, toBinary } from "@bufbuild/protobuf";
import { SyncRequestSchema, type SyncResponse } from "@millpond/api";

type Report = MessageInitShape<typeof SyncRequestSchema>;

/** The parts of a report that hardly ever change. */
export type NodeDescription = Pick<
  Report,
  "agentUrl" | "agentVersion" | "hostname" | "bootId" | "labels" | "devices"
>;

/**
 * Remembers the last description that was sent for the node, so that it is not repeated to a controller that has it.
 */
export class SelfDescription {
  #said: { readonly sequence: bigint; readonly bytes: Uint8Array; isRemembered: boolean } | undefined;

  /** Returns the description for the call of this sequence: in full, or a reference to the call that carried it. */
  say(sequence: bigint, description: NodeDescription): NodeDescription & Pick<Report, "describedBy"> {
    const bytes = toBinary(SyncRequestSchema, create(SyncRequestSchema, description));
    const said = this.#said;
    if (said?.isRemembered === true && Buffer.compare(said.bytes, bytes) === 0) {
      return { describedBy: said.sequence };
    }
    this.#said = { sequence, bytes, isRemembered: false };
    return description;
  }

  /** @returns Whether the controller did not apply the call, which must be repeated with the full description. */
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
