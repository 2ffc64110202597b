// SPDX-License-Identifier: Apache-2.0

import { execFileSync, spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import type { KubernetesObject, V1NetworkPolicy, V1PodTemplateSpec } from "@kubernetes/client-node";
import { expect, test } from "vitest";
import { parse, parseAllDocuments } from "yaml";
import manifest from "../../package.json" with { type: "json" };
import { inRoot } from "../../scripts/lib/paths.ts";
import {
  chartDirectory,
  renderChart,
  type RenderOptions,
  usedValues,
  valueRules,
} from "./testing/helm-chart.ts";
import { readManifests } from "./testing/manifests.ts";

interface Workload extends KubernetesObject {
  readonly spec?: { readonly template?: V1PodTemplateSpec };
}

interface Rules {
  readonly properties?: Readonly<Record<string, Rules>>;
}

const nameOf = ({ kind, metadata }: KubernetesObject) => `${kind} ${metadata?.name}`;

function byName(objects: readonly KubernetesObject[]) {
  return Object.fromEntries(objects.map((object) => [nameOf(object), object]));
}

const plain = () => byName([...readManifests("base"), ...readManifests("pool")]);

function has(program: string, ...args: readonly string[]): boolean {
  return spawnSync(program, args, { stdio: "ignore" }).status === 0;
}
const hasHelm = has("helm", "version");
const hasKubectl = has("kubectl", "version", "--client");

/** Without the labels that kustomize adds to every object. */
function unlabelled(object: KubernetesObject): KubernetesObject {
  const { labels, ...metadata } = object.metadata ?? {};
  const { "app.kubernetes.io/part-of": _, ...others } = labels ?? {};
  return {
    ...object,
    metadata: { ...metadata, ...(Object.keys(others).length > 0 ? { labels: others } : {}) },
  };
}

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
  expect(text({ minor: 33 })).not.toContain('"kind":"DeviceClass"');
  expect(byName(renderChart({ values: { operator: { requeue: true } } }))).toEqual(
    byName([...renderChart(), ...readManifests("requeue")]),
  );
  expect(renderChart({ values: { networkPolicies: false } }).map(({ kind }) => kind)).not.toContain(
    "NetworkPolicy",
  );
});

test.skipIf(!hasKubectl).each([33, 20])(
  `for Kubernetes 1.%i the chart makes what the manifests for it make${hasKubectl ? "" : " (skipped: there is no kubectl)"}`,
  (minor) => {
    const folder = inRoot("kubernetes", "deploy", minor > 20 ? "before-1.34" : "before-1.21");
    const rendered = ["base", "pool"].flatMap((part) =>
      parseAllDocuments(execFileSync("kubectl", ["kustomize", join(folder, part)], { encoding: "utf8" })).map(
        (document) => document.toJS() as KubernetesObject,
      ),
    );
    const { "Namespace millpond-system": namespace, ...objects } = byName(rendered.map(unlabelled));
    expect(namespace).toBeDefined();
    expect(Object.keys(objects)).not.toContain("DeviceClass millpond.dev");
    expect(byName(renderChart({ minor }))).toEqual(objects);
  },
);

test.skipIf(!hasKubectl).each([
  [36, "postgresql"],
  [33, "before-1.34/postgresql"],
  [20, "before-1.21/postgresql"],
] as const)(
  `with a database the chart makes for Kubernetes 1.%i what %s makes${hasKubectl ? "" : " (skipped: there is no kubectl)"}`,
  (minor, folder) => {
    const path = inRoot("kubernetes", "deploy", ...folder.split("/"));
    const text = execFileSync("kubectl", ["kustomize", path], { encoding: "utf8" });
    const wanted = byName(parseAllDocuments(text).map((each) => unlabelled(each.toJS() as KubernetesObject)));
    const rendered = byName(renderChart({ minor, values: { pool: { database: "millpond-database" } } }));
    expect(wanted).toHaveProperty(["Service millpond-controllers"]);
    for (const [name, object] of Object.entries(wanted)) expect(rendered[name], name).toEqual(object);
    const base = byName(renderChart({ minor, values: { pool: { enabled: false } } }));
    expect(Object.keys(rendered).sort()).toEqual([...Object.keys(base), ...Object.keys(wanted)].sort());
  },
);

test("each part of Millpond's own is closed but for ports that it serves to others", () => {
  const objects = Object.values(plain()) as Workload[];
  const policies = objects.filter(({ kind }) => kind === "NetworkPolicy") as V1NetworkPolicy[];
  const open = objects.flatMap(({ metadata, spec }) => {
    const pod = spec?.template?.spec;
    // Policies do not apply to pods on the host's network.
    if (pod === undefined || pod.hostNetwork === true) return [];
    const labels = spec?.template?.metadata?.labels ?? {};
    const own = policies.filter((policy) =>
      Object.entries(policy.spec?.podSelector?.matchLabels ?? {}).every(
        ([key, value]) => labels[key] === value,
      ),
    );
    expect(own.map((policy) => policy.spec?.policyTypes)).toEqual([["Ingress"]]);
    const served = pod.containers.flatMap(({ ports = [] }) =>
      ports.map(({ containerPort }) => containerPort),
    );
    const ports = (own[0]?.spec?.ingress ?? []).flatMap((rule) => (rule.ports ?? []).map(({ port }) => port));
    expect(ports).toEqual(served);
    return [[metadata?.name ?? "", ports] as const];
  });
  expect(Object.fromEntries(open)).toEqual({
    "millpond-agent": [],
    "millpond-controller": [7170],
    "millpond-node": [],
    "millpond-operator": [8443],
    "millpond-setup": [],
  });
});

test("parts run only on nodes that can run the programs of the image", () => {
  const machine = { "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64" };
  const gpu = { "millpond.dev/gpu": "true" };
  const chosen = Object.values(plain()).flatMap((object) => {
    const { template } = (object as Workload).spec ?? {};
    return template === undefined ? [] : [[object.metadata?.name, template.spec?.nodeSelector]];
  });
  expect(Object.fromEntries(chosen)).toEqual({
    "millpond-operator": machine,
    "millpond-node": machine,
    "millpond-controller": machine,
    "millpond-setup": machine,
    // Administrators choose the nodes with GPUs.
    "millpond-agent": gpu,
    "millpond-workers": gpu,
  });
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

test.each<[string, Readonly<Record<string, unknown>>]>([
  ["/pool/controllers", { pool: { database: "db", controllers: 6 } }],
  ["/pool/controllers", { pool: { database: "db", controllers: 0 } }],
  ["/pool/controllers", { pool: { controllers: "two" } }],
  ["/operator/replicas", { operator: { replicas: 0 } }],
  ["/operator/requeue", { operator: { requeue: "yes" } }],
  ["/allocation", { allocation: "device_plugin" }],
  ["/domain", { domain: "Millpond" }],
  ["/resourceNames", { resourceNames: "vgpu" }],
  ["/pool/softGpus", { pool: { softGpus: 65 } }],
  ["/pool/storage", { pool: { storage: "ten" } }],
  ["/pool/secret", { pool: { secret: "" } }],
  ["/pool/driver", { pool: { driver: "libcuda.so.1" } }],
  ["/pool/nodeSelector", { pool: { nodeSelector: { gpu: true } } }],
  ["/image/pullPolicy", { image: { pullPolicy: "Sometimes" } }],
  ["must NOT have additional properties", { pool: { softGPUs: 2 } }],
  ["must NOT have additional properties", { replicas: 3 }],
])("a wrong value of %s is refused", (path, values) => {
  expect(() => renderChart({ values })).toThrow(path);
});

test("the rules for values know each value, and those of a chart that depends on this one", () => {
  const named = ({ properties = {} }: Rules, path = ""): string[] =>
    Object.entries(properties).flatMap(([key, below]) => {
      const name = path === "" ? key : `${path}.${key}`;
      return below.properties === undefined ? [name] : named(below, name);
    });
  expect(named(valueRules()).sort()).toEqual([...usedValues(), "global"].sort());
  expect(() =>
    renderChart({ values: { global: { registry: "example.org" }, image: { tag: 9 } } }),
  ).not.toThrow();
});

const helm = (...args: readonly string[]): string =>
  execFileSync("helm", args, { encoding: "utf8", stdio: "pipe" });

// Without a cluster, as in pipelines, Helm knows versions of groups, and no kinds.
test.skipIf(!hasHelm).each<readonly [minor: number, values: Readonly<Record<string, unknown>>]>([
  [36, {}],
  [33, {}],
  [20, {}],
  [36, { allocation: "device-plugin", networkPolicies: false }],
  [36, { pool: { enabled: false, secret: "elsewhere" } }],
  [36, { pool: { database: "db", controllers: 5 }, operator: { requeue: true, replicas: 3 } }],
  [36, { pool: { softGpus: 2 }, image: { tag: "9", pullPolicy: "Always" } }],
])(
  `Helm itself renders the same for 1.%i with %j${hasHelm ? "" : " (skipped: there is no helm)"}`,
  (minor, values) => {
    const settings = (tree: object, path = ""): string[] =>
      Object.entries(tree).flatMap(([key, value]: [string, unknown]) =>
        typeof value === "object" && value !== null
          ? settings(value, `${path}${key}.`)
          : ["--set", `${path}${key}=${String(value)}`],
      );
    const args = ["millpond", chartDirectory, "--namespace", "millpond-system"];
    const text = helm("template", ...args, "--kube-version", `1.${minor}.2`, ...settings(values));
    const objects = parseAllDocuments(text).map((document) => document.toJS() as KubernetesObject | null);
    expect(byName(objects.filter((object) => object !== null))).toEqual(
      byName(renderChart({ minor, values })),
    );
  },
);

test.skipIf(!hasHelm)(
  `Helm itself finds nothing wrong with the chart, and refuses wrong values${hasHelm ? "" : " (skipped: there is no helm)"}`,
  () => {
    expect(helm("lint", "--strict", chartDirectory)).toContain("0 chart(s) failed");
    for (const value of ["pool.controllers=6", "pool.softGPUs=2", "allocation=plugin"])
      expect(() => helm("template", "millpond", chartDirectory, "--set", value)).toThrow("the schema");
  },
);
