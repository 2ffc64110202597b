// SPDX-License-Identifier: Apache-2.0

import {
  claimFieldNames,
  claimFieldSpecs,
  type ClaimValues,
  countOf,
  errorCodeOf,
  formatBytes,
  formatDuration,
  formatLabels,
  type MemoryRequest,
  millpondError,
} from "@millpond/api";
import { errorParts } from "../command-line/errors.ts";

/** The options that describe a claim. */
export interface RequestOptions extends ClaimValues {
  readonly partial?: number | undefined;
}

/** Returns the claim that the options describe: `--memory` and `--compute` take precedence over `--partial`. */
export function resolveRequest(options: RequestOptions): ClaimValues {
  const { partial } = options;
  const given: ClaimValues = Object.fromEntries(
    claimFieldNames.filter((name) => options[name] !== undefined).map((name) => [name, options[name]]),
  );
  if (partial === undefined) return given;
  const memory: MemoryRequest = given.memory ?? { kind: "percent", percent: partial };
  return { ...given, memory, compute: given.compute ?? partial };
}

/**
 * Returns the name of the existing claim to use; undefined: a new claim is made. Options that describe a claim take
 * precedence over a claim that the environment names.
 *
 * @throws MILLPOND_E_INVALID when the command line does both
 */
export function existingClaim(
  options: RequestOptions & { readonly claim?: string | undefined; readonly name?: string | undefined },
  environment: NodeJS.ProcessEnv,
): string | undefined {
  const { claim, partial, name } = options;
  if (claim === undefined) return undefined;
  const wanted = claimFieldNames
    .filter((field) => options[field] !== undefined && options[field] !== false)
    .filter((field) => (environment[claimFieldSpecs[field].env] ?? "") === "")
    .map((field) => /--[a-z-]+/.exec(claimFieldSpecs[field].flags)?.[0] ?? field);
  if (partial !== undefined) wanted.push("--partial");
  if (name !== undefined) wanted.push("--name");
  if (wanted.length === 0) return claim;
  if (claim === environment["MILLPOND_CLAIM"]) return undefined;
  throw millpondError(
    "MILLPOND_E_INVALID",
    `--claim ${claim} names an existing claim, and ${wanted.join(", ")} would change it`,
    {
      remedy: "Omit one of them; `millpond resize` changes an existing claim.",
    },
  );
}

/** Fields of the API whose options have other names. */
const otherNames: Readonly<Record<string, (typeof claimFieldNames)[number]>> = {
  memoryBytes: "memory",
  memoryPercent: "memory",
  computePercent: "compute",
  minComputeCapability: "minCapability",
  lazyIdleSeconds: "lazyIdle",
  timeLimitSeconds: "timeLimit",
  idleLimitSeconds: "idleLimit",
  graceSeconds: "grace",
};

/**
 * Returns an error of the API with the options of the command line in the place of its fields: `--gang-size` for `gangSize`.
 * Field names that are also ordinary words are replaced only in sentences about options.
 */
export function withOptionNames(error: unknown): unknown {
  if (errorCodeOf(error) !== "MILLPOND_E_INVALID") return error;
  const { what, remedy, code } = errorParts(error);
  const option = (word: string): string => {
    const field = otherNames[word] ?? claimFieldNames.find((name) => name === word);
    return field === undefined ? word : (/--[a-z-]+/.exec(claimFieldSpecs[field].flags)?.[0] ?? word);
  };
  const named = what
    .replace(/^(\w+)(?= is given without )/, option)
    .replace(/(?<= is given without )\w+/, option)
    .replace(/^(\w+)(?= and \w+ are both given)/, option)
    .replace(/(?<= and )\w+(?= are both given)/, option)
    .replaceAll(/\b[a-z]+(?:[A-Z][a-z]+)+\b/g, option);
  return named === what ? error : millpondError(code, named, { remedy, cause: error });
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
    `${countOf(gpus, "vGPU")}${size}`,
    compute === undefined ? "" : ` and ${compute}% compute`,
    model === undefined ? "" : ` of ${model.join(" or ")}`,
    nodeLabels === undefined ? "" : ` on a node with ${formatLabels(nodeLabels)}`,
    timeLimit === undefined || timeLimit === 0 ? "" : ` for ${formatDuration(timeLimit)}`,
    gang === undefined ? "" : ` with gang ${gang}`,
    queue === undefined ? "" : ` in queue ${queue}`,
  ].join("");
}
