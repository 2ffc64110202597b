// SPDX-License-Identifier: Apache-2.0

// A node with a real kubelet and containerd, in network, mount and process namespaces of its own. Its programs are also
// in the folder that MILLPOND_KUBERNETES names, the network plugins in its folder `cni`. Needs root.

import { type ChildProcess, spawnSync } from "node:child_process";
import { once } from "node:events";
import {
  createWriteStream,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { createConnection, createServer, type Server } from "node:net";
import { join } from "node:path";
import { findKubernetes } from "./control-plane.ts";
import { firstProcessOf, spawnInNamespaces } from "./namespaces.ts";
import type { TestCluster } from "./test-cluster.ts";

const cgroups = "/sys/fs/cgroup";

const nodePrograms = [
  "kubelet",
  "containerd",
  "containerd-shim-runc-v2",
  "ctr",
  "runc",
  "busybox",
  "cni/ptp",
  "cni/loopback",
] as const;

/** Why no node can be started here; undefined: it can. */
export function missingNode(): string | undefined {
  const directory = findKubernetes();
  if (directory === undefined) return "MILLPOND_KUBERNETES names no directory with its programs";
  const missing = nodePrograms.find((program) => !existsSync(join(directory, program)));
  if (missing !== undefined) return `there is no ${missing} beside kube-apiserver`;
  if (process.getuid?.() !== 0) return "a kubelet needs root";
  const { status } = spawnSync("unshare", ["-n", "-m", "-p", "-f", "true"]);
  return status === 0 ? undefined : "there are no namespaces here";
}

export class RealNode implements AsyncDisposable {
  readonly name: string;
  readonly directory: string;
  /** Address of this machine as the node and its pods see it. */
  readonly hostAddress: string;
  readonly #cluster: TestCluster;
  readonly #subnet: number;
  readonly #programs: string;
  #child: ChildProcess | undefined;
  #proxy: Server | undefined;

  private constructor(cluster: TestCluster, name: string, subnet: number) {
    this.#cluster = cluster;
    this.#programs = findKubernetes() ?? "";
    this.#subnet = subnet;
    this.name = name;
    this.directory = join(cluster.plane.directory, name);
    this.hostAddress = `10.77.${subnet}.1`;
  }

  /**
   * Resolves when the node is ready for pods.
   *
   * @param subnet 0 to 255, different for each node.
   */
  static async start(cluster: TestCluster, name: string, subnet: number): Promise<RealNode> {
    const node = new RealNode(cluster, name, subnet);
    try {
      await node.#begin();
    } catch (error) {
      await node[Symbol.asyncDispose]();
      throw error;
    }
    return node;
  }

  get kubeletDirectory(): string {
    return join(this.directory, "kubelet");
  }

  get cdiDirectory(): string {
    return join(this.directory, "cdi");
  }

  /** Runs one of the node's programs inside the node. */
  run(...command: readonly string[]): string {
    const pid = this.#inner();
    const { stdout, stderr, status } = spawnSync("nsenter", ["-t", pid, "-n", "-m", "-p", ...command], {
      encoding: "utf8",
      env: { PATH: `${this.#programs}:${process.env["PATH"] ?? ""}` },
    });
    if (status !== 0) throw new Error(`${command.join(" ")}: ${stderr}${stdout}`);
    return stdout;
  }

  importImage(path: string): void {
    this.run(
      "ctr",
      "-a",
      join(this.directory, "containerd.sock"),
      "-n",
      "k8s.io",
      "images",
      "import",
      "--local",
      path,
    );
  }

  /** Stops the kubelet, as on a machine that hangs; containers continue. */
  stopKubelet(): void {
    this.run("pkill", "-STOP", "-x", "kubelet");
  }

  resumeKubelet(): void {
    this.run("pkill", "-CONT", "-x", "kubelet");
  }

  /** The service manager starts it again; containers continue. */
  killKubelet(): void {
    this.run("pkill", "-KILL", "-x", "kubelet");
  }

  /** As after a power failure: all processes end, and only what is on a disk remains. Resolves when it is ready again. */
  async reboot(): Promise<void> {
    await this.#halt();
    for (const folder of ["run", "cdi"]) rmSync(join(this.directory, folder), { recursive: true });
    await this.#begin();
  }

  /** The last part of the logs of the node's programs. */
  get log(): string {
    return ["containerd", "kubelet"]
      .map((program) => join(this.directory, `${program}.log`))
      .filter((path) => existsSync(path))
      .map((path) => readFileSync(path, "utf8").slice(-3000))
      .join("\n");
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#halt();
    // Its control groups, which are empty by now.
    for (const hierarchy of ["", ...readdirSync(cgroups)]) {
      const own = join(cgroups, hierarchy, `millpond-${this.name}`);
      if (existsSync(own)) spawnSync("find", [own, "-depth", "-type", "d", "-delete"]);
    }
  }

  async #halt(): Promise<void> {
    // All processes of the node's process namespace end with its first one.
    if (this.#child !== undefined && this.#child.exitCode === null && this.#child.signalCode === null) {
      const pid = this.#inner();
      const exited = once(this.#child, "exit");
      if (pid !== "") process.kill(Number(pid), "SIGKILL");
      else this.#child.kill("SIGKILL");
      await exited;
    }
    this.#proxy?.close();
    spawnSync("ip", ["link", "delete", this.#link]);
  }

  get #link(): string {
    return `mpk${this.#subnet}`;
  }

  /** Process id, as seen from here, of the first process of the node. */
  #inner(): string {
    return firstProcessOf(this.#child);
  }

  async #begin(): Promise<void> {
    const { directory } = this;
    for (const folder of ["kubelet", "cdi", "containerd", "run", "cni", "cni-state", "logs"]) {
      mkdirSync(join(directory, folder), { recursive: true });
    }
    must("ip", "link", "add", this.#link, "type", "veth", "peer", "name", `${this.#link}n`);
    must("ip", "addr", "add", `${this.hostAddress}/24`, "dev", this.#link);
    must("ip", "link", "set", this.#link, "up");
    must("ip", "route", "replace", `10.78.${this.#subnet}.0/24`, "via", `10.77.${this.#subnet}.2`);
    const apiPort = await this.#startProxy();
    this.#writeFiles(apiPort);
    const log = createWriteStream(join(directory, "node.log"));
    const script = join(directory, "node.sh");
    this.#child = spawnInNamespaces(script, { PATH: `${this.#programs}:${process.env["PATH"] ?? ""}` });
    this.#child.stdout?.pipe(log);
    this.#child.stderr?.pipe(log);
    await this.#cluster.until("the node has a first process", () => Promise.resolve(this.#inner() !== ""));
    must("ip", "link", "set", `${this.#link}n`, "netns", this.#inner());
    await this.#cluster.until(
      `node ${this.name} is ready`,
      async () => {
        if (this.#child?.exitCode !== null)
          throw new Error(readFileSync(join(directory, "node.log"), "utf8"));
        try {
          const { status, spec } = await this.#cluster.core.readNode({ name: this.name });
          const isReady = status?.conditions?.some((each) => each.type === "Ready" && each.status === "True");
          return isReady === true && (spec?.taints ?? []).length === 0;
        } catch (error) {
          throw new Error(this.log, { cause: error });
        }
      },
      120_000,
    );
  }

  /** The API server listens on loopback, and the node has a loopback of its own. */
  async #startProxy(): Promise<number> {
    const server = new URL(this.#cluster.plane.cluster.config.getCurrentCluster()?.server ?? "");
    this.#proxy = createServer((socket) => {
      const upstream = createConnection(Number(server.port), server.hostname);
      socket.pipe(upstream).pipe(socket);
      for (const end of [socket, upstream]) {
        end.on("error", () => {
          socket.destroy();
          upstream.destroy();
        });
      }
    }).listen(0, this.hostAddress);
    await once(this.#proxy, "listening");
    const address = this.#proxy.address();
    return typeof address === "object" && address !== null ? address.port : 0;
  }

  #writeFiles(apiPort: number): void {
    const { directory, name, hostAddress } = this;
    const write = (file: string, text: string): void => writeFileSync(join(directory, file), text);
    const kubeconfig = JSON.parse(readFileSync(this.#cluster.plane.kubeconfig, "utf8")) as {
      clusters: { cluster: { server: string } }[];
    };
    for (const { cluster } of kubeconfig.clusters) cluster.server = `https://${hostAddress}:${apiPort}`;
    write("kubeconfig", JSON.stringify(kubeconfig));
    write(
      "containerd.toml",
      `version = 3
root = "${directory}/containerd"
state = "${directory}/run"
[grpc]
  address = "${directory}/containerd.sock"
[plugins."io.containerd.cri.v1.images"]
  snapshotter = "native"
  [plugins."io.containerd.cri.v1.images".pinned_images]
    sandbox = "docker.io/millpond/pause:test"
[plugins."io.containerd.cri.v1.runtime"]
  enable_cdi = true
  cdi_spec_dirs = ["${this.cdiDirectory}"]
  restrict_oom_score_adj = true
  disable_apparmor = true
  [plugins."io.containerd.cri.v1.runtime".cni]
    bin_dirs = ["${this.#programs}/cni"]
    conf_dir = "${directory}/cni"
  [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
      BinaryName = "${this.#programs}/runc"
`,
    );
    write(
      "cni/10-test.conflist",
      JSON.stringify({
        cniVersion: "1.0.0",
        name: "test",
        plugins: [
          {
            type: "ptp",
            ipam: {
              type: "host-local",
              dataDir: `${directory}/cni-state`,
              subnet: `10.78.${this.#subnet}.0/24`,
              routes: [{ dst: "0.0.0.0/0" }],
            },
          },
        ],
      }),
    );
    write(
      "kubelet.yaml",
      JSON.stringify({
        apiVersion: "kubelet.config.k8s.io/v1beta1",
        kind: "KubeletConfiguration",
        authentication: { anonymous: { enabled: true }, webhook: { enabled: false } },
        authorization: { mode: "AlwaysAllow" },
        cgroupDriver: "cgroupfs",
        cgroupRoot: `/millpond-${name}`,
        cgroupsPerQOS: true,
        enforceNodeAllocatable: [],
        failCgroupV1: false,
        failSwapOn: false,
        // Tests kill programs of pods again and again.
        ...(this.#cluster.minor < 35 ? {} : { crashLoopBackOff: { maxContainerRestartPeriod: "2s" } }),
        makeIPTablesUtilChains: false,
        containerRuntimeEndpoint: `unix://${directory}/containerd.sock`,
        evictionHard: { "memory.available": "0%", "nodefs.available": "0%", "imagefs.available": "0%" },
        imageGCHighThresholdPercent: 100,
        localStorageCapacityIsolation: false,
        podLogsDir: `${directory}/logs`,
        resolvConf: "",
        registerNode: true,
        address: `10.77.${this.#subnet}.2`,
        healthzPort: 0,
        readOnlyPort: 0,
      }),
    );
    write(
      "node.sh",
      `set -eu
while ! ip link show ${this.#link}n >/dev/null 2>&1; do sleep 0.05; done
ip link set lo up
ip addr add 10.77.${this.#subnet}.2/24 dev ${this.#link}n
ip link set ${this.#link}n up
ip route add default via ${hostAddress}
echo 1 > /proc/sys/net/ipv4/ip_forward
mkdir -p /var/lib/kubelet
mount --bind ${this.kubeletDirectory} /var/lib/kubelet
for controller in ${cgroups}/*; do
  mkdir -p $controller/millpond-${name} || true
  for file in cpuset.cpus cpuset.mems; do
    if [ -e $controller/$file ] && [ -w $controller/millpond-${name}/$file ]; then cat $controller/$file > $controller/millpond-${name}/$file; fi
  done
done
containerd --config ${directory}/containerd.toml > ${directory}/containerd.log 2>&1 &
while [ ! -S ${directory}/containerd.sock ]; do sleep 0.05; done
# As a service manager does: one that is killed is started again.
while true; do
  kubelet --config=${directory}/kubelet.yaml --kubeconfig=${directory}/kubeconfig --root-dir=/var/lib/kubelet \\
    --hostname-override=${name} --node-ip=10.77.${this.#subnet}.2 --v=2 >> ${directory}/kubelet.log 2>&1 || sleep 0.2
done
`,
    );
  }
}

function must(program: string, ...args: readonly string[]): void {
  const { status, stderr } = spawnSync(program, args, { encoding: "utf8" });
  if (status !== 0) throw new Error(`${program} ${args.join(" ")}: ${stderr}`);
}
