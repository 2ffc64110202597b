// SPDX-License-Identifier: Apache-2.0

import type { V1Pod } from "@kubernetes/client-node";
import { expect, test } from "vitest";
import { makeResourceNames } from "../request/resource-names.ts";
import { checkResizes } from "./resize.ts";

const names = makeResourceNames();

function pod(containers: readonly string[], annotations: Record<string, string>): V1Pod {
  const request = JSON.stringify(containers.map((name) => ({ gpus: 1, containers: [name] })));
  const own = containers.length === 0 ? {} : { "millpond.dev/request": request };
  return { metadata: { name: "p", annotations: { ...own, ...annotations } } };
}

const said = (after: V1Pod, before?: V1Pod): string => {
  try {
    checkResizes(names, after, before);
    return "";
  } catch (error) {
    return error instanceof Error ? error.message : String(error);
  }
};

test.each([
  [["main"], { "millpond.dev/resize": "memory=24Gi,compute=50" }, ""],
  [["main"], { "millpond.dev/resize.main": "compute=20" }, ""],
  [["a", "b"], { "millpond.dev/resize.b": "memory=1Gi" }, ""],
  [["main"], { "millpond.dev/resize": "big" }, "is not a size"],
  [["main"], { "millpond.dev/resize": "compute=0" }, 'millpond.dev/resize: "0" is'],
  [["main"], { "millpond.dev/resize": "compute=101" }, "MILLPOND_E_INVALID"],
  [["main"], { "millpond.dev/resize": "compute=-5" }, "MILLPOND_E_INVALID"],
  [["main"], { "millpond.dev/resize.other": "compute=20" }, 'the container "other" has no part of the pool'],
  [
    ["a", "b"],
    { "millpond.dev/resize": "memory=1Gi" },
    "Write millpond.dev/resize.a or millpond.dev/resize.b.",
  ],
  // For ResourceClaims that users write.
  [[], { "millpond.dev/resize": "memory=1Gi" }, "The size of a ResourceClaim cannot be changed"],
] as const)("of the containers %j a pod with %j is told: %s", (containers, annotations, message) => {
  const after = pod(containers, annotations);
  for (const before of [undefined, pod(containers, {})]) {
    if (message === "") expect(said(after, before)).toBe("");
    else expect(said(after, before)).toContain(message);
  }
  // An annotation that a pod had before does not block it.
  expect(said(after, after)).toBe("");
});
