// SPDX-License-Identifier: Apache-2.0

// Pods that run CUDA programs: a real control plane, kubelet and container runtime, and software GPUs of a machine that is
// none of the cluster's.

import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import type { V1Pod } from "@kubernetes/client-node";
import { type Connection, connect } from "@millpond/cli";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { inRoot, nativeDir } from "../../scripts/lib/paths.ts";
import { installClientLibrary, withSockets } from "./node/client-library.ts";
import { DevicePlugin } from "./node/device-plugin.ts";
import { DraPlugin } from "./node/dra-plugin.ts";
import { programImage, writePauseImage, writeProgramImage } from "./testing/images.ts";
import { missingNode, RealNode } from "./testing/real-node.ts";
import { TestCluster } from "./testing/test-cluster.ts";
import { testLog } from "./testing/test-pool.ts";

const client = join(nativeDir("release"), "client");
const missing =
  missingNode() ?? (existsSync(join(client, "libcuda.so.1")) ? undefined : "npm run build has not been run");

/** A pool of software GPUs, its own process, which the node reaches over TLS. */
class SoftPool implements AsyncDisposable {
  readonly #child: ChildProcess;
  readonly connection: Connection;

  private constructor(child: ChildProcess, connection: Connection) {
    this.#child = child;
    this.connection = connection;
  }

  static async start(cluster: TestCluster, address: string): Promise<SoftPool> {
    const { directory } = cluster.plane;
    const config = join(directory, "config.json");
    const args = ["up", "--soft", "--state", join(directory, "soft-pool"), "--listen", `${address}:0`];
    const command = [process.execPath, inRoot("cli", "bin", "millpond.mjs"), ...args];
    const child = spawn("setpriv", ["--pdeathsig", "TERM", ...command], {
      stdio: ["ignore", "pipe", "pipe"],
      env: { PATH: process.env["PATH"], HOME: directory, MILLPOND_CONFIG: config },
    });
    let output = "";
    for (const stream of [child.stdout, child.stderr])
      stream.on("data", (part: Buffer) => (output += part.toString()));
    await cluster.until("the pool is ready", async () => {
      if (child.exitCode !== null) throw new Error(output);
      return await Promise.resolve(output.includes("the pool is ready"));
    });
    const { contexts, currentContext } = JSON.parse(readFileSync(config, "utf8")) as {
      contexts: Record<string, { controller: string; token: string; ca: string }>;
      currentContext: string;
    };
    const context = contexts[currentContext] ?? { controller: "", token: "", ca: "" };
    return new SoftPool(child, connect({ ...context, source: "the test" }));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#child.kill("SIGTERM");
    await once(this.#child, "exit");
  }
}

describe.skipIf(missing !== undefined).each(["dra", "device-plugin"] as const)(
  `a real node, by %s${missing === undefined ? "" : ` (skipped: ${missing})`}`,
  (allocation) => {
    const cleanup = new AsyncDisposableStack();
    let cluster: TestCluster;
    let pool: Connection;
    beforeAll(async () => {
      cluster = cleanup.use(await TestCluster.start({}));
      const node = cleanup.use(await RealNode.start(cluster, "worker-a", allocation === "dra" ? 1 : 2));
      node.importImage(writePauseImage(cluster.plane.directory));
      node.importImage(
        writeProgramImage(cluster.plane.directory, inRoot("examples", "prebuilt", "millpond-examples")),
      );
      const soft = cleanup.use(await SoftPool.start(cluster, node.hostAddress));
      pool = soft.connection;
      await cluster.startOperator({
        pool,
        allocation,
        programs: { controller: pool.controller, ca: pool.ca ?? "" },
      });
      const nodes = join(cluster.plane.directory, "soft-pool", "nodes");
      const library = readdirSync(nodes)
        .map((name) => join(nodes, name, "run", "sockets"))
        .reduce(withSockets, installClientLibrary(client, join(node.directory, "client")));
      const { kubeletDirectory, cdiDirectory } = node;
      const common = { names: cluster.names, library, kubeletDirectory, log: testLog };
      if (allocation === "dra") {
        const account = await cluster.connectAs("millpond-node");
        const plugin = cleanup.use(await DraPlugin.start({ ...common, cluster: account, cdiDirectory }));
        await plugin.registered;
        await cluster.until("the pool is published", async () => {
          const { items } = await cluster.plane.cluster.resource.listResourceSlice();
          return items.length > 0;
        });
      } else {
        cleanup.use(DevicePlugin.start({ ...common, slots: 32 }));
        await cluster.until("the node has slots", async () => {
          const { status } = await cluster.core.readNode({ name: "worker-a" });
          return status?.allocatable?.["millpond.dev/vgpu"] === "32";
        });
      }
    });
    afterAll(async () => {
      await cleanup.disposeAsync();
    });

    const run = async (
      name: string,
      command: readonly string[],
      more: object = {},
      namespace = "default",
    ): Promise<V1Pod> => {
      const limits = { "millpond.dev/vgpu": "1", "millpond.dev/compute": "25", "millpond.dev/memory": "1Gi" };
      await cluster.createPod(name, limits, {
        namespace,
        spec: {
          restartPolicy: "Never",
          ...more,
          containers: [
            {
              name: "main",
              image: `docker.io/${programImage}`,
              imagePullPolicy: "Never",
              command: [...command],
              resources: { limits },
              securityContext: {
                allowPrivilegeEscalation: false,
                capabilities: { drop: ["ALL"] },
                runAsNonRoot: true,
                runAsUser: 10_001,
                seccompProfile: { type: "RuntimeDefault" },
              },
            },
          ],
        },
      });
      let pod: V1Pod | undefined;
      await cluster.until(`${name} has ended`, async () => {
        pod = await cluster.pod(name, namespace);
        return ["Succeeded", "Failed"].includes(pod?.status?.phase ?? "");
      });
      return pod ?? {};
    };
    const logOf = (name: string, namespace = "default") =>
      cluster.core.readNamespacedPodLog({ name, namespace });

    test("a pod computes on a GPU of another machine, and gives it back", async () => {
      for (const name of ["first", "second"]) {
        const start = performance.now();
        const pod = await run(name, ["/usr/bin/vectoradd"]);
        console.log(
          `${allocation}: ${name} ended ${((performance.now() - start) / 1000).toFixed(1)} s after it was created`,
        );
        const output = await logOf(name);
        expect([pod.status?.phase, output]).toEqual(["Succeeded", expect.stringMatching(/PASS|correct|OK/i)]);
      }
      await cluster.until(
        "no claim is left",
        async () => (await pool.claims.listClaims({})).claims.length === 0,
      );
    });

    test("in a namespace of restricted pods, and with no more than its slice", async () => {
      const labels = { "pod-security.kubernetes.io/enforce": "restricted" };
      await cluster.core.createNamespace({ body: { metadata: { name: "strict", labels } } });
      await cluster.until("it has a service account", async () => {
        const { items } = await cluster.core.listNamespacedServiceAccount({ namespace: "strict" });
        return items.length > 0;
      });
      const pod = await run("info", ["/usr/bin/deviceinfo"], {}, "strict");
      const output = await logOf("info", "strict");
      expect([pod.status?.phase, output]).toEqual(["Succeeded", expect.stringContaining("Software GPU")]);
      expect(output).toMatch(/1(\.0)? GiB|1024 MiB|1073741824/);
    });

    test("a GPU of the pod's own machine is reached by shared memory", async () => {
      const script = "exec 2>&1; MILLPOND_TRANSPORT=shm /usr/bin/vectoradd";
      const pod = await run("near", ["/bin/sh", "-c", script]);
      expect([pod.status?.phase, await logOf("near")]).toEqual([
        "Succeeded",
        expect.stringMatching(/PASS|correct|OK/i),
      ]);
    });

    test.skipIf(allocation !== "dra")("a pod with a ResourceClaim of its own computes", async () => {
      const { resource } = cluster.plane.cluster;
      const capacity = { requests: { cores: "20", memory: "1Gi" } };
      const request = { name: "gpu", exactly: { deviceClassName: "millpond.dev", capacity } };
      const body = { metadata: { name: "fifth" }, spec: { spec: { devices: { requests: [request] } } } };
      await resource.createNamespacedResourceClaimTemplate({ namespace: "default", body });
      const start = performance.now();
      await cluster.createPod(
        "own-claim",
        {},
        {
          spec: {
            restartPolicy: "Never",
            resourceClaims: [{ name: "gpu", resourceClaimTemplateName: "fifth" }],
            containers: [
              {
                name: "main",
                image: `docker.io/${programImage}`,
                imagePullPolicy: "Never",
                command: ["/usr/bin/vectoradd"],
                resources: { claims: [{ name: "gpu" }] },
              },
            ],
          },
        },
      );
      await cluster.until(
        "it has ended",
        async () => (await cluster.pod("own-claim"))?.status?.phase === "Succeeded",
      );
      console.log(
        `a ResourceClaim of its own: ended after ${((performance.now() - start) / 1000).toFixed(1)} s`,
      );
      expect(await logOf("own-claim")).toMatch(/PASS|correct|OK/i);
      await cluster.core.deleteNamespacedPod({ name: "own-claim", namespace: "default" });
      await cluster.until("it is given back", async () => {
        const { claims } = await pool.claims.listClaims({});
        return !claims.some(({ name }) => name.startsWith("rc-"));
      });
    });

    test("a program that says otherwise gets nothing else", async () => {
      const script =
        "exec 2>&1; MILLPOND_CLAIM=pod-00000000-0000-0000-0000-000000000000 /usr/bin/vectoradd; echo status $?";
      await run("other", ["/bin/sh", "-c", script]);
      expect(await logOf("other")).toMatch(/MILLPOND_E_NOT_FOUND[\s\S]*status [1-9]/);
      const own = "exec 2>&1; unset MILLPOND_CLAIM; MILLPOND_MEMORY=4Gi /usr/bin/vectoradd; echo status $?";
      await run("own", ["/bin/sh", "-c", own]);
      expect(await logOf("own")).toMatch(/MILLPOND_E_FORBIDDEN[\s\S]*status [1-9]/);
    });
  },
);
