// SPDX-License-Identifier: Apache-2.0

// All manifests of a pool in a cluster, `deploy/trial`, with the image of `npm run package:image`, on a real node: from the
// installation to its end. The test's node has neither Services nor names: pods get addresses instead.

import { execFileSync, spawnSync } from "node:child_process";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import {
  KubernetesObjectApi,
  type KubernetesObject,
  type V1DaemonSet,
  type V1Pod,
  type V1PodSpec,
} from "@kubernetes/client-node";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { parseAllDocuments } from "yaml";
import manifest from "../../package.json" with { type: "json" };
import { inRoot } from "../../scripts/lib/paths.ts";
import { statusOf } from "./cluster/cluster.ts";
import { programImage, writePauseImage, writeProgramImage } from "./testing/images.ts";
import { findKubernetes } from "./testing/control-plane.ts";
import { missingNode, RealNode } from "./testing/real-node.ts";
import { systemNamespace, TestCluster } from "./testing/test-cluster.ts";

const image = inRoot("build", "package", `millpond-${manifest.version}.oci.tar`);
const version = spawnSync(join(findKubernetes() ?? "", "kube-apiserver"), ["--version"], {
  encoding: "utf8",
});
const missing =
  missingNode() ??
  (Number(/v1\.(\d+)/.exec(version.stdout ?? "")?.[1] ?? 0) >= 34
    ? undefined
    : "Kubernetes is before 1.34") ??
  (existsSync(image) ? undefined : "npm run package:image has not been run") ??
  (spawnSync("kubectl", ["version", "--client"]).status === 0 ? undefined : "there is no kubectl");

interface Workload extends KubernetesObject {
  spec?: {
    replicas?: number;
    template?: { spec: V1PodSpec };
    volumeClaimTemplates?: unknown;
  };
}

interface Allocated {
  devices: { uuid: string; computePercent: number }[];
}

const limits = { "millpond.dev/vgpu": "1", "millpond.dev/compute": "25", "millpond.dev/memory": "1Gi" };
const killCount = Number(process.env["MILLPOND_KUBERNETES_KILLS"] ?? 7);
const nodeName = "worker-a.example.org";
const nodeAddress = "10.77.3.2";
const hostAliases = [{ ip: nodeAddress, hostnames: ["millpond-controller.millpond-system.svc"] }];

describe.skipIf(missing !== undefined)(
  `a trial${missing === undefined ? "" : ` (skipped: ${missing})`}`,
  () => {
    const cleanup = new AsyncDisposableStack();
    let cluster: TestCluster;
    let node: RealNode;
    let objects: Workload[];
    const kubectl = (...args: readonly string[]): string =>
      execFileSync("kubectl", ["--kubeconfig", cluster.plane.kubeconfig, ...args], { encoding: "utf8" });
    const api = () => KubernetesObjectApi.makeApiClient(cluster.plane.cluster.config);
    const pods = async () => (await cluster.core.listNamespacedPod({ namespace: systemNamespace })).items;

    beforeAll(async () => {
      cluster = cleanup.use(await TestCluster.start({}));
      // It has created the objects unchanged, and they cannot run here.
      kubectl("-n", systemNamespace, "delete", "deployments,daemonsets", "--all");
      node = cleanup.use(await RealNode.start(cluster, nodeName, 3));
      const make = "for d in /run/millpond /var/lib/millpond; do mkdir -p $d; mount -t tmpfs none $d; done";
      node.run("sh", "-c", make);
      node.importImage(writePauseImage(cluster.plane.directory));
      node.importImage(
        writeProgramImage(cluster.plane.directory, inRoot("examples", "prebuilt", "millpond-examples")),
      );
      node.importImage(image);
      objects = parseAllDocuments(kubectl("kustomize", inRoot("kubernetes", "deploy", "trial")))
        .map((document) => document.toJS() as Workload)
        .filter(({ kind }) => kind !== "NetworkPolicy");
    });
    afterAll(async () => {
      await cleanup.disposeAsync();
    });

    /** Process id of the agent, in the node; empty: there is none. */
    const agent = (): string => {
      const command = "/var/lib/millpond/agent/[0-9a-f]*/cli/bin/millpond.mjs agent ";
      return node.run("sh", "-c", `pgrep -f '${command}' || true`).trim();
    };
    const podOf = async (name: string): Promise<V1Pod | undefined> =>
      (await pods()).find(({ metadata }) => metadata?.labels?.["app.kubernetes.io/name"] === name);

    /**
     * Like `kubectl rollout status`, which would block this process, and with it the kubelet's connection to the API
     * server.
     */
    const rolledOut = () =>
      cluster.until("the agent is upgraded", async () => {
        const at = { group: "apps", version: "v1", plural: "daemonsets", namespace: systemNamespace };
        const { metadata, status } = (await cluster.plane.cluster.objects.getNamespacedCustomObject({
          ...at,
          name: "millpond-agent",
        })) as V1DaemonSet;
        return (
          status?.observedGeneration === metadata?.generation &&
          status?.updatedNumberScheduled === 1 &&
          status.numberAvailable === 1
        );
      });

    /** A kubeconfig by which a service account reaches the API server; none of its pods can use the Service `kubernetes`. */
    const giveAccess = async (account: string) => {
      const config = JSON.parse(readFileSync(join(node.directory, "kubeconfig"), "utf8")) as {
        users: { user: { token: string } }[];
      };
      const token = kubectl("-n", systemNamespace, "create", "token", account).trim();
      for (const each of config.users) each.user = { token };
      const body = {
        metadata: { name: `access-${account}` },
        stringData: { config: JSON.stringify(config) },
      };
      await cluster.core.createNamespacedSecret({ namespace: systemNamespace, body });
    };

    /** Adapts a workload to a node without Services, DNS and storage. */
    const fit = ({ metadata, spec }: Workload): void => {
      const own = spec?.template?.spec;
      const [container] = own?.containers ?? [];
      if (spec === undefined || own === undefined || container === undefined) return;
      own.hostAliases = hostAliases;
      container.imagePullPolicy = "Never";
      for (const { name, hostPath } of own.volumes ?? [])
        if (name === "cdi" && hostPath !== undefined) hostPath.path = node.cdiDirectory;
      const account = own.serviceAccountName;
      if (account !== undefined) {
        container.env = [...(container.env ?? []), { name: "KUBECONFIG", value: "/access/config" }];
        container.volumeMounts = [
          ...(container.volumeMounts ?? []),
          { name: "access", mountPath: "/access", readOnly: true },
        ];
        own.volumes = [
          ...(own.volumes ?? []),
          { name: "access", secret: { secretName: `access-${account}` } },
        ];
      }
      if (metadata?.name === "millpond-operator") {
        spec.replicas = 1;
        own.hostNetwork = true;
        container.args?.push(`--webhook-url=https://${nodeAddress}:8443`);
      }
      if (spec.volumeClaimTemplates !== undefined) {
        delete spec.volumeClaimTemplates;
        own.hostNetwork = true;
        own.volumes = [...(own.volumes ?? []), { name: "state", emptyDir: {} }];
      }
    };

    const start = (name: string, ...command: readonly string[]) =>
      cluster.createPod(name, limits, {
        spec: {
          restartPolicy: name.startsWith("among-kills") ? "OnFailure" : "Never",
          hostAliases,
          containers: [
            {
              name: "main",
              image: `docker.io/${programImage}`,
              imagePullPolicy: "Never",
              command: [...command],
              resources: { limits },
            },
          ],
        },
      });
    const finish = async (name: string): Promise<string> => {
      let status: V1Pod["status"];
      await cluster.until(`${name} has ended`, async () => {
        ({ status } = (await cluster.pod(name)) ?? {});
        return ["Succeeded", "Failed"].includes(status?.phase ?? "");
      });
      const log = await cluster.core.readNamespacedPodLog({ namespace: "default", name });
      return `${status?.phase}, ${log.trimEnd().split("\n").slice(-3).join("\n")}`;
    };
    const isOk = expect.stringMatching(/^Succeeded, .*vectoradd: OK/su);

    test("every part starts, and the pool is published", async () => {
      for (const object of objects) {
        fit(object);
        await api()
          .create(structuredClone(object))
          .catch((error: unknown) => {
            if (statusOf(error) !== 409) throw error;
          });
      }
      for (const account of ["millpond-operator", "millpond-node", "millpond-setup", "millpond-agent"])
        await giveAccess(account);
      const statuses = async () =>
        (await pods()).map(({ metadata, status }) => [
          metadata?.labels?.["app.kubernetes.io/name"],
          status?.phase === "Succeeded" || status?.containerStatuses?.every(({ ready }) => ready) === true,
        ]);
      await cluster.until(
        "all parts are ready",
        async () => {
          const now = await statuses();
          if (now.length !== 6 || !now.every(([, isReady]) => isReady)) throw new Error(JSON.stringify(now));
          return true;
        },
        120_000,
      );
      await cluster.until("its GPUs are there", async () => {
        const { items } = await cluster.plane.cluster.resource.listResourceSlice();
        return items.flatMap(({ spec }) => spec.devices ?? []).length === 2;
      });
    });

    test("pods compute, by shared memory too, and a session outlives its agent", async () => {
      await start("first", "/usr/bin/vectoradd");
      expect(await finish("first")).toEqual(isOk);
      await start("near", "/bin/sh", "-c", "exec 2>&1; MILLPOND_TRANSPORT=shm /usr/bin/vectoradd");
      expect(await finish("near")).toEqual(isOk);
      await start("long", "/usr/bin/vectoradd", "1000", "--repeat", "3000");
      await cluster.until("it computes", async () => {
        const log = await cluster.core.readNamespacedPodLog({ namespace: "default", name: "long" });
        return log.includes("vectoradd: OK");
      });
      const killed = agent();
      node.run("kill", "-KILL", killed);
      expect(await finish("long")).toEqual(isOk);
      await cluster.until("there is another agent", async () =>
        Promise.resolve(![killed, ""].includes(agent())),
      );
      expect((await podOf("millpond-workers"))?.status?.containerStatuses?.[0]?.restartCount).toBe(0);
    });

    test("a session outlives the upgrade of its agent, and the end of its agent's pod", async () => {
      // Does not end by itself before the test does.
      await start("upgraded", "/usr/bin/vectoradd", "1000", "--repeat", "1000000");
      const computed = async () => {
        const log = await cluster.core.readNamespacedPodLog({ namespace: "default", name: "upgraded" });
        return log.split("vectoradd: OK").length - 1;
      };
      await cluster.until("it computes", async () => (await computed()) > 0);
      const before = agent();
      const kept = (await podOf("millpond-workers"))?.metadata?.uid;
      const path = "/spec/template/spec/containers/0/args/-";
      const patch = JSON.stringify([{ op: "add", path, value: "--warm=2" }]);
      kubectl("-n", systemNamespace, "patch", "daemonset", "millpond-agent", "--type=json", "-p", patch);
      await rolledOut();
      expect([before, ""]).not.toContain(agent());
      const published = (await podOf("millpond-agent"))?.metadata?.name ?? "";
      await cluster.core.deleteNamespacedPod({ namespace: systemNamespace, name: published });
      await cluster.until(
        "it has gone",
        async () => (await podOf("millpond-agent"))?.metadata?.name !== published,
      );
      await rolledOut();
      const soFar = await computed();
      await cluster.until("it goes on", async () => (await computed()) > soFar + 10);
      const session = (await cluster.pod("upgraded"))?.status;
      expect([session?.phase, session?.containerStatuses?.[0]?.restartCount]).toEqual(["Running", 0]);
      await cluster.core.deleteNamespacedPod({
        namespace: "default",
        name: "upgraded",
        gracePeriodSeconds: 0,
      });
      expect((await podOf("millpond-workers"))?.metadata?.uid).toBe(kept);
      await start("after", "/usr/bin/vectoradd");
      expect(await finish("after")).toEqual(isOk);
    });

    test("a cordon of the node keeps claims off its GPUs, and no longer than it lasts", async () => {
      kubectl("cordon", nodeName);
      const condition = async (name: string) =>
        (await cluster.pod(name))?.status?.conditions?.find(({ type }) => type === "millpond.dev/Bound");
      let count = 0;
      // The pool follows within seconds: until then earlier pods are still granted their vGPUs.
      await cluster.until("a pod says so", async () => {
        const name = `cordoned-${count}`;
        count += 1;
        await start(name, "/usr/bin/vectoradd");
        await cluster.until("it is looked at", async () => (await condition(name)) !== undefined);
        return /cordoned/.test((await condition(name))?.message ?? "");
      });
      kubectl("uncordon", nodeName);
      expect(await finish(`cordoned-${count - 1}`)).toEqual(isOk);
    });

    test(
      `${killCount} kills of every part leave no pod without claim, no claim without pod, and no program undone`,
      async () => {
        // Commands in the node find the controller by its name.
        const hosts = join(node.directory, "hosts");
        writeFileSync(hosts, `127.0.0.1 localhost\n${nodeAddress} millpond-controller.millpond-system.svc\n`);
        node.run("mount", "--bind", hosts, "/etc/hosts");
        const secret = await cluster.core.readNamespacedSecret({
          name: "millpond-pool",
          namespace: systemNamespace,
        });
        const valueOf = (key: string) => Buffer.from(secret.data?.[key] ?? "", "base64").toString();
        const ca = join(node.directory, "pool-ca.crt");
        writeFileSync(ca, valueOf("ca.crt"));
        const environment = [
          `MILLPOND_CONTROLLER=${valueOf("controller")}`,
          `MILLPOND_TOKEN=${valueOf("token")}`,
          `MILLPOND_CA=${ca}`,
        ];
        const cli = inRoot("cli", "bin", "millpond.mjs");
        const poolClaims = () =>
          (
            JSON.parse(
              node.run("env", ...environment, process.execPath, cli, "get", "claims", "-o", "json"),
            ) as {
              items: { name: string; state: string; allocation?: Allocated }[];
            }
          ).items;
        const grantedTwice = (claims: ReturnType<typeof poolClaims>) => {
          const percents = new Map<string, number>();
          for (const { state, allocation } of claims) {
            if (state !== "bound") continue;
            for (const { uuid, computePercent } of allocation?.devices ?? [])
              percents.set(uuid, (percents.get(uuid) ?? 0) + computePercent);
          }
          return [...percents].filter(([, percent]) => percent > 100);
        };
        const killAll = (pattern: string) => node.run("sh", "-c", `pkill -KILL -f '${pattern}' || true`);
        const main = "^/opt/millpond/node/bin/node /opt/millpond/kubernetes/src/main.mjs";
        const kills: readonly (() => unknown)[] = [
          () => killAll(`${main} operator`),
          () => killAll(`${main} node`),
          () => killAll(`${main} release`),
          () => killAll("^/opt/millpond/node/bin/node /opt/millpond/cli/bin/millpond.mjs controller"),
          // It may still be restarting after the previous kill.
          () => node.run("sh", "-c", `kill -KILL ${agent() || "none"} 2>/dev/null || true`),
          () => node.run("sh", "-c", "pkill -KILL -x kubelet || true"),
          () => cluster.plane.restartApiServer(),
        ];
        let random = 20_261_125;
        const next = (below: number): number => {
          random = (Math.imul(random, 1_103_515_245) + 12_345) >>> 0;
          return Math.floor((random / 2 ** 32) * below);
        };
        const names: string[] = [];
        for (let kill = 0; kill < killCount; kill += 1) {
          const name = `among-kills-${kill}`;
          // The webhook may be unavailable for a moment.
          await cluster.until(
            `${name} is there`,
            async () => {
              await start(name, "/usr/bin/vectoradd", "1000", "--repeat", String(100 + next(2000)));
              return true;
            },
            120_000,
          );
          names.push(name);
          await kills[next(kills.length)]?.();
          await new Promise((resolve) => setTimeout(resolve, next(2000)));
        }
        const ours = async () => (await cluster.core.listNamespacedPod({ namespace: "default" })).items;
        await cluster.until(
          "pods and claims agree",
          async () => {
            const items = (await ours()).filter(({ metadata }) => names.includes(metadata?.name ?? ""));
            const live = poolClaims().filter(({ state }) => ["bound", "pending"].includes(state));
            expect(grantedTwice(live)).toEqual([]);
            const uids = new Set(items.map(({ metadata }) => `pod-${metadata?.uid}`));
            const orphans = live.filter(({ name }) => !uids.has(name));
            const bound = new Set(live.filter(({ state }) => state === "bound").map(({ name }) => name));
            const unbacked = items.filter(
              ({ metadata, status }) => status?.phase === "Running" && !bound.has(`pod-${metadata?.uid}`),
            );
            if (orphans.length + unbacked.length === 0) return true;
            throw new Error(`${orphans.length} claims without pod, ${unbacked.length} pods without claim`);
          },
          30_000,
        );
        await cluster.until(
          "all programs have ended",
          async () => {
            const left = (await ours()).filter(
              ({ metadata, status }) => names.includes(metadata?.name ?? "") && status?.phase !== "Succeeded",
            );
            const said = left.map(({ metadata, status }) => [
              metadata?.name,
              status?.phase,
              status?.conditions?.find(({ type }) => type === "millpond.dev/Bound")?.message,
            ]);
            if (left.length > 0) throw new Error(JSON.stringify(said));
            return true;
          },
          300_000 + killCount * 5000,
        );
        await cluster.until(
          "no claim is left",
          () => Promise.resolve(poolClaims().every(({ state }) => !["bound", "pending"].includes(state))),
          30_000,
        );
      },
      600_000 + killCount * 10_000,
    );

    test("nothing of it is left when it is uninstalled", async () => {
      await cluster.core.deleteCollectionNamespacedPod({ namespace: "default", gracePeriodSeconds: 0 });
      const onHost = () =>
        node
          .run(
            "sh",
            "-c",
            `ls ${node.cdiDirectory}; ls /var/lib/millpond/client /var/lib/millpond/agent | grep -v :`,
          )
          .trim()
          .split("\n")
          .filter(Boolean);
      expect(onHost()).not.toEqual([]);
      kubectl("delete", "--wait=false", "-k", inRoot("kubernetes", "deploy", "trial"), "--ignore-not-found");
      await cluster.until("its pods have ended", async () => (await pods()).length === 0, 120_000);
      expect(onHost()).toEqual([]);
      const { items } = await cluster.plane.cluster.resource.listResourceSlice();
      expect(items).toEqual([]);
      await cluster.until("no Secret of a pod is left", async () => {
        const secrets = await cluster.core.listNamespacedSecret({ namespace: "default" });
        return !secrets.items.some(({ metadata }) => metadata?.name?.startsWith("millpond-"));
      });
    });
  },
);
