// SPDX-License-Identifier: Apache-2.0

// Operators as separate processes, which can be killed and whose CPU time is measured.

import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { readFileSync, writeFileSync } from "node:fs";
import type { IncomingMessage } from "node:http";
import { get } from "node:https";
import { createServer } from "node:net";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import type { Cluster } from "../cluster/cluster.ts";
import type { TestPool } from "./test-pool.ts";

const entry = join(import.meta.dirname, "..", "main.ts");

/** The cluster and the pool of an operator, both real or simulated. */
interface OperatorHome {
  /** Deleted after the test. */
  readonly directory: string;
  readonly pool: TestPool;
  /** A connection with the rights of a service account of the installation. */
  connectAs(account: string): Promise<Cluster>;
}

const startMs = 120_000;

export class OperatorProcess implements AsyncDisposable {
  readonly #child: ChildProcess;
  readonly #port: number;
  output = "";

  private constructor(child: ChildProcess, port: number) {
    this.#child = child;
    this.#port = port;
    for (const stream of [child.stdout, child.stderr]) {
      stream
        ?.setEncoding("utf8")
        .on("data", (text: string) => (this.output = (this.output + text).slice(-20_000)));
    }
  }

  static async start(cluster: OperatorHome, name: string): Promise<OperatorProcess> {
    const kubeconfig = join(cluster.directory, `${name}.kubeconfig`);
    const { config } = await cluster.connectAs("millpond-operator");
    writeFileSync(kubeconfig, config.exportConfig());
    const port = await freePort();
    const args = ["operator", "--listen", `127.0.0.1:${port}`, "--webhook-url", `https://127.0.0.1:${port}`];
    args.push("--lease-seconds", "4", "--resource-names", "vgpu=pool.kubernetes.io/gpu");
    const child = spawn("setpriv", ["--pdeathsig", "KILL", process.execPath, entry, ...args], {
      stdio: ["ignore", "pipe", "pipe"],
      env: {
        PATH: process.env["PATH"],
        KUBECONFIG: kubeconfig,
        MILLPOND_CONTROLLER: cluster.pool.controller.url,
        MILLPOND_TOKEN: cluster.pool.controller.userToken,
      },
    });
    const operator = new OperatorProcess(child, port);
    const deadline = performance.now() + startMs;
    while (!operator.output.includes("serving the webhooks")) {
      if (child.exitCode !== null || performance.now() > deadline)
        throw new Error(`${name} does not answer: ${operator.output}`);
      await delay(50);
    }
    return operator;
  }

  get webhookPort(): number {
    return this.#port;
  }

  /** CPU time so far, in milliseconds. */
  get cpuMs(): number {
    const fields = readFileSync(`/proc/${this.#child.pid}/stat`, "utf8").split(") ")[1]?.split(" ") ?? [];
    return (Number(fields[11]) + Number(fields[12])) * 10;
  }

  /** Value of a metric without labels. */
  async metric(name: string): Promise<number> {
    const request = get({ host: "127.0.0.1", port: this.#port, path: "/metrics", rejectUnauthorized: false });
    const [response] = (await once(request, "response")) as [IncomingMessage];
    let body = "";
    for await (const part of response.setEncoding("utf8") as AsyncIterable<string>) body += part;
    return Number(new RegExp(`^${name} (\\S+)$`, "m").exec(body)?.[1]);
  }

  async kill(): Promise<void> {
    if (this.#child.exitCode !== null || this.#child.signalCode !== null) return;
    this.#child.kill("SIGKILL");
    await once(this.#child, "exit");
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.kill();
  }
}

async function freePort(): Promise<number> {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const address = server.address();
  server.close();
  return typeof address === "object" && address !== null ? address.port : 0;
}
