// SPDX-License-Identifier: Apache-2.0

// A real control plane of Kubernetes for tests: etcd, kube-apiserver, kube-controller-manager and kube-scheduler on
// loopback, with all their files in a temporary directory. The programs are whatever MILLPOND_KUBERNETES names.

import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import { generateKeyPairSync, randomBytes } from "node:crypto";
import { once } from "node:events";
import {
  createWriteStream,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { createServer } from "node:net";
import { homedir, tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { Health } from "@kubernetes/client-node";
import { type Cluster, ClusterConfig, connectCluster } from "../cluster/cluster.ts";

const programNames = ["etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"] as const;

/** Where the programs are: `MILLPOND_KUBERNETES`, or the cache of this machine. Undefined: they are not installed. */
export function findKubernetes(): string | undefined {
  const cache = join(process.env["XDG_CACHE_HOME"] ?? join(homedir(), ".cache"), "millpond", "kubernetes");
  const directory = process.env["MILLPOND_KUBERNETES"] ?? cache;
  return programNames.every((program) => existsSync(join(directory, program))) ? directory : undefined;
}

/** For the names of tests that are skipped without a control plane. */
export const withKubernetes =
  findKubernetes() === undefined
    ? " (skipped: MILLPOND_KUBERNETES names no directory with its programs)"
    : "";

export interface ControlPlaneOptions {
  /** Time without a heartbeat of its kubelet after which a node counts as lost. Default: a day. */
  readonly nodeLossSeconds?: number;
  /** Further options of the API server, such as `--feature-gates`. */
  readonly apiServer?: readonly string[];
}

export class ControlPlane implements AsyncDisposable {
  readonly directory = mkdtempSync(join(tmpdir(), "millpond-kubernetes-"));
  readonly cluster: Cluster;
  readonly #programs: string;
  readonly #children = new Map<string, ChildProcess>();
  readonly #ports: Readonly<Record<"etcd" | "peers" | "api", number>>;
  readonly #token = randomBytes(16).toString("hex");
  readonly #apiServer: readonly string[];

  private constructor(
    programs: string,
    ports: Readonly<Record<"etcd" | "peers" | "api", number>>,
    apiServer: readonly string[],
  ) {
    this.#programs = programs;
    this.#apiServer = apiServer;
    this.#ports = ports;
    const config = new ClusterConfig();
    config.loadFromOptions(this.#kubeConfig(this.#token));
    this.cluster = connectCluster(config);
  }

  static async start({
    nodeLossSeconds = 86_400,
    apiServer = [],
  }: ControlPlaneOptions = {}): Promise<ControlPlane> {
    const found = findKubernetes();
    if (found === undefined)
      throw new Error("MILLPOND_KUBERNETES names no directory with Kubernetes' programs");
    const [etcd = 0, peers = 0, api = 0] = await freePorts(3);
    const plane = new ControlPlane(found, { etcd, peers, api }, apiServer);
    try {
      plane.#writeFiles();
      plane.startEtcd();
      plane.startApiServer();
      await plane.#ready();
      plane.#start("kube-controller-manager", [
        `--kubeconfig=${join(plane.directory, "kubeconfig")}`,
        "--leader-elect=false",
        `--service-account-private-key-file=${join(plane.directory, "accounts.key")}`,
        `--root-ca-file=${join(plane.directory, "certs", "apiserver.crt")}`,
        `--node-monitor-grace-period=${nodeLossSeconds}s`,
        "--kube-api-qps=500",
        "--kube-api-burst=1000",
        ...plane.#loopback(),
      ]);
      plane.#start("kube-scheduler", [
        `--kubeconfig=${plane.kubeconfig}`,
        "--leader-elect=false",
        "--kube-api-qps=500",
        "--kube-api-burst=1000",
        ...plane.#loopback(),
      ]);
      await plane.#hasAccounts();
      return plane;
    } catch (error) {
      await plane[Symbol.asyncDispose]();
      throw error;
    }
  }

  /** Path of a kubeconfig of an administrator. */
  get kubeconfig(): string {
    return join(this.directory, "kubeconfig");
  }

  /** Every call of the installation's service accounts, one JSON object per line. */
  get auditLog(): string {
    return join(this.directory, "audit.log");
  }

  /** A configuration for another bearer token, for example of a service account. */
  configFor(token: string): ClusterConfig {
    const config = new ClusterConfig();
    config.loadFromOptions(this.#kubeConfig(token));
    return config;
  }

  startEtcd(): void {
    const { etcd, peers } = this.#ports;
    const url = `http://127.0.0.1:${etcd}`;
    const peerUrl = `http://127.0.0.1:${peers}`;
    this.#start("etcd", [
      `--data-dir=${join(this.directory, "etcd")}`,
      `--listen-client-urls=${url}`,
      `--advertise-client-urls=${url}`,
      `--listen-peer-urls=${peerUrl}`,
      `--initial-advertise-peer-urls=${peerUrl}`,
      `--initial-cluster=default=${peerUrl}`,
      "--unsafe-no-fsync",
    ]);
  }

  startApiServer(): void {
    this.#start("kube-apiserver", [
      `--etcd-servers=http://127.0.0.1:${this.#ports.etcd}`,
      "--bind-address=127.0.0.1",
      "--advertise-address=127.0.0.1",
      "--endpoint-reconciler-type=none",
      `--secure-port=${this.#ports.api}`,
      `--cert-dir=${join(this.directory, "certs")}`,
      "--service-cluster-ip-range=10.99.0.0/24",
      "--service-account-issuer=https://kubernetes.default.svc",
      `--service-account-key-file=${join(this.directory, "accounts.pub")}`,
      `--service-account-signing-key-file=${join(this.directory, "accounts.key")}`,
      `--token-auth-file=${join(this.directory, "tokens.csv")}`,
      "--authorization-mode=RBAC",
      "--kubelet-preferred-address-types=InternalIP",
      `--audit-policy-file=${join(this.directory, "audit-policy.json")}`,
      `--audit-log-path=${this.auditLog}`,
      "--audit-log-mode=blocking",
      ...this.#apiServer,
    ]);
  }

  /** Restarts the scheduler with an extender for pods that request a resource, as described in docs/kubernetes.md. */
  async useExtender(urlPrefix: string, caData: string, resource: string): Promise<void> {
    await this.kill("kube-scheduler");
    const [port = 0] = await freePorts(1);
    // API servers without TLS, which exist before 1.24.
    const addresses = { healthzBindAddress: `127.0.0.1:${port}`, metricsBindAddress: `127.0.0.1:${port}` };
    const isOld = this.#minor < 25;
    const config = {
      apiVersion: `kubescheduler.config.k8s.io/${isOld ? "v1beta1" : "v1"}`,
      kind: "KubeSchedulerConfiguration",
      clientConnection: { kubeconfig: this.kubeconfig, qps: 500, burst: 1000 },
      leaderElection: { leaderElect: false },
      ...(isOld ? addresses : {}),
      extenders: [
        {
          urlPrefix,
          filterVerb: "filter",
          prioritizeVerb: "prioritize",
          preemptVerb: "preempt",
          weight: 10,
          nodeCacheCapable: true,
          enableHTTPS: true,
          tlsConfig: { caData },
          managedResources: [{ name: resource }],
        },
      ],
    };
    const path = join(this.directory, "scheduler.json");
    writeFileSync(path, JSON.stringify(config));
    this.#start("kube-scheduler", [`--config=${path}`, ...this.#loopback()]);
  }

  /** Kills a program, and resolves when it has ended. */
  async kill(name: (typeof programNames)[number]): Promise<void> {
    const child = this.#children.get(name);
    this.#children.delete(name);
    if (child === undefined || child.exitCode !== null || child.signalCode !== null) return;
    child.kill("SIGKILL");
    await once(child, "exit");
  }

  async restartApiServer(): Promise<void> {
    await this.kill("kube-apiserver");
    this.startApiServer();
    await this.#ready();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const name of ["kube-scheduler", "kube-controller-manager", "kube-apiserver", "etcd"] as const) {
      await this.kill(name);
    }
    if (process.env["MILLPOND_KEEP"] === undefined) rmSync(this.directory, { recursive: true, force: true });
  }

  #start(name: (typeof programNames)[number], args: readonly string[]): void {
    const log = createWriteStream(join(this.directory, `${name}.log`), { flags: "a" });
    // A test that is killed leaves nothing behind.
    const child = spawn("setpriv", ["--pdeathsig", "KILL", join(this.#programs, name), ...args], {
      stdio: ["ignore", "pipe", "pipe"],
      env: { PATH: process.env["PATH"], GOMAXPROCS: "2" },
    });
    child.stdout?.pipe(log);
    child.stderr?.pipe(log);
    this.#children.set(name, child);
  }

  /** Nothing listens beyond loopback: before 1.24 there was another port, without TLS, on all addresses. */
  #loopback(): string[] {
    return ["--bind-address=127.0.0.1", "--secure-port=0", ...(this.#minor < 24 ? ["--port=0"] : [])];
  }

  get #minor(): number {
    const { stdout } = spawnSync(join(this.#programs, "kube-apiserver"), ["--version"], { encoding: "utf8" });
    return Number(/v1\.(\d+)/.exec(stdout)?.[1] ?? 0);
  }

  #kubeConfig(token: string) {
    return {
      clusters: [{ name: "test", server: `https://127.0.0.1:${this.#ports.api}`, skipTLSVerify: true }],
      users: [{ name: "test", token }],
      contexts: [{ name: "test", cluster: "test", user: "test" }],
      currentContext: "test",
    };
  }

  #writeFiles(): void {
    mkdirSync(join(this.directory, "certs"), { recursive: true });
    const { publicKey, privateKey } = generateKeyPairSync("rsa", { modulusLength: 2048 });
    writeFileSync(join(this.directory, "accounts.pub"), publicKey.export({ type: "spki", format: "pem" }));
    writeFileSync(join(this.directory, "accounts.key"), privateKey.export({ type: "pkcs8", format: "pem" }));
    writeFileSync(join(this.directory, "tokens.csv"), `${this.#token},admin,admin,system:masters\n`);
    writeFileSync(
      join(this.directory, "audit-policy.json"),
      JSON.stringify({
        apiVersion: "audit.k8s.io/v1",
        kind: "Policy",
        omitStages: ["RequestReceived", "ResponseStarted"],
        rules: [
          { level: "Metadata", userGroups: ["system:serviceaccounts:millpond-system"] },
          { level: "None" },
        ],
      }),
    );
    const { clusters, users, contexts, currentContext } = this.#kubeConfig(this.#token);
    writeFileSync(
      this.kubeconfig,
      JSON.stringify({
        apiVersion: "v1",
        kind: "Config",
        "current-context": currentContext,
        clusters: clusters.map(({ name, server }) => ({
          name,
          cluster: { server, "insecure-skip-tls-verify": true },
        })),
        users: users.map((user) => ({ name: user.name, user: { token: user.token } })),
        contexts: contexts.map(({ name, cluster, user }) => ({ name, context: { cluster, user } })),
      }),
    );
  }

  async #ready(): Promise<void> {
    const deadline = performance.now() + 120_000;
    let cause: unknown;
    for (;;) {
      try {
        // The controller manager ends if the API server is not healthy within seconds.
        if (await new Health(this.cluster.config).readyz({})) return;
      } catch (error) {
        cause = error;
      }
      const child = this.#children.get("kube-apiserver");
      if (performance.now() > deadline || (child !== undefined && child.exitCode !== null))
        throw new Error(`the API server does not answer: ${this.logOf("kube-apiserver")}`, { cause });
      await delay(100);
    }
  }

  /** Pods can be created in a namespace only once it has its default service account. */
  async #hasAccounts(): Promise<void> {
    const deadline = performance.now() + 120_000;
    for (;;) {
      const accounts = await this.cluster.core.listNamespacedServiceAccount({ namespace: "default" });
      if (accounts.items.some(({ metadata }) => metadata?.name === "default")) return;
      if (performance.now() > deadline) {
        throw new Error(`there are no service accounts: ${this.logOf("kube-controller-manager")}`);
      }
      await delay(100);
    }
  }

  /** The last part of a program's log. */
  logOf(name: (typeof programNames)[number]): string {
    const path = join(this.directory, `${name}.log`);
    return existsSync(path) ? readFileSync(path, "utf8").slice(-4000) : "";
  }
}

async function freePorts(count: number): Promise<number[]> {
  const servers = Array.from({ length: count }, () => createServer().listen(0, "127.0.0.1"));
  await Promise.all(servers.map((server) => once(server, "listening")));
  const ports = servers.map((server) => {
    const address = server.address();
    return typeof address === "object" && address !== null ? address.port : 0;
  });
  for (const server of servers) server.close();
  return ports;
}
