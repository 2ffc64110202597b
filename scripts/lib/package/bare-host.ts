// SPDX-License-Identifier: Apache-2.0
// Hosts with a bare Debian and systemd each: a root of its own above a common one, processes, a name, devices, control groups
// and a network of its own. Needs root.
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { copyFile, mkdir, symlink, writeFile } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { must, run, ScriptError } from "../command.ts";

/**
 * Builds the root of a host from $1 with the changes in $2, and starts systemd in it as a container engine would: with its
 * own devices, and with read-only kernel settings.
 */
const boot = `set -e
base=$1 directory=$2 root=$2/root
mount -t overlay overlay -o "lowerdir=$base,upperdir=$directory/upper,workdir=$directory/work" "$root"
mount -t proc proc "$root/proc"
mount --bind "$root/proc/sys" "$root/proc/sys"
mount -o remount,ro,bind "$root/proc/sys"
mount -t sysfs -o ro sysfs "$root/sys"
mount -t tmpfs tmpfs "$root/run"
mount -t tmpfs -o mode=1777 tmpfs "$root/tmp"
mount -t tmpfs -o mode=755 tmpfs "$root/dev"
# Not those of this machine: systemd changes owners and modes.
mknod -m 666 "$root/dev/null" c 1 3
mknod -m 666 "$root/dev/zero" c 1 5
mknod -m 666 "$root/dev/full" c 1 7
mknod -m 666 "$root/dev/random" c 1 8
mknod -m 666 "$root/dev/urandom" c 1 9
mknod -m 666 "$root/dev/tty" c 5 0
mkdir "$root/dev/shm" "$root/dev/pts"
mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
mount -t devpts -o newinstance,ptmxmode=0666,mode=620 devpts "$root/dev/pts"
ln -s pts/ptmx "$root/dev/ptmx"
ln -s /proc/self/fd "$root/dev/fd"
groups=$root/sys/fs/cgroup
if grep -q :name=systemd: /proc/self/cgroup; then
  mount -t tmpfs -o mode=755 tmpfs "$groups"
  for controller in cpu memory pids; do
    mkdir "$groups/$controller"
    mount -t cgroup -o "$controller" cgroup "$groups/$controller"
  done
  mkdir "$groups/systemd" "$groups/unified"
  mount -t cgroup -o none,name=systemd cgroup "$groups/systemd"
  mount -t cgroup2 cgroup2 "$groups/unified"
else
  mount -t cgroup2 cgroup2 "$groups"
fi
exec env -i container=lxc PATH=/usr/sbin:/usr/bin chroot "$root" /lib/systemd/systemd --system`;

/**
 * Moves to control groups of its own, named $1, and runs the remaining arguments there: systemd removes groups that it does
 * not know, and must not see those of others.
 */
const apart = `set -e
group=$1
shift
while read -r _ point type _; do
  case $type in cgroup|cgroup2) ;; *) continue;; esac
  mkdir "$point/$group"
  for file in cpuset.cpus cpuset.mems; do
    [ ! -e "$point/$file" ] || cat "$point/$file" >"$point/$group/$file"
  done
  echo $$ >"$point/$group/cgroup.procs"
done </proc/self/mounts
exec unshare "$@"`;

/** Removes the control groups named $1, which contain no processes any more. */
const removeGroups = `while read -r _ point type _; do
  case $type in cgroup|cgroup2) ;; *) continue;; esac
  [ ! -d "$point/$1" ] || find "$point/$1" -depth -type d -exec rmdir {} + || failed=1
done </proc/self/mounts
[ -z "$failed" ]`;

/** Units that are useless in a container, or that would wait for the Internet. */
const maskedUnits = [
  "console-getty.service",
  "getty@.service",
  "systemd-modules-load.service",
  "apt-daily.timer",
  "apt-daily-upgrade.timer",
];

const startedMs = 60_000;
const endedMs = 10_000;
const pollMs = 200;

export class BareHost implements AsyncDisposable {
  readonly name: string;
  readonly root: string;
  readonly #group: string;
  readonly #init: ChildProcess;

  private constructor(
    { name, root, group }: { readonly name: string; readonly root: string; readonly group: string },
    init: ChildProcess,
  ) {
    this.name = name;
    this.root = root;
    this.#group = group;
    this.#init = init;
  }

  /**
   * Starts a host without network connections.
   *
   * @param base root of a Debian system, which is not changed
   * @param directory directory for this host's changes
   */
  static async start(name: string, base: string, directory: string): Promise<BareHost> {
    const root = join(directory, "root");
    for (const folder of ["root", "upper", "work"]) await mkdir(join(directory, folder), { recursive: true });
    const units = join(directory, "upper", "etc", "systemd", "system");
    await mkdir(units, { recursive: true });
    for (const unit of maskedUnits) await symlink("/dev/null", join(units, unit));
    await writeFile(join(directory, "upper", "etc", "hostname"), `${name}\n`);
    const namespaces = ["--mount", "--pid", "--uts", "--net", "--ipc", "--cgroup"];
    const group = `millpond-${name}-${process.pid}`;
    const init = spawn(
      "sh",
      [
        "-c",
        apart,
        "apart",
        group,
        ...namespaces,
        "--fork",
        "--kill-child",
        "sh",
        "-c",
        boot,
        "boot",
        base,
        directory,
      ],
      { stdio: ["ignore", "ignore", "inherit"] },
    );
    const host = new BareHost({ name, root, group }, init);
    try {
      await host.#started();
    } catch (error) {
      await host[Symbol.asyncDispose]();
      throw error;
    }
    return host;
  }

  /** Resolves when systemd has started the host's services. */
  async #started(): Promise<void> {
    const deadline = performance.now() + startedMs;
    let state = "";
    while (performance.now() < deadline) {
      if (this.#init.exitCode !== null) break;
      ({ output: state } = await this.#run("systemctl is-system-running"));
      if (state.trim() === "running") return;
      await delay(pollMs);
    }
    const { output } = await this.#run("systemctl --no-pager --failed");
    throw new ScriptError(`the host ${this.name} has not started: ${state}\n${output}`);
  }

  /** The process that represents the host, for `nsenter` and for connecting networks. */
  get pid(): number {
    // `unshare` waits for it.
    const parent = String(this.#init.pid);
    return Number(readFileSync(join("/proc", parent, "task", parent, "children"), "utf8"));
  }

  /** Copies a file into root's home folder. */
  async give(path: string): Promise<void> {
    await this.#write(join("root", basename(path)), async (to) => copyFile(path, to));
  }

  /** Writes a file, and creates its folders. */
  async writeFile(path: string, text: string): Promise<void> {
    await this.shell(`mkdir -p ${dirname(path)}`);
    await this.#write(path.replace(/^\//, ""), async (to) => writeFile(to, text));
  }

  /**
   * Runs a command line as root in root's home folder.
   *
   * @throws ScriptError with its output if it fails
   */
  async shell(line: string): Promise<string> {
    const { status, output } = await this.#run(line);
    if (status !== 0) throw new ScriptError(`${this.name}: ${line}\nended with ${status}:\n${output}`);
    return output;
  }

  #run(line: string): ReturnType<typeof run> {
    return run("nsenter", [...this.#enter, "/bin/sh", "-c", `cd /root && ${line}`], {
      env: {
        PATH: "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        HOME: "/root",
        LANG: "C.UTF-8",
      },
    });
  }

  async ip(...args: string[]): Promise<void> {
    await must("nsenter", ["--target", String(this.pid), "--net", "ip", ...args]);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#init.exitCode === null) {
      const ended = once(this.#init, "exit");
      // Its child, the first of the host's processes, ends with it, and so do all others.
      this.#init.kill("SIGKILL");
      await ended;
    }
    const deadline = performance.now() + endedMs;
    for (;;) {
      const { status, output } = await run("sh", ["-c", removeGroups, "remove", this.#group]);
      if (status === 0) return;
      if (performance.now() > deadline) throw new ScriptError(`groups of ${this.name} remain: ${output}`);
      await delay(pollMs);
    }
  }

  get #enter(): string[] {
    const namespaces = ["--mount", "--pid", "--uts", "--net", "--ipc", "--cgroup"];
    return ["--target", String(this.pid), ...namespaces, "chroot", this.root];
  }

  async #write(path: string, write: (to: string) => Promise<void>): Promise<void> {
    // The host's root is mounted only for its own processes.
    await write(join("/proc", String(this.pid), "root", path));
  }
}

/** Connects hosts by a switch, which is one of them: the others have cables to it. */
export async function connect(
  hosts: readonly { readonly host: BareHost; readonly address: string }[],
): Promise<void> {
  const [first, ...others] = hosts;
  if (first === undefined) return;
  await first.host.ip("link", "add", "name", "lan", "type", "bridge");
  await first.host.ip("address", "add", `${first.address}/24`, "dev", "lan");
  await first.host.ip("link", "set", "lan", "up");
  for (const [index, { host, address }] of others.entries()) {
    const port = `port${index}`;
    const end = ["type", "veth", "peer", "name", "lan", "netns", String(host.pid)];
    await first.host.ip("link", "add", "name", port, ...end);
    await first.host.ip("link", "set", port, "master", "lan", "up");
    await host.ip("address", "add", `${address}/24`, "dev", "lan");
    await host.ip("link", "set", "lan", "up");
  }
}
