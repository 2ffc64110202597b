// SPDX-License-Identifier: Apache-2.0

// Pods that the webhook has prepared and to which their limits come back: from a LimitRange, which API servers apply once
// more after a webhook, or from `kubectl apply` of the manifest of a pod that exists. A pure function.

import { isDeepStrictEqual } from "node:util";
import { errorCodeOf } from "@millpond/api";
import type { V1Container, V1EnvVar, V1Pod } from "@kubernetes/client-node";
import { parseSlices, type PodSlice, sameSlice } from "../request/pod-request.ts";
import { keysOf, type ResourceNames } from "../request/resource-names.ts";
import { readSlice, withoutSlice } from "../request/slice.ts";
import {
  extendVariables,
  type InjectionPolicy,
  type JsonPatchOperation,
  keptResources,
} from "./mutate-pod.ts";

/**
 * The patch that takes limits of the pool away again. Limits that differ from those of the request stay, so that API servers refuse
 * the change.
 *
 * @param before The pod before the change; undefined: it is being created.
 */
export function mutateAgain(
  policy: InjectionPolicy,
  pod: V1Pod,
  before: V1Pod | undefined,
): JsonPatchOperation[] {
  const { names } = policy;
  const keys = keysOf(names);
  const { annotations } = (before ?? pod).metadata ?? {};
  const request = annotations?.[keys.request];
  if (request === undefined && annotations?.[keys.claims] === undefined) return [];
  const slices = request === undefined ? [] : parseSlices(request);
  const patch: JsonPatchOperation[] = [];
  for (const list of ["containers", "initContainers"] as const) {
    for (const [position, container] of (pod.spec?.[list] ?? []).entries()) {
      const path = `/spec/${list}/${position}`;
      const add = (member: "resources" | "env", value: unknown): void => {
        if (!isDeepStrictEqual(value, container[member]))
          patch.push({ op: "add", path: `${path}/${member}`, value });
      };
      const slice = slices.find(({ containers }) => containers.includes(container.name));
      const isSame = before === undefined || asksFor(names, container, slice);
      if (slice !== undefined && isSame) {
        const { resources = {} } = container;
        add(
          "resources",
          withoutSlice(names, resources as Record<string, unknown>, keptResources(policy, slice)),
        );
      }
      const old = before?.spec?.[list]?.find(({ name }) => name === container.name)?.env;
      if (old !== undefined) add("env", variablesAsBefore(container, old));
    }
  }
  return patch;
}

/** Whether the limits of a container are those by which the pod was created. */
function asksFor(names: ResourceNames, container: V1Container, slice: PodSlice | undefined): boolean {
  try {
    const asked = readSlice(names, container);
    return asked !== undefined && slice !== undefined && sameSlice(asked, slice.slice);
  } catch (error) {
    // The API server refuses the change with its own reason.
    if (errorCodeOf(error) === undefined) throw error;
    return false;
  }
}

/** A container's variables, of which those that the webhook has extended have their extended value again. */
function variablesAsBefore(
  { name: container, env = [] }: V1Container,
  before: readonly V1EnvVar[],
): V1EnvVar[] {
  const extended = extendVariables(container, env);
  const known = new Map(before.map((variable) => [variable.name, variable]));
  const restored = env.map((variable) => {
    const old = known.get(variable.name);
    const value = extended.find(({ name }) => name === variable.name)?.value;
    return old !== undefined && value !== undefined && old.value === value ? old : variable;
  });
  const isOrder = restored.length === known.size && restored.every(({ name }) => known.has(name));
  const order = before.map(({ name }) => name);
  return isOrder ? restored.sort((a, b) => order.indexOf(a.name) - order.indexOf(b.name)) : restored;
}
