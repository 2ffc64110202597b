// SPDX-License-Identifier: Apache-2.0

// A cluster with a real node, and a pool of software GPUs on a machine outside the cluster.

import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import type { V1Container } from "@kubernetes/client-node";
import { type Connection, connect } from "@millpond/cli";
import { inRoot, nativeDir } from "../../../scripts/lib/paths.ts";
import type { Allocation } from "../allocation.ts";
import { installClientLibrary, withSockets } from "../node/client-library.ts";
import { NodePlugin } from "../node/node-plugin.ts";
import type { ControlPlaneOptions } from "./control-plane.ts";
import { programImage, writePauseImage, writeProgramImage } from "./images.ts";
import { missingNode, RealNode } from "./real-node.ts";
import { TestCluster } from "./test-cluster.ts";
import { testLog } from "./test-pool.ts";

const client = join(nativeDir("release"), "client");

/** As in Kubernetes 1.34 and 1.35 by default: a claim can only have a whole device. */
export const withoutSharedDevices = ["--feature-gates=DRAConsumableCapacity=false"];

/** Why no such cluster can be started here; undefined: it can. */
export function missingCluster(): string | undefined {
  return (
    missingNode() ?? (existsSync(join(client, "libcuda.so.1")) ? undefined : "npm run build has not been run")
  );
}

/** A pool of software GPUs in a separate process, which the node reaches over TLS. */
class SoftPool implements AsyncDisposable {
  readonly #child: ChildProcess;
  readonly connection: Connection;

  private constructor(child: ChildProcess, connection: Connection) {
    this.#child = child;
    this.connection = connection;
  }

  static async start(cluster: TestCluster, address: string, options: readonly string[]): Promise<SoftPool> {
    const { directory } = cluster.plane;
    const config = join(directory, "config.json");
    const args = [
      "up",
      "--soft",
      "--state",
      join(directory, "soft-pool"),
      "--listen",
      `${address}:0`,
      ...options,
    ];
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

export interface RealCluster extends AsyncDisposable {
  readonly cluster: TestCluster;
  readonly node: RealNode;
  readonly pool: Connection;
  /** Ends the node plugin, and starts another one, as an upgrade does. */
  readonly replacePlugin: () => Promise<void>;
}

export interface RealClusterOptions extends ControlPlaneOptions {
  /** The allocation that operator and node plugin are expected to choose by themselves. */
  readonly allocation: Allocation;
  /** 0 to 255, different for each cluster. */
  readonly subnet: number;
  /** Options of `millpond up --soft`. */
  readonly up?: readonly string[];
}

/** Resolves when pods can use the pool from the node `worker-a`. */
export async function startRealCluster(options: RealClusterOptions): Promise<RealCluster> {
  const { allocation, subnet, up = [] } = options;
  await using cleanup = new AsyncDisposableStack();
  const apiServer = allocation === "dra" ? [] : withoutSharedDevices;
  const cluster = cleanup.use(await TestCluster.start({}, undefined, { ...options, apiServer }));
  const { directory } = cluster.plane;
  const node = cleanup.use(await RealNode.start(cluster, "worker-a", subnet));
  node.importImage(writePauseImage(directory));
  node.importImage(writeProgramImage(directory, inRoot("examples", "prebuilt", "millpond-examples")));
  const soft = cleanup.use(await SoftPool.start(cluster, node.hostAddress, up));
  const pool = soft.connection;
  const operator = await cluster.startOperator({
    pool,
    programs: { controller: pool.controller, ca: pool.ca ?? "" },
  });
  if (operator.allocation !== allocation) throw new Error(`the operator has chosen ${operator.allocation}`);
  const nodes = join(directory, "soft-pool", "nodes");
  const library = readdirSync(nodes)
    .map((name) => join(nodes, name, "run", "sockets"))
    .reduce(withSockets, installClientLibrary(client, join(node.directory, "client")));
  const { kubeletDirectory, cdiDirectory } = node;
  const startPlugin = async () =>
    await NodePlugin.start({
      allocation: "auto",
      cluster: await cluster.connectAs("millpond-node"),
      names: cluster.names,
      library,
      kubeletDirectory,
      cdiDirectory,
      slots: 32,
      log: testLog,
    });
  let plugin = await startPlugin();
  cleanup.defer(() => plugin[Symbol.asyncDispose]());
  const replacePlugin = async (): Promise<void> => {
    await plugin[Symbol.asyncDispose]();
    plugin = await startPlugin();
  };
  if (allocation === "dra") {
    await plugin.registered;
    await cluster.until("the pool is published", async () => {
      const { items } = await cluster.plane.cluster.resource.listResourceSlice();
      return items.length > 0;
    });
  } else {
    await cluster.until("the node has slots", async () => {
      const { status } = await cluster.core.readNode({ name: "worker-a" });
      return status?.allocatable?.["millpond.dev/vgpu"] === "32";
    });
  }
  const held = cleanup.move();
  return { cluster, node, pool, replacePlugin, [Symbol.asyncDispose]: () => held.disposeAsync() };
}

/** A container of the image with the examples, with settings that restricted namespaces allow. */
export function exampleContainer(
  name: string,
  command: readonly string[],
  limits: Readonly<Record<string, string>>,
): V1Container {
  return {
    name,
    image: `docker.io/${programImage}`,
    imagePullPolicy: "Never",
    command: [...command],
    resources: { limits: { ...limits } },
    securityContext: {
      allowPrivilegeEscalation: false,
      capabilities: { drop: ["ALL"] },
      runAsNonRoot: true,
      runAsUser: 10_001,
      seccompProfile: { type: "RuntimeDefault" },
    },
  };
}
