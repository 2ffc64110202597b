// SPDX-License-Identifier: Apache-2.0

// Compares the rights of the parts with their use, according to the API server's audit log of their service accounts.

import { readFileSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createClient } from "@connectrpc/connect";
import { describe, expect, test } from "vitest";
import { asMergePatch } from "./cluster/cluster.ts";
import { DRAPlugin } from "./gen/kubelet/dra_v1_pb.ts";
import { installClientLibrary } from "./node/client-library.ts";
import { DraPlugin } from "./node/dra-plugin.ts";
import { unixGrpcTransport } from "./node/unix-grpc.ts";
import { findKubernetes, withKubernetes } from "./testing/control-plane.ts";
import { readManifests } from "./testing/manifests.ts";
import { TestCluster } from "./testing/test-cluster.ts";
import { testLog } from "./testing/test-pool.ts";

interface Rule {
  readonly apiGroups: readonly string[];
  readonly resources: readonly string[];
  readonly verbs: readonly string[];
}

/** Rights that are needed rarely: `group/resource verb`. */
const seldom = new Set([
  // A node plugin that ends checks whether Millpond is being uninstalled.
  "apps/daemonsets get",
  // The webhooks' certificate is renewed.
  "/secrets patch",
  // Pods whose gang is their whole Job or JobSet need its size.
  "batch/jobs get",
  "jobset.x-k8s.io/jobsets get",
  // An event that is repeated after 30 s is counted.
  "/events patch",
  // A pod is read before its claim is ended because the pod seems to be missing.
  "/pods get",
  // If the records differ, or a pod is granted again, a ResourceClaim is recreated.
  "resource.k8s.io/resourceclaims get",
  "resource.k8s.io/resourceclaims delete",
  // Nodes of the pool change, and are removed.
  "resource.k8s.io/resourceslices patch",
  "resource.k8s.io/resourceslices delete",
]);

function rightsOf(account: string): string[] {
  const objects = readManifests("base") as unknown as {
    kind: string;
    metadata: { name: string };
    rules?: readonly Rule[];
  }[];
  const rights = objects
    .filter(({ kind, metadata }) => kind.endsWith("Role") && metadata.name === account)
    .flatMap(({ rules = [] }) => rules)
    .flatMap(({ apiGroups, resources, verbs }) =>
      apiGroups.flatMap((group) =>
        resources.flatMap((resource) => verbs.map((verb) => `${group}/${resource} ${verb}`)),
      ),
    );
  return [...new Set(rights)].sort();
}

interface Call {
  readonly verb: string;
  readonly user: { readonly username: string };
  readonly objectRef?: {
    readonly resource: string;
    readonly subresource?: string;
    readonly apiGroup?: string;
  };
  readonly annotations?: Readonly<Record<string, string>>;
}

describe.skipIf(findKubernetes() === undefined)(`with a real control plane${withKubernetes}`, () => {
  test("parts have the rights that they use, and no others", async ({ skip }) => {
    await using cleanup = new AsyncDisposableStack();
    const cluster = cleanup.use(await TestCluster.start({ "gpu-a": [16n << 30n] }));
    skip(cluster.minor < 34, `Kubernetes 1.${cluster.minor} has no ResourceClaims`);
    const directory = mkdtempSync(join(tmpdir(), "millpond-rights-"));
    cleanup.defer(() => rmSync(directory, { recursive: true }));
    mkdirSync(join(directory, "source"));
    writeFileSync(join(directory, "source", "libcuda.so.1"), "");
    await cluster.startOperator();
    await cluster.addNode("worker-1");
    const { resource } = cluster.plane.cluster;
    await using _plugin = await DraPlugin.start({
      cluster: await cluster.connectAs("millpond-node"),
      names: cluster.names,
      library: installClientLibrary(join(directory, "source"), join(directory, "client")),
      kubeletDirectory: directory,
      cdiDirectory: join(directory, "cdi"),
      log: testLog,
    });
    const kubelet = createClient(
      DRAPlugin,
      unixGrpcTransport(join(directory, "plugins", "millpond.dev", "dra.sock")),
    );
    const isBound = async (name: string) =>
      (await cluster.pod(name))?.status?.conditions?.find(({ type }) => type === "millpond.dev/Bound")
        ?.status === "True";

    await cluster.createPod("limits", { "millpond.dev/vgpu": "1", "millpond.dev/memory": "1Gi" });
    await cluster.until("it is bound", () => isBound("limits"));
    const body = { metadata: { annotations: { "millpond.dev/resize": "memory=2Gi" } } };
    await cluster.core.patchNamespacedPod({ name: "limits", namespace: "default", body }, asMergePatch);
    const request = {
      name: "gpu",
      exactly: { deviceClassName: "millpond.dev", capacity: { requests: { memory: "1Gi", cores: "9" } } },
    };
    await resource.createNamespacedResourceClaimTemplate({
      namespace: "default",
      body: { metadata: { name: "own" }, spec: { spec: { devices: { requests: [request] } } } },
    });
    await cluster.createPod(
      "own",
      {},
      {
        spec: {
          resourceClaims: [{ name: "gpu", resourceClaimTemplateName: "own" }],
          containers: [{ name: "main", image: "x", resources: { claims: [{ name: "gpu" }] } }],
        },
      },
    );
    await cluster.until("that is bound, too", () => isBound("own"));
    const { items } = await resource.listNamespacedResourceClaim({ namespace: "default" });
    const claims = items.map(({ metadata }) => ({
      namespace: "default",
      name: metadata?.name ?? "",
      uid: metadata?.uid ?? "",
    }));
    const prepared = Object.values((await kubelet.nodePrepareResources({ claims })).claims);
    expect(prepared.map(({ error }) => error)).toEqual(["", ""]);
    const pool = cluster.pool.connect().claims;
    for (const { name } of (await pool.listClaims({})).claims) await pool.releaseClaim({ name });
    await cluster.until("pods without claims have ended", async () => {
      const pods = await cluster.core.listNamespacedPod({ namespace: "default" });
      return pods.items.length === 0;
    });

    const used = () => {
      const calls = readFileSync(cluster.plane.auditLog, "utf8")
        .split("\n")
        .filter((line) => line.endsWith("}"))
        .map((line) => JSON.parse(line) as Call);
      const byAccount = new Map<string, Set<string>>();
      for (const { verb, user, objectRef, annotations } of calls) {
        if (objectRef === undefined) continue;
        const what =
          objectRef.subresource === undefined
            ? objectRef.resource
            : `${objectRef.resource}/${objectRef.subresource}`;
        const right = `${objectRef.apiGroup ?? ""}/${what} ${verb}`;
        expect(annotations?.["authorization.k8s.io/decision"], `${user.username} ${right}`).toBe("allow");
        const account = user.username.split(":").at(-1) ?? "";
        byAccount.set(account, (byAccount.get(account) ?? new Set()).add(right));
      }
      return byAccount;
    };
    // Watches are logged when they end.
    for (const operator of cluster.operators.splice(0)) await operator[Symbol.asyncDispose]();
    await _plugin[Symbol.asyncDispose]();
    for (const account of ["millpond-operator", "millpond-node"]) {
      const unused = () =>
        rightsOf(account).filter((right) => !seldom.has(right) && used().get(account)?.has(right) !== true);
      await cluster.until(
        `${account} uses all of its rights`,
        () => {
          if (unused().length > 0) throw new Error(unused().join(", "));
          return Promise.resolve(true);
        },
        10_000,
      );
      const beyond = [...(used().get(account) ?? [])].filter((right) => !rightsOf(account).includes(right));
      expect(beyond).toEqual([]);
    }
  });
});
