// SPDX-License-Identifier: Apache-2.0

// The annotations by which a running pod is resized: `resize`, or `resize.CONTAINER`.

import { type ClaimValues, claimFieldSpecs, millpondError, parseClaimVariables, quote } from "@millpond/api";
import type { V1Pod } from "@kubernetes/client-node";
import { parseSlices } from "../request/pod-request.ts";
import { keysOf, type ResourceNames } from "../request/resource-names.ts";

/**
 * Checks the sizes that are requested for a pod.
 *
 * @param before The pod before the change: sizes that it had are not checked again. Undefined: it is new.
 * @throws MILLPOND_E_INVALID if the text is not a size, or the pod has no such claim
 */
export function checkResizes(names: ResourceNames, pod: V1Pod, before: V1Pod | undefined): void {
  const { resize, request } = keysOf(names);
  const { annotations = {} } = pod.metadata ?? {};
  const changed = Object.entries(annotations).filter(
    ([key, text]) =>
      (key === resize || key.startsWith(`${resize}.`)) && before?.metadata?.annotations?.[key] !== text,
  );
  for (const [key, text] of changed) {
    const asked = annotations[request];
    if (asked === undefined) {
      throw millpondError("MILLPOND_E_INVALID", `${key}: the pod has no limits of the pool`, {
        remedy: "The size of a ResourceClaim cannot be changed; create a pod with another one.",
      });
    }
    readResize(key, text);
    const sizes = parseSlices(asked).map(({ containers }) => containers);
    const container = key === resize ? undefined : key.slice(resize.length + 1);
    const isKnown =
      container === undefined ? sizes.length === 1 : sizes.some((each) => each.includes(container));
    if (isKnown) continue;
    throw millpondError(
      "MILLPOND_E_INVALID",
      container === undefined
        ? `${key}: ${sizes.length} containers of the pod have parts of the pool`
        : `${key}: the container ${quote(container)} has no part of the pool`,
      { remedy: `Write ${sizes.map(([name]) => `${resize}.${name}`).join(" or ")}.` },
    );
  }
}

/**
 * Reads `memory=24Gi,compute=40`.
 *
 * @param key The annotation, for the message.
 * @throws MILLPOND_E_INVALID
 */
export function readResize(key: string, text: string): Pick<ClaimValues, "memory" | "compute"> {
  const variables: Record<string, string> = {};
  for (const part of text.split(",")) {
    const [name = "", value = ""] = part.trim().split("=");
    if ((name !== "memory" && name !== "compute") || value === "") {
      throw millpondError("MILLPOND_E_INVALID", `${key}: ${quote(text)} is not a size`, {
        remedy: "Write memory=24Gi, compute=40, or both with a comma.",
      });
    }
    variables[claimFieldSpecs[name].env] = value;
  }
  try {
    return parseClaimVariables(variables);
  } catch (error) {
    const said = error instanceof Error && "rawMessage" in error ? String(error.rawMessage) : String(error);
    // The message up to the remedy, without the name of the variable.
    const [what = said] = said.slice(said.indexOf(": ") + 2).split(/\. (?=\p{Lu})/u);
    throw millpondError("MILLPOND_E_INVALID", `${key}: ${what}`, {
      remedy: "Write memory=24Gi, compute=40, or both with a comma.",
      cause: error,
    });
  }
}
