// SPDX-License-Identifier: Apache-2.0

// The manifests of an installation, as `kubectl apply -k` would make them.

import { readFileSync } from "node:fs";
import { join } from "node:path";
import { KubernetesObjectApi, type KubernetesObject } from "@kubernetes/client-node";
import { parseAllDocuments, parse } from "yaml";
import { type Cluster, readVersion, statusOf } from "../cluster/cluster.ts";
import { renderChart } from "./helm-chart.ts";

interface Kustomization {
  readonly namespace: string;
  readonly resources: readonly string[];
}

const clusterScoped = new Set([
  "Namespace",
  "ClusterRole",
  "ClusterRoleBinding",
  "DeviceClass",
  "MutatingWebhookConfiguration",
  "ValidatingWebhookConfiguration",
]);

/** All objects of a folder of `deploy`, in the order in which they must be created. */
export function readManifests(folder: string): KubernetesObject[] {
  const directory = join(import.meta.dirname, "..", "..", "deploy", folder);
  const { namespace, resources } = parse(
    readFileSync(join(directory, "kustomization.yaml"), "utf8"),
  ) as Kustomization;
  return resources.flatMap((file) =>
    parseAllDocuments(readFileSync(join(directory, file), "utf8")).map((document) => {
      const object = document.toJS() as KubernetesObject;
      const isScoped = clusterScoped.has(object.kind ?? "");
      return { ...object, metadata: { ...object.metadata, ...(isScoped ? {} : { namespace }) } };
    }),
  );
}

/**
 * The objects of a folder as they are for a version of Kubernetes, for which the chart makes the same as the folders of
 * earlier versions.
 */
export function manifestsFor(folder: string, minor: number): KubernetesObject[] {
  const idOf = ({ kind, metadata }: KubernetesObject) => `${kind} ${metadata?.name}`;
  const earlier = new Map(renderChart({ minor }).map((object) => [idOf(object), object]));
  return readManifests(folder).map((object) => earlier.get(idOf(object)) ?? object);
}

/** Creates the objects of a folder; kinds that the API server does not support are left out, and returned. */
export async function install(cluster: Cluster, folder: string): Promise<string[]> {
  const api = KubernetesObjectApi.makeApiClient(cluster.config);
  const missing: string[] = [];
  const { minor } = await readVersion(cluster);
  for (const object of manifestsFor(folder, minor)) {
    try {
      await api.create(object);
    } catch (error) {
      const isUnknown = statusOf(error) === 404 || /Unrecognized API version and kind/.test(String(error));
      if (!isUnknown) throw error;
      missing.push(object.kind ?? "");
    }
  }
  return missing;
}
