// SPDX-License-Identifier: Apache-2.0

// The part of the contract that runs without Node, for browsers.

export * from "./gen/millpond/v1/access_pb.ts";
export * from "./gen/millpond/v1/claim_pb.ts";
export * from "./gen/millpond/v1/pool_pb.ts";
export * from "./gen/millpond/v1/queue_pb.ts";
export { csvField } from "./csv.ts";
export { errorCodeOf } from "./errors.ts";
export { isNodeName } from "./names.ts";
export { type Excess, type HolderRef, type Reason, reason } from "./reasons/args.ts";
export { mayKnowAll, renderReason } from "./reasons/render.ts";
export { borrowingWord, parseBorrowing, parseQuota, quotaText } from "./quota.ts";
export { shellQuote } from "./shell.ts";
export {
  countOf,
  formatAge,
  formatBytes,
  formatDuration,
  minMemoryBytes,
  parseDuration,
  parsePercent,
  parseSize,
} from "./units.ts";
