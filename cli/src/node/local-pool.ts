// SPDX-License-Identifier: Apache-2.0

import { readFileSync } from "node:fs";
import { isIPv6 } from "node:net";
import { setTimeout as delay } from "node:timers/promises";
import { errorCodeOf, millpondError, type Node, NodeState } from "@millpond/api";
import { reachableHost } from "@millpond/platform";
import { defaultListen } from "@millpond/controller";
import { type Connection, connect } from "../connection/connection.ts";
import { errorParts } from "../command-line/errors.ts";
import type { NativeFiles } from "../host/native-files.ts";
import type { PoolDirectory } from "./pool-directory.ts";
import { type ServiceProcess, startService } from "../service/service-process.ts";
import { serviceEnvironment, type SoftDevices, softNodeEnvironment } from "./soft-node.ts";

export interface LocalPoolOptions {
  readonly directory: PoolDirectory;
  readonly native: NativeFiles;
  /** Address of the controller; absent: the default, or a free port if the default is taken. */
  readonly listen: string | undefined;
  /** URL of the database that holds the controller's state; absent: a file of the directory. */
  readonly store: string | undefined;
  readonly nodes: readonly string[];
  readonly driver: string;
  /** Description of the software GPUs; absent: real devices. */
  readonly soft: SoftDevices | undefined;
  /** Idle workers for each device. */
  readonly warm: number;
  /** Whether programs and nodes also encrypt connections on loopback. */
  readonly isEncrypted: boolean;
  /** Receives messages about events while the pool runs. */
  readonly onEvent: (text: string) => void;
  /** Aborts the start. */
  readonly signal: AbortSignal;
}

const readyTimeoutMs = 90_000;
const pollMs = 50;
const stopGraceMs = 15_000;
/** The number of failed starts of a part in a row after which the pool has failed. */
const startLimit = 8;
/** Doubles each time a part ends soon after its start. */
const restartFirstMs = 100;
const restartCeilingMs = 2000;
/** Running time after which the end of a part no longer counts as soon after its start. */
const settledMs = 10_000;

/** Controller and agents as child processes of this one: starts, watches, restarts and stops them. */
export class LocalPool implements AsyncDisposable {
  readonly #options: LocalPoolOptions;
  readonly #services = new Map<string, ServiceProcess>();
  readonly #failure = Promise.withResolvers<never>();
  /** Restarts of each part since it last ran for `settledMs`. */
  readonly #restarts = new Map<string, number>();
  #controllerUrl = "";
  /** Where the agents listen; undefined: on loopback. */
  #agentListen: string | undefined;
  #isStopping = false;

  private constructor(options: LocalPoolOptions) {
    this.#options = options;
    this.#failure.promise.catch(() => undefined);
  }

  /**
   * Starts everything; resolves when all nodes are ready. Rejects with the first error, or when `signal` is aborted, after
   * everything has been stopped.
   */
  static async start(options: LocalPoolOptions): Promise<LocalPool> {
    const pool = new LocalPool(options);
    try {
      await pool.#start();
      return pool;
    } catch (error) {
      await pool[Symbol.asyncDispose]();
      throw error;
    }
  }

  get controllerUrl(): string {
    return this.#controllerUrl;
  }

  get userToken(): string {
    return readFileSync(this.#options.directory.tokenPath("user"), "utf8").trim();
  }

  /** Rejects when a part has failed permanently. */
  get failed(): Promise<never> {
    return this.#failure.promise;
  }

  /** Certificate of the authority that signed the controller's; undefined if the controller listens on loopback only. */
  get ca(): string | undefined {
    const isSecure = this.#controllerUrl.startsWith("https:");
    return isSecure ? readFileSync(this.#options.directory.authorityPath, "utf8") : undefined;
  }

  connect(): Connection {
    return connect({
      controller: this.#controllerUrl,
      token: this.userToken,
      ca: this.ca,
      source: "this pool",
    });
  }

  /** Ends sessions and workers, then agents, then the controller. */
  async [Symbol.asyncDispose](): Promise<void> {
    this.#isStopping = true;
    const controller = this.#services.get("controller");
    const agents = [...this.#services.values()].filter((service) => service !== controller);
    await Promise.all(agents.map((agent) => agent.stop(stopGraceMs)));
    await controller?.stop(stopGraceMs);
  }

  async #start(): Promise<void> {
    const { listen, nodes } = this.#options;
    try {
      await this.#startController(listen ?? defaultListen);
    } catch (error) {
      if (listen !== undefined || errorCodeOf(error) !== "MILLPOND_E_ADDRESS_IN_USE") throw error;
      await this.#startController("127.0.0.1:0");
    }
    await Promise.all(nodes.map((name) => this.#startAgent(name)));
    await this.#untilReady();
  }

  async #startController(listen: string): Promise<void> {
    const { directory, native, store } = this.#options;
    const base = serviceEnvironment(process.env, native);
    const service = await startService({
      name: "controller",
      args: ["controller", "--config=none", "--state", directory.controllerPath, `--listen=${listen}`],
      // Not passed as an argument, because all users of the machine can read arguments and the URL may contain a password.
      environment: store === undefined ? base : { ...base, MILLPOND_STORE: store },
      logPath: directory.logPath("controller"),
      signal: this.#options.signal,
    });
    this.#controllerUrl = reachableUrl(service.url);
    // A restarted controller uses the same address, where agents and programs expect it.
    const again = listen.replace(/:\d+$/, `:${new URL(service.url).port}`);
    // Programs that reach the controller from other machines can also reach the nodes.
    this.#agentListen = listen.replace(/:\d+$/, ":0");
    this.#adopt(service, () => this.#startController(again));
  }

  async #startAgent(name: string): Promise<void> {
    const { directory, native, driver, soft, warm, isEncrypted } = this.#options;
    const nodeDirectory = directory.makeNodeDirectory(name);
    const base = serviceEnvironment(process.env, native);
    const service = await startService({
      name,
      args: [
        "agent",
        "--config=none",
        `--name=${name}`,
        `--controller=${this.#controllerUrl}`,
        `--token-file=${directory.tokenPath("agent")}`,
        ...(this.ca === undefined ? [] : [`--ca=${directory.authorityPath}`]),
        `--driver=${driver}`,
        `--worker=${native.worker}`,
        `--run=${nodeDirectory}/run`,
        ...(this.#agentListen === undefined ? [] : [`--listen=${this.#agentListen}`]),
        ...(isEncrypted ? ["--encrypt"] : []),
        `--warm=${warm}`,
        "--drain=all",
      ],
      environment:
        soft === undefined ? base : softNodeEnvironment(base, soft, { name, directory: nodeDirectory }),
      logPath: directory.logPath(name),
      signal: this.#options.signal,
    });
    this.#adopt(service, () => this.#startAgent(name));
  }

  /** Watches a part and restarts it when it ends by itself. */
  #adopt(service: ServiceProcess, restart: () => Promise<void>): void {
    if (this.#isStopping) {
      void service.stop(stopGraceMs);
      return;
    }
    this.#services.set(service.name, service);
    this.#record();
    const startedAt = Date.now();
    void service.ended.then(async (how) => {
      if (this.#isStopping) return;
      this.#options.onEvent(`${service.name} ${how}; starting it again`);
      if (Date.now() - startedAt > settledMs) this.#restarts.delete(service.name);
      await this.#restart(service.name, restart);
    });
  }

  async #restart(name: string, restart: () => Promise<void>): Promise<void> {
    for (let tries = 1; !this.#isStopping; tries += 1) {
      try {
        const restarts = this.#restarts.get(name) ?? 0;
        this.#restarts.set(name, restarts + 1);
        await delay(Math.min(restartFirstMs * 2 ** restarts, restartCeilingMs));
        if (this.#isStopping) return;
        await restart();
        this.#options.onEvent(`${name} is back`);
        return;
      } catch (error) {
        this.#options.onEvent(`${name} cannot be started again: ${errorParts(error).what}`);
        if (tries >= startLimit) {
          this.#failure.reject(error);
          return;
        }
      }
    }
  }

  #record(): void {
    const services = [...this.#services.values()].map(({ identity }) => identity);
    this.#options.directory.record(this.#controllerUrl, services);
  }

  async #untilReady(): Promise<void> {
    const { pool } = this.connect();
    const deadline = Date.now() + readyTimeoutMs;
    const isReady = (node: Node): boolean => node.state === NodeState.READY && node.devices.length > 0;
    for (;;) {
      this.#options.signal.throwIfAborted();
      const { nodes } = await pool.listNodes({});
      const ready = new Set(nodes.filter(isReady).map(({ name }) => name));
      const missing = this.#options.nodes.filter((name) => !ready.has(name));
      if (missing.length === 0) return;
      if (Date.now() > deadline) {
        throw millpondError("MILLPOND_E_NODE_NOT_READY", `${missing.join(", ")} did not join the pool`, {
          remedy: `Look into ${this.#options.directory.logPath(missing[0] ?? "")}.`,
        });
      }
      await Promise.race([delay(pollMs), this.failed]);
    }
  }
}

/** Returns the URL at which other machines reach a server that listens on all addresses. */
function reachableUrl(text: string): string {
  const { protocol, hostname, port } = new URL(text);
  const host = reachableHost(hostname.replace(/^\[|\]$/g, ""));
  return `${protocol}//${isIPv6(host) ? `[${host}]` : host}:${port}`;
}
