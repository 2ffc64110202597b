// SPDX-License-Identifier: Apache-2.0

// Validates a pod that uses the pool, after all changes at its creation, and its later changes.

import { millpondError, quote } from "@millpond/api";
import type { KubernetesObject, V1Pod, V1ResourceRequirements } from "@kubernetes/client-node";
import { parseSlices } from "../request/pod-request.ts";
import { extendedClaim, parseUserClaims, type UserClaim } from "../request/user-claims.ts";
import type { Allocation } from "../allocation.ts";
import { keysOf, kindOfResource, type ResourceNames } from "../request/resource-names.ts";
import { checkResizes } from "./resize.ts";
import { refuseForeignClaims, refuseForeignSecrets, refuseGuardedPaths, refuseOwnPaths } from "./guarded.ts";

/**
 * @param where.isOwn Whether the pod is in Millpond's own namespace.
 * @throws MILLPOND_E_INVALID if the pod must not be created like this
 */
export function validateCreation(
  names: ResourceNames,
  allocation: Allocation,
  pod: V1Pod,
  where: { readonly isOwn: boolean },
): void {
  const keys = keysOf(names);
  const { annotations = {}, labels = {} } = pod.metadata ?? {};
  const containers = [...(pod.spec?.containers ?? []), ...(pod.spec?.initContainers ?? [])];
  const request = annotations[keys.request];
  const written = annotations[keys.claims];
  if (labels[keys.managed] !== undefined && request === undefined && written !== undefined) {
    checkUserClaims(pod, parseUserClaims(written), annotations[keys.id]);
    refuseForeignClaims(pod, undefined);
    refuseGuardedPaths(pod);
    refuseForeignSecrets(pod, annotations[keys.id]);
    return;
  }
  if (labels[keys.managed] === undefined || request === undefined) {
    const asking = containers.find(({ resources }) => askedResource(names, resources) !== undefined);
    const isOurs =
      labels[keys.managed] !== undefined || Object.keys(annotations).some((key) => isOwnKey(names, key));
    if (asking === undefined && !isOurs) {
      if (where.isOwn) return;
      refuseOwnPaths(pod, names.domain);
      refuseForeignSecrets(pod, undefined);
      return;
    }
    throw millpondError(
      "MILLPOND_E_INVALID",
      asking === undefined
        ? `the pod has the label ${keys.managed} or an annotation of ${names.domain}, and asks for nothing`
        : `the container ${quote(asking.name)} asks for the pool, and Millpond's webhook has not prepared the pod`,
      {
        remedy:
          asking === undefined
            ? `Give a container a limit such as ${names.resources.vgpu[0]}: 1, or leave it out.`
            : "Another webhook has added it afterwards, or the label is missing that this cluster wants of such pods.",
      },
    );
  }
  checkResizes(names, pod, undefined);
  const slices = parseSlices(request);
  const known = new Set(slices.flatMap((slice) => slice.containers));
  for (const { name, resources } of containers) {
    for (const resource of Object.keys(resources?.limits ?? {})) {
      const isKept =
        allocation === "device-plugin" && resource === names.resources.vgpu[0] && known.has(name);
      if (kindOfResource(names, resource) !== undefined && !isKept) {
        throw millpondError(
          "MILLPOND_E_INVALID",
          `the container ${quote(name)} got a limit of ${resource} after Millpond's webhook had seen the pod`,
          { remedy: "Set the limit in the pod itself, not through a later admission webhook." },
        );
      }
    }
  }
  refuseForeignClaims(pod, annotations[keys.id]);
  refuseGuardedPaths(pod);
  refuseForeignSecrets(pod, annotations[keys.id]);
}

/** Users could write the webhook's annotations on their ResourceClaims: these grant nothing, and are checked. */
function checkUserClaims({ spec }: V1Pod, claims: readonly UserClaim[], id: string | undefined): void {
  const isKnown = claims.every(
    ({ claim }) => claim === extendedClaim || spec?.resourceClaims?.some(({ name }) => name === claim),
  );
  if (isKnown && /^[0-9a-f]{16}$/.test(id ?? "")) return;
  throw millpondError("MILLPOND_E_INVALID", "the pod's annotations claims and id are not Millpond's", {
    remedy: "Leave them out: they are made from its ResourceClaims.",
  });
}

/**
 * The metadata of the operator's ResourceClaims identifies them as such; objects that others write may not have that
 * metadata.
 *
 * @param before The previous object; one without metadata if there was none.
 * @throws MILLPOND_E_FORBIDDEN
 */
export function validateClaimMetadata(
  names: ResourceNames,
  before: KubernetesObject,
  after: KubernetesObject,
): void {
  for (const list of ["annotations", "labels"] as const) {
    const old = before.metadata?.[list] ?? {};
    const now = after.metadata?.[list] ?? {};
    for (const key of new Set([...Object.keys(old), ...Object.keys(now)])) {
      if (isOwnKey(names, key) && old[key] !== now[key]) throw fixed(`the ${list.slice(0, -1)} ${key}`);
    }
  }
}

/**
 * ResourceClaims that Kubernetes makes from a template get the labels and annotations in it.
 *
 * @throws MILLPOND_E_FORBIDDEN
 */
export function validateTemplate(names: ResourceNames, template: KubernetesObject): void {
  const { spec } = template as { readonly spec?: { readonly metadata?: KubernetesObject["metadata"] } };
  validateClaimMetadata(names, {}, { metadata: spec?.metadata ?? {} });
}

function isOwnKey({ domain }: ResourceNames, key: string): boolean {
  return key.startsWith(`${domain}/`);
}

/**
 * @param isOperator Whether Millpond's operator makes the change.
 * @throws MILLPOND_E_FORBIDDEN, MILLPOND_E_INVALID
 */
export function validateChange(names: ResourceNames, before: V1Pod, after: V1Pod, isOperator: boolean): void {
  const keys = keysOf(names);
  checkResizes(names, after, before);
  if (isOperator) return;
  // The label selects a queue just like the annotation, which is checked when the pod is created.
  for (const key of [keys.managed, keys.queue]) {
    if (before.metadata?.labels?.[key] !== after.metadata?.labels?.[key]) throw fixed(`the label ${key}`);
  }
  const old = before.metadata?.annotations ?? {};
  const now = after.metadata?.annotations ?? {};
  for (const key of new Set([...Object.keys(old), ...Object.keys(now)])) {
    if (!isOwnKey(names, key) || key === keys.resize || key.startsWith(`${keys.resize}.`)) continue;
    if (old[key] !== now[key]) throw fixed(`the annotation ${key}`);
  }
  const hadGate = before.spec?.schedulingGates?.some(({ name }) => name === keys.gate) ?? false;
  const hasGate = after.spec?.schedulingGates?.some(({ name }) => name === keys.gate) ?? false;
  if (hadGate && !hasGate) throw fixed(`the scheduling gate ${keys.gate}`);
}

/**
 * Containers that are added to a running pod get no part of the pool, and no token except the pod's own.
 *
 * @throws MILLPOND_E_FORBIDDEN, MILLPOND_E_INVALID
 */
export function validateDebugging(names: ResourceNames, pod: V1Pod): void {
  const asking = pod.spec?.ephemeralContainers?.find(
    ({ resources }) => askedResource(names, resources) !== undefined,
  );
  if (asking !== undefined) {
    throw millpondError(
      "MILLPOND_E_INVALID",
      `the ephemeral container ${quote(asking.name)} asks for the pool`,
      {
        remedy: "Run it in a separate pod.",
      },
    );
  }
  refuseForeignSecrets(pod, pod.metadata?.annotations?.[keysOf(names).id]);
}

/** The first resource of the pool among limits and requests. */
function askedResource(
  names: ResourceNames,
  resources: V1ResourceRequirements | undefined,
): string | undefined {
  return [...Object.keys(resources?.limits ?? {}), ...Object.keys(resources?.requests ?? {})].find(
    (name) => kindOfResource(names, name) !== undefined,
  );
}

function fixed(what: string): Error {
  return millpondError("MILLPOND_E_FORBIDDEN", `${what} is Millpond's and must not be changed`, {
    remedy: "Keep it; change a pod's size with the annotation resize.",
  });
}
