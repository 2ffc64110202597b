// SPDX-License-Identifier: Apache-2.0

// Pods that replace others: what the webhook keeps of a pod as its author wrote it, and the replacement that is built
// from that.

import { millpondError } from "@millpond/api";
import type { V1Pod, V1PodSpec } from "@kubernetes/client-node";
import { keysOf, type ResourceNames } from "../request/resource-names.ts";

interface Original {
  readonly labels: Readonly<Record<string, string>>;
  readonly annotations: Readonly<Record<string, string>>;
  readonly spec: V1PodSpec;
}

/** The annotations of an object are limited to 256 KiB in total. */
const maxOriginalBytes = 96 << 10;
const maxNameLength = 253;

/** @throws MILLPOND_E_INVALID if the pod is too large to be kept in an annotation of itself */
export function formatOriginal(names: ResourceNames, { metadata, spec }: V1Pod): string {
  const { [keysOf(names).follows]: _, ...annotations } = metadata?.annotations ?? {};
  const text = JSON.stringify({ labels: metadata?.labels ?? {}, annotations, spec });
  const bytes = Buffer.byteLength(text);
  if (bytes <= maxOriginalBytes) return text;
  throw millpondError(
    "MILLPOND_E_INVALID",
    `the pod has ${bytes} bytes, which is more than the ${maxOriginalBytes} of a pod that another can follow`,
    { remedy: "Leave the annotation requeue out and make the pod by a Job, or move texts into a ConfigMap." },
  );
}

/**
 * The replacement of a pod. A pure function.
 *
 * @returns undefined if the pod is not to be replaced
 */
export function followerOf(names: ResourceNames, pod: V1Pod, name: string): V1Pod | undefined {
  const { metadata } = pod;
  const keys = keysOf(names);
  const text = metadata?.annotations?.[keys.original];
  if (text === undefined) return undefined;
  const { labels, annotations, spec } = JSON.parse(text) as Original;
  // The API server computes both from the class, and refuses other values.
  const { priority: _, preemptionPolicy: __, nodeName: ___, ...rest } = spec;
  return {
    apiVersion: "v1",
    kind: "Pod",
    metadata: {
      name,
      ...(metadata?.namespace === undefined ? {} : { namespace: metadata.namespace }),
      labels: { ...labels },
      annotations: { ...annotations, [keys.follows]: metadata?.uid ?? "" },
    },
    spec: rest,
  };
}

/** `train`, `train-r1`, `train-r2`, … */
export function nextName(name: string): string {
  const [, base = name, count = "0"] = /^(.+)-r(\d{1,6})$/.exec(name) ?? [];
  const suffix = `-r${Number(count) + 1}`;
  return `${base.slice(0, maxNameLength - suffix.length).replace(/[-.]+$/, "")}${suffix}`;
}
