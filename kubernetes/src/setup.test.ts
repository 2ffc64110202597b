// SPDX-License-Identifier: Apache-2.0

import { execFileSync } from "node:child_process";
import { X509Certificate } from "node:crypto";
import { join } from "node:path";
import { KubernetesObjectApi, type V1Secret } from "@kubernetes/client-node";
import { describe, expect, test } from "vitest";
import { connectCluster, statusOf } from "./cluster/cluster.ts";
import { setUp } from "./setup.ts";
import { findKubernetes, withKubernetes } from "./testing/control-plane.ts";
import manifest from "../../package.json" with { type: "json" };
import { install, manifestsFor, readManifests } from "./testing/manifests.ts";
import { systemNamespace, TestCluster } from "./testing/test-cluster.ts";

const containersOf = (object: object) => {
  const { spec } = object as { spec?: { template?: { spec?: { containers?: Record<string, unknown>[] } } } };
  return spec?.template?.spec?.containers ?? [];
};

test("every container of the installation drops what it does not need", () => {
  const objects = [...readManifests("base"), ...readManifests("pool")];
  const containers = objects.flatMap((object) => containersOf(object));
  expect(containers.length).toBeGreaterThanOrEqual(5);
  for (const { securityContext, image, command } of containers) {
    expect(securityContext).toMatchObject({
      allowPrivilegeEscalation: false,
      capabilities: { drop: ["ALL"] },
    });
    expect(image).toBe(`millpond/millpond:${manifest.version}`);
    expect(command).toEqual(expect.arrayContaining(["/opt/millpond/node/bin/node"]));
  }
});

test("no part may read Secrets of pods, or change rights", () => {
  const rules = [...readManifests("base"), ...readManifests("pool")].flatMap(
    (object) =>
      (object as { rules?: { resources: string[]; verbs: string[]; resourceNames?: string[] }[] }).rules ??
      [],
  );
  expect(rules.length).toBeGreaterThan(10);
  for (const { resources, verbs, resourceNames } of rules) {
    expect([...resources, ...verbs]).not.toContain("*");
    expect(resources.join()).not.toMatch(/roles|bindings|tokenreviews|pods\/exec/);
    if (resources.includes("secrets") && resourceNames === undefined) expect(verbs).toEqual(["create"]);
  }
});

const kubectl = (() => {
  try {
    execFileSync("kubectl", ["version", "--client"], { stdio: "ignore" });
    return true;
  } catch {
    return false;
  }
})();

test.skipIf(!kubectl)(
  `kustomize renders every folder${kubectl ? "" : " (skipped: there is no kubectl)"}`,
  () => {
    for (const [folder, kinds] of [
      ["base", /Deployment/],
      ["pool", /StatefulSet/],
      ["trial", /softgpu\/libcuda/],
      ["requeue", /millpond-operator-requeue/],
    ] as const) {
      const rendered = execFileSync(
        "kubectl",
        ["kustomize", join(import.meta.dirname, "..", "deploy", folder)],
        {
          encoding: "utf8",
        },
      );
      expect(rendered).toMatch(kinds);
      expect(rendered).toContain("namespace: millpond-system");
    }
  },
);

describe.skipIf(findKubernetes() === undefined)(`with a real control plane${withKubernetes}`, () => {
  test("the API server takes the manifests, the pool gets its Secret once, and its parts may not read it by their rights", async () => {
    await using cluster = await TestCluster.start({});
    expect(await install(cluster.plane.cluster, "pool")).toEqual([]);
    const account = await cluster.connectAs("millpond-setup");
    const options = {
      cluster: account,
      namespace: systemNamespace,
      name: "millpond-pool",
      controllerHost: "millpond-controller.millpond-system.svc",
    };
    expect(await setUp(options)).toBe(true);
    expect(await setUp(options)).toBe(false);
    const secret: V1Secret = await cluster.core.readNamespacedSecret({
      name: "millpond-pool",
      namespace: systemNamespace,
    });
    const read = (key: string) => Buffer.from(secret.data?.[key] ?? "", "base64").toString();
    const certificate = new X509Certificate(read("tls.crt"));
    expect(certificate.checkHost(new URL(read("controller")).hostname)).toBeDefined();
    expect(certificate.verify(new X509Certificate(read("ca.crt")).publicKey)).toBe(true);
    expect(read("token")).toMatch(/^mp-admin-/);
    for (const name of ["millpond-operator", "millpond-node"]) {
      const other = await cluster.connectAs(name);
      const refused: unknown = await other.core
        .readNamespacedSecret({ name: "millpond-pool", namespace: systemNamespace })
        .catch((error: unknown) => error);
      expect(statusOf(refused)).toBe(403);
    }
    // Its objects are deleted with it.
    const api = KubernetesObjectApi.makeApiClient(connectCluster(cluster.plane.cluster.config).config);
    for (const object of ["pool", "base"].flatMap((folder) => manifestsFor(folder, cluster.minor))) {
      await api.delete(object).catch((error: unknown) => {
        if (statusOf(error) !== 404) throw error;
      });
    }
    const left = await cluster.plane.cluster.admission.listMutatingWebhookConfiguration();
    expect(left.items.map(({ metadata }) => metadata?.name)).not.toContain("millpond");
  });
});
