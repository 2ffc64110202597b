// SPDX-License-Identifier: Apache-2.0

// Pods that run CUDA programs: a real control plane, kubelet and container runtime, and software GPUs on a machine
// outside the cluster.

import type { V1EnvVar, V1Pod } from "@kubernetes/client-node";
import type { Connection } from "@millpond/cli";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { programImage } from "./testing/images.ts";
import {
  exampleContainer,
  missingCluster,
  type RealCluster,
  startRealCluster,
} from "./testing/real-cluster.ts";
import type { TestCluster } from "./testing/test-cluster.ts";

const missing = missingCluster();

describe.skipIf(missing !== undefined).each(["dra", "device-plugin"] as const)(
  `a real node, by %s${missing === undefined ? "" : ` (skipped: ${missing})`}`,
  (allocation) => {
    let real: RealCluster;
    let cluster: TestCluster;
    let pool: Connection;
    beforeAll(async () => {
      real = await startRealCluster({ allocation, subnet: allocation === "dra" ? 1 : 2 });
      ({ cluster, pool } = real);
    });
    afterAll(async () => {
      await real?.[Symbol.asyncDispose]();
    });

    const run = async (
      name: string,
      command: readonly string[],
      more: object = {},
      namespace = "default",
      { env = [], memory = "1Gi" }: { readonly env?: readonly V1EnvVar[]; readonly memory?: string } = {},
    ): Promise<V1Pod> => {
      const limits = {
        "millpond.dev/vgpu": "1",
        "millpond.dev/compute": "25",
        "millpond.dev/memory": memory,
      };
      await cluster.createPod(name, limits, {
        namespace,
        spec: {
          restartPolicy: "Never",
          ...more,
          containers: [{ ...exampleContainer("main", command, limits), env: [...env] }],
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
        const pod = await run(name, ["/usr/bin/vectoradd"], {}, "default", { memory: "4Gi" });
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

    test("a container that asks for it computes with the libraries for profilers in its process", async () => {
      const script = "exec 2>&1; LD_DEBUG=libs /usr/bin/vectoradd | grep -E 'calling init.*cupti|OK'";
      const env = [{ name: "MILLPOND_PRELOAD", value: "1" }];
      const pod = await run("profiled", ["/bin/sh", "-c", script], {}, "default", { env });
      const output = await logOf("profiled");
      expect([pod.status?.phase, output]).toEqual(["Succeeded", expect.stringMatching(/vectoradd: OK/)]);
      for (const version of [12, 13]) expect(output).toContain(`/usr/lib/millpond/libcupti.so.${version}`);
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

    /** Prints what the container sees, and computes. */
    const look = ["/bin/sh", "-c", "exec 2>&1; /usr/bin/deviceinfo; /usr/bin/vectoradd"];
    const seen = async (name: string, container: string) => {
      const log = await cluster.core.readNamespacedPodLog({ namespace: "default", name, container });
      return [...log.matchAll(/pci (\S+)|memory (\d+ MiB)|(vectoradd: OK)/g)].map(([, ...found]) =>
        found.join(""),
      );
    };
    const succeeded = (name: string) =>
      cluster.until(`${name} has ended`, async () => {
        const { phase, containerStatuses } = (await cluster.pod(name))?.status ?? {};
        if (phase === "Failed") throw new Error(JSON.stringify(containerStatuses));
        return phase === "Succeeded";
      });

    test.skipIf(allocation !== "dra")(
      "containers that name a request of a claim each see the devices of that, also of alternatives and of shares of one device",
      async () => {
        const asks = (cores: string, memory: string) => ({
          deviceClassName: "millpond.dev",
          capacity: { requests: { cores, memory } },
        });
        const templates = {
          two: {
            requests: ["a", "b"].map((name) => ({ name, exactly: asks("20", "512Mi") })),
            constraints: [{ distinctAttribute: "millpond.dev/uuid" }],
          },
          sum: {
            requests: [
              { name: "a", exactly: asks("20", "512Mi") },
              {
                name: "b",
                firstAvailable: [
                  { name: "big", ...asks("10", "500Gi") },
                  { name: "small", ...asks("10", "256Mi") },
                ],
              },
            ],
          },
        };
        for (const [name, devices] of Object.entries(templates)) {
          const body = { metadata: { name }, spec: { spec: { devices } } };
          await cluster.plane.cluster.resource.createNamespacedResourceClaimTemplate({
            namespace: "default",
            body,
          });
          const containers = ["a", "b"].map((request) => ({
            ...exampleContainer(request, look, {}),
            resources: { claims: [{ name: "gpu", request }] },
          }));
          const resourceClaims = [{ name: "gpu", resourceClaimTemplateName: name }];
          await cluster.createPod(name, {}, { spec: { restartPolicy: "Never", resourceClaims, containers } });
        }
        await succeeded("two");
        const [a, b] = [await seen("two", "a"), await seen("two", "b")];
        expect([a.length, a.slice(1)]).toEqual([3, b.slice(1)]);
        expect(a.slice(1)).toEqual(["512 MiB", "vectoradd: OK"]);
        expect(a[0]).not.toBe(b[0]);
        await succeeded("sum");
        for (const container of ["a", "b"])
          expect((await seen("sum", container)).slice(1)).toEqual(["768 MiB", "vectoradd: OK"]);
        const { items } = await cluster.core.listNamespacedEvent({ namespace: "default" });
        expect(
          items.some((each) => each.reason === "MillpondBound" && each.involvedObject.name === "two"),
        ).toBe(true);
      },
    );

    test.skipIf(allocation !== "dra")(
      "an extended resource of a class gives each container its own device, and an init container one of them",
      async (context) => {
        if (cluster.minor < 36) context.skip("limits do not name classes");
        const selectors = [{ cel: { expression: 'device.driver == "millpond.dev"' } }];
        const body = {
          metadata: { name: "whole" },
          spec: { selectors, extendedResourceName: "example.org/gpu" },
        };
        await cluster.plane.cluster.resource.createDeviceClass({ body });
        const limits = { "example.org/gpu": "1" };
        await cluster.until("such pods are prepared", async () => {
          const pod = {
            metadata: { name: "x" },
            spec: { containers: [exampleContainer("main", look, limits)] },
          };
          const tried = await cluster.core.createNamespacedPod({
            namespace: "default",
            dryRun: "All",
            body: pod,
          });
          return tried.metadata?.labels?.["millpond.dev/managed"] !== undefined;
        });
        await cluster.createPod(
          "extended",
          {},
          {
            spec: {
              restartPolicy: "Never",
              initContainers: [exampleContainer("before", look, limits)],
              containers: ["a", "b"].map((name) => exampleContainer(name, look, limits)),
            },
          },
        );
        await succeeded("extended");
        const [before, a, b] = await Promise.all(["before", "a", "b"].map((name) => seen("extended", name)));
        for (const each of [before, a, b]) expect(each).toHaveLength(3);
        expect(a?.[0]).not.toBe(b?.[0]);
        expect([a?.[0], b?.[0]]).toContain(before?.[0]);
      },
    );

    test.skipIf(allocation !== "dra")(
      "a pod whose ResourceClaim is granted late starts soon after that",
      async () => {
        const { nodes } = await pool.pool.listNodes({});
        for (const { name: onlyNode, devices } of nodes) {
          for (const { uuid, index, memoryBytes } of devices) {
            const name = `in-the-way-${index}`;
            await pool.claims.createClaim({
              claim: { name, gpus: 1, computePercent: 100, memoryBytes, onlyNode, onlyDevices: [uuid] },
            });
          }
        }
        const container = exampleContainer("main", ["/usr/bin/vectoradd"], {});
        await cluster.createPod(
          "late",
          {},
          {
            spec: {
              restartPolicy: "Never",
              resourceClaims: [{ name: "gpu", resourceClaimTemplateName: "fifth" }],
              containers: [{ ...container, resources: { claims: [{ name: "gpu" }] } }],
            },
          },
        );
        await cluster.until("its kubelet has given up", async () => {
          const { items } = await cluster.core.listNamespacedEvent({ namespace: "default" });
          return items.some(
            ({ reason, involvedObject }) =>
              reason === "FailedPrepareDynamicResources" && involvedObject.name === "late",
          );
        });
        const { claims } = await pool.claims.listClaims({});
        for (const { name } of claims.filter((each) => each.name.startsWith("in-the-way-")))
          await pool.claims.releaseClaim({ name });
        const start = performance.now();
        await cluster.until(
          "it has ended",
          async () => (await cluster.pod("late"))?.status?.phase === "Succeeded",
          50_000,
        );
        console.log(`a late grant: ended after ${((performance.now() - start) / 1000).toFixed(1)} s`);
      },
    );

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
