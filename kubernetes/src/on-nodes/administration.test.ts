// SPDX-License-Identifier: Apache-2.0

// What administrators and users do around pods on a real node: quotas and defaults of namespaces, trial runs, commands of
// kubectl, other settings of pods.

import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { describeFailure } from "../cluster/cluster.ts";
import { describeOnRealNode } from "../testing/on-real-node.ts";
import { exampleContainer } from "../testing/real-cluster.ts";
import { endlessCommand, share } from "../testing/real-pods.ts";

const namespace = "default";
const patienceMs = 120_000;
const vectoradd = ["/usr/bin/vectoradd"];

describeOnRealNode("administration", { subnet: 8, needsKubectl: true }, (on) => {
  /** Log of a pod that has succeeded. */
  const successOf = async (name: string, at = namespace): Promise<string> => {
    await on.pods.hasPhase(name, "Succeeded", at);
    return await on.pods.logOf(name, "main", at);
  };

  test("a quota of vGPUs holds, and a pod beyond it waits with the quota as its reason, or is refused", async () => {
    const at = "limited";
    await on.pods.makeNamespace(at);
    const key =
      on.allocation === "dra"
        ? "millpond.dev.deviceclass.resource.k8s.io/devices"
        : "requests.millpond.dev/vgpu";
    const hard = { [key]: "1" };
    await on.cluster.core.createNamespacedResourceQuota({
      namespace: at,
      body: { metadata: { name: "one" }, spec: { hard } },
    });
    await on.cluster.until("the quota holds", async () => {
      const { status } = await on.cluster.core.readNamespacedResourceQuota({ namespace: at, name: "one" });
      return status?.used?.[key] === "0";
    });
    await on.pods.make("first", [exampleContainer("main", endlessCommand, share(25))], {}, { namespace: at });
    await on.pods.hasPhase("first", "Running", at);
    const second = [exampleContainer("main", vectoradd, share(25))];
    if (on.allocation === "dra") {
      await on.pods.make("second", second, {}, { namespace: at });
      await on.cluster.until("it says so", async () =>
        (await on.pods.reasonOf("second", at)).includes("exceeded quota"),
      );
      await on.pods.remove("first", at);
    } else {
      await expect(on.pods.make("second", second, {}, { namespace: at })).rejects.toThrow("exceeded quota");
      await on.pods.remove("first", at);
      await on.cluster.until("it is gone", async () => (await on.cluster.pod("first", at)) === undefined);
      await on.cluster.until("there is room", async () => {
        const made = on.pods.make("second", second, {}, { namespace: at });
        return await made.then(
          () => true,
          (error: unknown) => !describeFailure(error).includes("exceeded quota"),
        );
      });
    }
    expect(await successOf("second", at)).toMatch(/vectoradd: OK/);
    await on.cluster.core.deleteNamespace({ name: at });
  });

  test("a namespace's defaults give a vGPU to containers that ask for none", async () => {
    const at = "defaults";
    await on.pods.makeNamespace(at);
    const limits = [{ type: "Container", _default: share(20), defaultRequest: share(20) }];
    await on.cluster.core.createNamespacedLimitRange({
      namespace: at,
      body: { metadata: { name: "share" }, spec: { limits } },
    });
    await on.pods.make("plain", [exampleContainer("main", vectoradd, {})], {}, { namespace: at });
    expect(await successOf("plain", at)).toMatch(/vectoradd: OK/);
    await on.cluster.core.deleteNamespace({ name: at });
  });

  test("a trial run of the API server changes nothing, and what kubectl applies again stays as it is", async () => {
    const env = [
      { name: "MILLPOND_PRELOAD", value: "1" },
      { name: "LD_PRELOAD", value: "/lib/none.so" },
      { name: "LD_LIBRARY_PATH", value: "/opt/lib" },
      { name: "MODE", value: "x" },
    ];
    const containers = [{ ...exampleContainer("main", endlessCommand, share(25)), env }];
    const spec = { restartPolicy: "Never", terminationGracePeriodSeconds: 0, containers };
    const pod = { apiVersion: "v1", kind: "Pod", metadata: { name: "applied", namespace }, spec };
    const file = join(on.cluster.plane.directory, "applied.json");
    writeFileSync(file, JSON.stringify(pod));
    for (const options of [["--dry-run=server"], ["--dry-run=server", "--server-side"]])
      expect(await on.kubectl("apply", "-f", file, ...options)).toContain("dry run");
    expect(await on.kubectl("apply", "-f", file)).toContain("created");
    await on.pods.hasPhase("applied", "Running");
    // None of the trials has a claim.
    const [claim, ...others] = await on.pods.liveClaims();
    expect(others).toEqual([]);
    expect((await on.pods.claimOf(await on.cluster.pod("applied")))?.name).toBe(claim?.name);
    for (const options of [[], ["--server-side", "--force-conflicts"]])
      expect(await on.kubectl("apply", "-f", file, ...options)).toMatch(/unchanged|configured|applied/);
    const other = {
      ...pod,
      spec: { ...spec, containers: [{ ...containers[0], resources: { limits: share(50) } }] },
    };
    writeFileSync(file, JSON.stringify(other));
    expect(await on.kubectl("apply", "-f", file)).toContain("pod updates may not change fields");
    const annotations = { "millpond.dev/resize": "compute=40" };
    writeFileSync(file, JSON.stringify({ ...pod, metadata: { ...pod.metadata, annotations } }));
    expect(await on.kubectl("apply", "-f", file)).toContain("configured");
    await on.cluster.until(
      "it is resized",
      async () => (await on.pods.liveClaims())[0]?.computePercent === 40,
    );
    expect(await on.kubectl("exec", "applied", "--", "/usr/bin/vectoradd")).toMatch(/vectoradd: OK/);
    const { status } = (await on.cluster.pod("applied")) ?? {};
    expect([status?.phase, status?.containerStatuses?.[0]?.restartCount]).toEqual(["Running", 0]);
  });

  test("a copy of a running pod is refused with the way to make one, and touches nothing of it", async () => {
    await on.pods.make("original", [exampleContainer("main", endlessCommand, share(25))]);
    await on.pods.hasPhase("original", "Running");
    const text = await on.kubectl("get", "pod", "original", "-o", "json");
    const copy = join(on.cluster.plane.directory, "copy.json");
    writeFileSync(copy, text.replaceAll('"original"', '"copied"'));
    const said = [
      await on.kubectl("create", "-f", copy),
      await on.kubectl("debug", "original", "--copy-to=debugged", "--image=x", "--share-processes"),
    ];
    for (const each of said) expect(each).toMatch(/\. .* \[MILLPOND_E_[A-Z]+\]/s);
    expect((await on.pods.liveClaims()).length).toBe(1);
    const { status } = (await on.cluster.pod("original")) ?? {};
    expect([status?.phase, status?.containerStatuses?.[0]?.restartCount]).toEqual(["Running", 0]);
  });

  test("pods that no node can take hold nothing when they are deleted, and pods with generated names are told apart", async () => {
    await on.pods.make("nowhere", [exampleContainer("main", vectoradd, share(25))], {
      nodeSelector: { "example.org/pool": "elsewhere" },
    });
    await on.pods.make("foreign", [exampleContainer("main", vectoradd, share(25))], {
      schedulerName: "example.org-scheduler",
    });
    await on.cluster.until("the scheduler has looked at it", async () => {
      const { conditions = [] } = (await on.cluster.pod("nowhere"))?.status ?? {};
      return conditions.some(({ type, message }) => type === "PodScheduled" && /node/.test(message ?? ""));
    });
    const generateName = `${"long-name-".repeat(5)}-`;
    const made = await Promise.all(
      [1, 2].map(() =>
        on.cluster.core.createNamespacedPod({
          namespace,
          body: {
            metadata: { generateName, annotations: { "example.org/note": "日本 \u202e \u0007 é" } },
            spec: {
              restartPolicy: "Never",
              containers: [exampleContainer("main", vectoradd, share(25))],
            },
          },
        }),
      ),
    );
    for (const { metadata } of made) expect(await successOf(metadata?.name ?? "")).toMatch(/vectoradd: OK/);
    for (const name of ["nowhere", "foreign"]) await on.pods.remove(name);
    await on.pods.noneLeft();
  });

  test.each([
    ["on its host's network", { hostNetwork: true }, {}],
    ["that sees its host's processes", { hostPID: true, hostIPC: true }, {}],
    ["with one process namespace", { shareProcessNamespace: true }, {}],
    [
      "with a read-only root and a user of its own",
      { securityContext: { fsGroup: 20_002 } },
      { readOnlyRootFilesystem: true, runAsUser: 20_001, runAsGroup: 20_002 },
    ],
    ["as root", {}, { runAsUser: 0, runAsNonRoot: false }],
  ] as const)("a pod %s computes", async (_what, spec, security) => {
    const container = exampleContainer("main", vectoradd, share(25));
    const securityContext = { ...container.securityContext, ...security };
    await on.pods.make("settings", [{ ...container, securityContext }], spec);
    expect(await successOf("settings")).toMatch(/vectoradd: OK/);
    await on.pods.remove("settings");
  });

  test("a container whose image sets the linker's path, and one in its own directory, compute", async () => {
    const script =
      "exec 2>&1; cd /tmp; LD_LIBRARY_PATH=/usr/local/nvidia/lib:/nowhere /usr/bin/vectoradd && unset LD_LIBRARY_PATH && exec /usr/bin/vectoradd";
    const container = exampleContainer("main", ["/bin/sh", "-c", script], share(25));
    await on.pods.make("paths", [{ ...container, workingDir: "/usr" }]);
    expect((await successOf("paths")).match(/vectoradd: OK/g)).toHaveLength(2);
  });

  test("a pod goes on without the ResourceClaim or the Secret that somebody deletes under it", async (context) => {
    const pod = await on.pods.make("robbed", [exampleContainer("main", endlessCommand, share(25))]);
    await on.pods.hasPhase("robbed", "Running");
    const id = (await on.cluster.pod("robbed"))?.metadata?.annotations?.["millpond.dev/id"];
    await on.cluster.core.deleteNamespacedSecret({ namespace, name: `millpond-${id}` });
    if (on.allocation === "dra")
      await on.cluster.plane.cluster.resource.deleteNamespacedResourceClaim({
        namespace,
        name: `millpond-${id}-0`,
      });
    expect(await on.kubectl("exec", "robbed", "--", "/usr/bin/vectoradd")).toMatch(/vectoradd: OK/);
    const { status } = (await on.cluster.pod("robbed")) ?? {};
    expect([status?.phase, status?.containerStatuses?.[0]?.restartCount]).toEqual(["Running", 0]);
    expect(await on.pods.claimOf(pod)).toBeDefined();
    await on.pods.remove("robbed");
    await on.pods.noneLeft();
    if (on.allocation !== "dra") context.skip("there are no ResourceClaims");
    await on.cluster.until("the ResourceClaim is gone, too", async () => {
      const { items } = await on.cluster.plane.cluster.resource.listNamespacedResourceClaim({ namespace });
      return items.length === 0;
    });
  });

  test.skipIf(on.allocation !== "dra")("pods that share a ResourceClaim share its vGPU", async () => {
    const { resource } = on.cluster.plane.cluster;
    const exactly = {
      deviceClassName: "millpond.dev",
      capacity: { requests: { cores: "40", memory: "1Gi" } },
    };
    const spec = { devices: { requests: [{ name: "gpu", exactly }] } };
    await resource.createNamespacedResourceClaim({
      namespace,
      body: { metadata: { name: "shared" }, spec },
    });
    const names = ["a", "b", "c"];
    for (const name of names) {
      const container = exampleContainer("main", vectoradd, {});
      await on.pods.make(name, [{ ...container, resources: { claims: [{ name: "gpu" }] } }], {
        resourceClaims: [{ name: "gpu", resourceClaimName: "shared" }],
      });
    }
    await on.cluster.until(
      "there is one claim",
      async () => (await on.pods.liveClaims()).length === 1,
      patienceMs,
    );
    for (const name of names) expect(await successOf(name)).toMatch(/vectoradd: OK/);
    for (const name of names) await on.pods.remove(name);
    await resource.deleteNamespacedResourceClaim({ namespace, name: "shared" });
    await on.pods.noneLeft();
  });
});
