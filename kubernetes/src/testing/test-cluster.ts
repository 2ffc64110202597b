// SPDX-License-Identifier: Apache-2.0

// A control plane with the objects of an installation, nodes without a kubelet, and operators beside it.

import type { V1Pod } from "@kubernetes/client-node";
import {
  asMergePatch,
  asStrategicPatch,
  type Cluster,
  connectCluster,
  readVersion,
  unlessStatus,
} from "../cluster/cluster.ts";
import { Operator, type OperatorOptions } from "../operator/operator.ts";
import { makeResourceNames, type ResourceNames } from "../request/resource-names.ts";
import { ControlPlane, type ControlPlaneOptions } from "./control-plane.ts";
import { install } from "./manifests.ts";
import { TestPool, testLog } from "./test-pool.ts";

export const systemNamespace = "millpond-system";

export class TestCluster implements AsyncDisposable {
  readonly plane: ControlPlane;
  readonly pool: TestPool;
  readonly names: ResourceNames;
  readonly operators: Operator[] = [];
  /** Minor version of Kubernetes 1. */
  minor = 0;

  private constructor(plane: ControlPlane, pool: TestPool, names: ResourceNames) {
    this.plane = plane;
    this.pool = pool;
    this.names = names;
  }

  static async start(
    nodes: Readonly<Record<string, readonly bigint[]>>,
    names: ResourceNames = makeResourceNames("millpond.dev", "vgpu=pool.kubernetes.io/gpu"),
    options: ControlPlaneOptions = {},
  ): Promise<TestCluster> {
    await using cleanup = new AsyncDisposableStack();
    const plane = cleanup.use(await ControlPlane.start(options));
    const pool = cleanup.use(await TestPool.start(nodes));
    const cluster = new TestCluster(plane, pool, names);
    cluster.minor = (await readVersion(plane.cluster)).minor;
    await install(plane.cluster, "base");
    cleanup.move();
    return cluster;
  }

  get directory(): string {
    return this.plane.directory;
  }

  get core() {
    return this.plane.cluster.core;
  }

  get isGated(): boolean {
    return this.minor >= 27;
  }

  /** Lets the scheduler ask an operator which pods may be scheduled. */
  async useExtender(operator: Pick<Operator, "webhookPort">): Promise<void> {
    const { webhooks } = await this.plane.cluster.admission.readMutatingWebhookConfiguration({
      name: "millpond",
    });
    const authority = webhooks?.[0]?.clientConfig.caBundle ?? "";
    const url = `https://127.0.0.1:${operator.webhookPort}/scheduler`;
    await this.plane.useExtender(url, authority, this.names.resources.vgpu[0] ?? "");
  }

  async startOperator(options: Partial<OperatorOptions> = {}): Promise<Operator> {
    const account = "millpond-operator";
    const operator = await Operator.start({
      cluster: await this.connectAs(account),
      pool: this.pool.connect(),
      names: this.names,
      namespace: systemNamespace,
      identity: `operator-${this.operators.length}`,
      user: `system:serviceaccount:${systemNamespace}:${account}`,
      allocation: "auto",
      programs: { controller: this.pool.controller.url, ca: "" },
      webhook: {
        target: { url: "https://127.0.0.1:0" },
        host: "127.0.0.1",
        port: 0,
        objects: "millpond",
        serviceNames: ["127.0.0.1", "millpond.millpond-system.svc"],
      },
      log: testLog,
      leaseSeconds: 4,
      ...options,
    });
    this.operators.push(operator);
    return operator;
  }

  /** A node that is ready and has room for many pods; nothing runs there. */
  async addNode(name: string, bootId = `boot-${name}`): Promise<void> {
    // As reported by the device plugin of an older cluster.
    const slots = this.minor < 34 ? { [this.names.resources.vgpu[0] ?? ""]: "1000" } : {};
    const status = {
      capacity: { cpu: "64", memory: "256Gi", pods: "1000", ...slots },
      allocatable: { cpu: "64", memory: "256Gi", pods: "1000", ...slots },
      nodeInfo: { bootID: bootId },
      conditions: [{ type: "Ready", status: "True", reason: "KubeletReady", message: "" }],
    };
    await this.core.createNode({ body: { metadata: { name, labels: { "kubernetes.io/hostname": name } } } });
    await this.core.patchNodeStatus({ name, body: { status } }, asMergePatch);
    // The controllers taint every new node, and remove the taint when they have seen that it is ready.
    await this.until(`node ${name} is ready`, async () => {
      const node = await this.core.readNode({ name });
      return (node.spec?.taints ?? []).length === 0;
    });
  }

  /** Creates a pod with one container that requests these resources. */
  async createPod(
    name: string,
    limits: Readonly<Record<string, string>>,
    more: {
      readonly namespace?: string;
      readonly annotations?: Record<string, string>;
      readonly labels?: Record<string, string>;
      readonly spec?: Partial<V1Pod["spec"]>;
    } = {},
  ): Promise<V1Pod> {
    const { namespace = "default", annotations = {}, spec = {} } = more;
    const { labels = {} } = more;
    return await this.core.createNamespacedPod({
      namespace,
      body: {
        metadata: { name, annotations, labels },
        spec: {
          containers: [{ name: "main", image: "example.org/none", resources: { limits: { ...limits } } }],
          terminationGracePeriodSeconds: 0,
          ...spec,
        },
      },
    });
  }

  async pod(name: string, namespace = "default"): Promise<V1Pod | undefined> {
    return await unlessStatus(this.core.readNamespacedPod({ name, namespace }), 404);
  }

  /** Reports a pod's status as a kubelet would. */
  async playKubelet(
    name: string,
    phase: "Running" | "Succeeded" | "Failed",
    namespace = "default",
  ): Promise<void> {
    const state =
      phase === "Running" ? { running: {} } : { terminated: { exitCode: phase === "Failed" ? 1 : 0 } };
    const containerStatuses = [
      { name: "main", image: "x", imageID: "x", ready: phase === "Running", restartCount: 0, state },
    ];
    const body = { status: { phase, containerStatuses } };
    await this.core.patchNamespacedPodStatus({ name, namespace, body }, asStrategicPatch);
  }

  /** Polls until the condition holds; for a minute at most. */
  async until(what: string, isSo: () => Promise<boolean>, withinMs = 60_000): Promise<void> {
    const deadline = performance.now() + withinMs;
    let last: unknown;
    for (;;) {
      try {
        if (await isSo()) return;
        last = undefined;
      } catch (error) {
        last = error;
      }
      if (performance.now() > deadline)
        throw new Error(`not within ${withinMs} ms: ${what}`, { cause: last });
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const operator of this.operators) await operator[Symbol.asyncDispose]();
    await this.pool[Symbol.asyncDispose]();
    await this.plane[Symbol.asyncDispose]();
  }

  /** A connection with only the rights of a service account of the installation. */
  async connectAs(account: string): Promise<Cluster> {
    const body = { apiVersion: "authentication.k8s.io/v1", kind: "TokenRequest", spec: { audiences: [] } };
    const { status } = await this.core.createNamespacedServiceAccountToken({
      namespace: systemNamespace,
      name: account,
      body,
    });
    return connectCluster(this.plane.configFor(status?.token ?? ""));
  }
}
