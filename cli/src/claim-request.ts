// SPDX-License-Identifier: Apache-2.0

import {
  claimFieldNames,
  type ClaimValues,
  formatBytes,
  formatDuration,
  formatLabels,
  type MemoryRequest,
} from "@millpond/api";

/** The options that say what is wanted. */
export interface RequestOptions extends ClaimValues {
  readonly partial?: number | undefined;
}

/** What the options ask for: `--memory` and `--compute` win over `--partial`. */
export function resolveRequest(options: RequestOptions): ClaimValues {
  const { partial } = options;
  const given: ClaimValues = Object.fromEntries(
    claimFieldNames.filter((name) => options[name] !== undefined).map((name) => [name, options[name]]),
  );
  if (partial === undefined) return given;
  const memory: MemoryRequest = given.memory ?? { kind: "percent", percent: partial };
  return { ...given, memory, compute: given.compute ?? partial };
}

/** `2 vGPUs of 8 GiB and 50% compute in queue research`. */
export function describeRequest(values: ClaimValues): string {
  const { gpus = 1, memory, compute, model, queue, gang, timeLimit, nodeLabels } = values;
  const size =
    memory === undefined
      ? " of a whole device"
      : memory.kind === "bytes"
        ? ` of ${formatBytes(memory.bytes)}`
        : ` of ${memory.percent}% of a device's memory`;
  return [
    `${gpus} vGPU${gpus === 1 ? "" : "s"}${size}`,
    compute === undefined ? "" : ` and ${compute}% compute`,
    model === undefined ? "" : ` of ${model.join(" or ")}`,
    nodeLabels === undefined ? "" : ` on a node with ${formatLabels(nodeLabels)}`,
    timeLimit === undefined || timeLimit === 0 ? "" : ` for ${formatDuration(timeLimit)}`,
    gang === undefined ? "" : ` with gang ${gang}`,
    queue === undefined ? "" : ` in queue ${queue}`,
  ].join("");
}
