// SPDX-License-Identifier: Apache-2.0

import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import type { KubernetesObject } from "@kubernetes/client-node";
import { expect, test } from "vitest";
import { parse, parseAllDocuments } from "yaml";
import manifest from "../../package.json" with { type: "json" };
import { chartDirectory, renderChart, type RenderOptions, usedValues } from "./testing/helm-chart.ts";
import { readManifests } from "./testing/manifests.ts";

const nameOf = ({ kind, metadata }: KubernetesObject) => `${kind} ${metadata?.name}`;

function byName(objects: readonly KubernetesObject[]) {
  return Object.fromEntries(objects.map((object) => [nameOf(object), object]));
}

const plain = () => byName([...readManifests("base"), ...readManifests("pool")]);

test("the chart makes what the manifests make", () => {
  const { "Namespace millpond-system": namespace, ...objects } = plain();
  expect(namespace).toBeDefined();
  expect(byName(renderChart())).toEqual(objects);
});

test("values choose image, names, replicas and where the pool is", () => {
  const text = (options: RenderOptions) => JSON.stringify(renderChart(options));
  const elsewhere = renderChart({ values: { pool: { enabled: false, secret: "pool-b" } } });
  expect(elsewhere.map(({ kind }) => kind)).not.toContain("StatefulSet");
  expect(JSON.stringify(elsewhere)).toContain('"secretName":"pool-b"');
  expect(elsewhere.length).toBe(readManifests("base").length - 1);
  const image = text({
    values: { image: { repository: "registry.example.org/millpond", tag: "9", pullPolicy: "Always" } },
  });
  expect(image).not.toContain("millpond/millpond:");
  expect(image.match(/"registry\.example\.org\/millpond:9","imagePullPolicy":"Always"/g)?.length).toBe(6);
  const named = text({ values: { domain: "gpu.example.org", resourceNames: "vgpu=pool.kubernetes.io/gpu" } });
  expect(named).toContain("--domain=gpu.example.org");
  expect(named).toContain("--resource-names=vgpu=pool.kubernetes.io/gpu");
  expect(named).toContain('device.driver == \\"gpu.example.org\\"');
  expect(text({ namespace: "gpus" })).not.toContain("millpond-system");
  expect(text({ values: { allocation: "device-plugin" } })).not.toContain("DeviceClass");
  expect(text({ hasDeviceClasses: false })).not.toContain('"kind":"DeviceClass"');
  expect(renderChart({ values: { networkPolicies: false } }).map(({ kind }) => kind)).not.toContain(
    "NetworkPolicy",
  );
});

test("software GPUs need no label and no runtime class", () => {
  const objects = byName(renderChart({ values: { pool: { softGpus: 2 } } }));
  const specOf = (name: string): Record<string, unknown> =>
    (objects[`DaemonSet ${name}`] as { spec?: { template?: { spec?: Record<string, unknown> } } }).spec
      ?.template?.spec ?? {};
  for (const name of ["millpond-agent", "millpond-workers"]) {
    expect(specOf(name)).toHaveProperty("containers");
    expect(specOf(name)).not.toHaveProperty("nodeSelector");
    expect(specOf(name)).not.toHaveProperty("runtimeClassName");
  }
  const spec = specOf("millpond-agent");
  const [{ env = [] } = {}] = (spec["containers"] ?? []) as { env?: { name: string; value?: string }[] }[];
  expect(env.find(({ name }) => name === "MILLPOND_SOFTGPU_DEVICES")?.value).toBe("2");
  expect(env.find(({ name }) => name === "DRIVER")?.value).toMatch(/softgpu/);
});

test("every value is used, every one that is used is there, and the versions are the project's", () => {
  const leaves = (tree: object, path: string): string[] =>
    Object.entries(tree).flatMap(([key, value]) => {
      const name = path === "" ? key : `${path}.${key}`;
      // The keys of a node selector belong to the cluster.
      return typeof value === "object" && key !== "nodeSelector" ? leaves(value as object, name) : [name];
    });
  const values = parse(readFileSync(join(chartDirectory, "values.yaml"), "utf8")) as object;
  expect(leaves(values, "").sort()).toEqual(usedValues());
  expect(parse(readFileSync(join(chartDirectory, "Chart.yaml"), "utf8"))).toMatchObject({
    apiVersion: "v2",
    name: "millpond",
    type: "application",
    version: manifest.version,
    appVersion: manifest.version,
  });
});

const hasHelm = (() => {
  try {
    execFileSync("helm", ["version"], { stdio: "ignore" });
    return true;
  } catch {
    return false;
  }
})();

test.skipIf(!hasHelm)(
  `Helm itself renders and lints the same${hasHelm ? "" : " (skipped: there is no helm)"}`,
  () => {
    const args = ["millpond", chartDirectory, "--namespace", "millpond-system"];
    const version = ["--api-versions", "resource.k8s.io/v1/DeviceClass", "--kube-version", "1.36.2"];
    const text = execFileSync("helm", ["template", ...args, ...version], { encoding: "utf8" });
    const objects = parseAllDocuments(text).map((document) => document.toJS() as KubernetesObject | null);
    expect(byName(objects.filter((object) => object !== null))).toEqual(byName(renderChart()));
    expect(execFileSync("helm", ["lint", "--strict", chartDirectory], { encoding: "utf8" })).toContain(
      "0 chart(s) failed",
    );
  },
);
