// SPDX-License-Identifier: Apache-2.0

// A simulated API server with an installation of Millpond: a real controller with agents that have no workers, and
// operators with the rights of the manifests. It needs no Kubernetes.

import type { V1Pod } from "@kubernetes/client-node";
import { type Cluster, connectCluster, unlessStatus } from "../../cluster/cluster.ts";
import { Operator, type OperatorOptions } from "../../operator/operator.ts";
import { makeResourceNames } from "../../request/resource-names.ts";
import { readManifests } from "../manifests.ts";
import { TestPool, testLog } from "../test-pool.ts";
import { PlayedApiServer } from "./api-server.ts";

export class PlayedCluster implements AsyncDisposable {
  readonly server: PlayedApiServer;
  readonly pool: TestPool;
  readonly operators: Operator[] = [];

  private constructor(server: PlayedApiServer, pool: TestPool) {
    this.server = server;
    this.pool = pool;
  }

  /**
   * @param nodes The memory of each device, by node.
   * @param folders The folders of `deploy` that are installed.
   */
  static async start(
    nodes: Readonly<Record<string, readonly bigint[]>>,
    folders: readonly string[] = ["base"],
  ): Promise<PlayedCluster> {
    await using cleanup = new AsyncDisposableStack();
    const server = cleanup.use(
      await PlayedApiServer.start(folders.flatMap((folder) => readManifests(folder))),
    );
    const pool = cleanup.use(await TestPool.start(nodes));
    cleanup.move();
    return new PlayedCluster(server, pool);
  }

  get directory(): string {
    return this.pool.directory;
  }

  connectAs(account: string): Promise<Cluster> {
    return Promise.resolve(connectCluster(this.server.configFor(account)));
  }

  get core() {
    return this.server.cluster.core;
  }

  async startOperator(options: Partial<OperatorOptions> = {}): Promise<Operator> {
    const account = "millpond-operator";
    const operator = await Operator.start({
      cluster: connectCluster(this.server.configFor(account)),
      pool: this.pool.connect(),
      names: makeResourceNames(),
      namespace: "millpond-system",
      identity: `operator-${this.operators.length}`,
      user: `system:serviceaccount:millpond-system:${account}`,
      allocation: "auto",
      programs: { controller: this.pool.controller.url, ca: "" },
      webhook: {
        target: { url: "https://127.0.0.1:0" },
        host: "127.0.0.1",
        port: 0,
        objects: "millpond",
        serviceNames: ["127.0.0.1"],
      },
      log: testLog,
      leaseSeconds: 4,
      ...options,
    });
    this.operators.push(operator);
    return operator;
  }

  /** Creates a pod with one container that has these limits. */
  async createPod(
    name: string,
    limits: Readonly<Record<string, string>>,
    more: { readonly namespace?: string; readonly metadata?: object; readonly spec?: object } = {},
  ): Promise<V1Pod> {
    const containers = [{ name: "main", image: "example.org/none", resources: { limits: { ...limits } } }];
    return await this.core.createNamespacedPod({
      namespace: more.namespace ?? "default",
      body: { metadata: { name, ...more.metadata }, spec: { containers, ...more.spec } },
    });
  }

  async pod(name: string, namespace = "default"): Promise<V1Pod | undefined> {
    return await unlessStatus(this.core.readNamespacedPod({ name, namespace }), 404);
  }

  /** Status and reason of the pod condition that reports whether it has its vGPUs. */
  async bound(name: string, namespace = "default"): Promise<string> {
    const { status } = (await this.pod(name, namespace)) ?? {};
    const found = status?.conditions?.find(({ type }) => type === "millpond.dev/Bound");
    return found === undefined ? "" : `${found.status} ${found.reason}`;
  }

  /** Names of the claims that the pool has at present. */
  async claims(): Promise<string[]> {
    const { claims } = await this.pool.connect().claims.listClaims({});
    return claims.map(({ name }) => name).sort();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const operator of this.operators) await operator[Symbol.asyncDispose]();
    await this.pool[Symbol.asyncDispose]();
    await this.server[Symbol.asyncDispose]();
    if (this.server.denied.length > 0)
      throw new Error(`the manifests do not allow: ${this.server.denied.join("; ")}`);
  }
}
