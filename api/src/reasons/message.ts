// SPDX-License-Identifier: Apache-2.0

import { create } from "@bufbuild/protobuf";
import { type Reason as ReasonMessage, ReasonSchema } from "../gen/millpond/v1/reason_pb.ts";
import type { Reason } from "./args.ts";
import { argsToJson } from "./json.ts";
import { type MayKnow, redactReason, renderReason } from "./render.ts";

/** A reason for a reader, in the API's form: as text, and as redacted data. */
export function toReasonMessage(reason: Reason, mayKnow: MayKnow): ReasonMessage {
  const args = argsToJson(redactReason(reason, mayKnow));
  return create(ReasonSchema, { code: reason.code, args, text: renderReason(reason, mayKnow) });
}
