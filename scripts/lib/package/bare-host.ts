// SPDX-License-Identifier: Apache-2.0
// Hosts with a bare Debian each: a root of its own above a common one, processes, a name and a network of its own. Needs root.
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { chmod, copyFile, mkdir, writeFile } from "node:fs/promises";
import { basename, join } from "node:path";
import { must, run, ScriptError } from "../command.ts";

/** What takes the place of systemd, which does not run in a chroot: it starts the command lines of the units. */
const systemctl = `#!/bin/sh
# Starts and stops the command line of a unit, as systemd does with those of this test.
units=/lib/systemd/system
action=$1; shift
for word; do case $word in --now) now=1;; --quiet) ;; *) names="$names $word";; esac; done
start() {
  unit=$units/$1
  line=$(sed -n 's/^ExecStart=//p' "$unit")
  user=$(sed -n 's/^User=//p' "$unit")
  directory=$(sed -n 's/^StateDirectory=//p' "$unit")
  [ -z "$directory" ] || { mkdir -p "/var/lib/$directory"; [ -z "$user" ] || chown "$user" "/var/lib/$directory"; }
  for variable in $(sed -n 's/^Environment=//p' "$unit"); do export "$variable"; done
  [ -z "$user" ] || line="setpriv --reuid=$user --regid=$user --clear-groups $line"
  setsid $line >"/run/$1.log" 2>&1 </dev/null &
  echo $! >"/run/$1.pid"
}
stop() { [ ! -f "/run/$1.pid" ] || { kill "$(cat "/run/$1.pid")"; rm "/run/$1.pid"; }; }
for name in $names; do
  case $name in *.timer) continue;; *.*) ;; *) name=$name.service;; esac
  [ -f "$units/$name" ] || { echo "Unit $name could not be found." >&2; exit 4; }
  case $action in
    cat) cat "$units/$name";;
    enable) [ -z "$now" ] || start "$name";;
    start) start "$name";;
    stop) stop "$name";;
    restart) stop "$name"; start "$name";;
    try-restart) [ ! -f "/run/$name.pid" ] || { stop "$name"; start "$name"; };;
    is-active) [ -f "/run/$name.pid" ] || exit 3;;
  esac
done
`;

export class BareHost implements AsyncDisposable {
  readonly name: string;
  readonly root: string;
  readonly #init: ChildProcess;

  private constructor(name: string, root: string, init: ChildProcess) {
    this.name = name;
    this.root = root;
    this.#init = init;
  }

  /**
   * Starts a host, connected to nothing yet.
   *
   * @param base a Debian, which stays as it is
   * @param directory of this host's changes
   */
  static async start(name: string, base: string, directory: string): Promise<BareHost> {
    const root = join(directory, "root");
    for (const folder of ["root", "upper", "work"]) await mkdir(join(directory, folder), { recursive: true });
    const layers = `lowerdir=${base},upperdir=${join(directory, "upper")},workdir=${join(directory, "work")}`;
    const script = `set -e
mount -t overlay overlay -o "$1" "$2"
mount -t proc proc "$2/proc"
mount -t tmpfs tmpfs "$2/run"
mount -t tmpfs -o mode=1777 tmpfs "$2/tmp"
mount --rbind /dev "$2/dev"
mount -t tmpfs -o mode=1777 tmpfs "$2/dev/shm"
hostname "$3"
ip link set lo up
echo stands
exec cat`;
    const init = spawn(
      "unshare",
      [
        "--mount",
        "--pid",
        "--fork",
        "--kill-child",
        "--uts",
        "--net",
        "--ipc",
        "sh",
        "-c",
        script,
        "init",
        layers,
        root,
        name,
      ],
      { stdio: ["pipe", "pipe", "inherit"] },
    );
    await Promise.race([
      once(init.stdout, "data"),
      once(init, "exit").then(() => {
        throw new ScriptError(`the host ${name} does not stand`);
      }),
    ]);
    return new BareHost(name, root, init);
  }

  /** The process that stands for the host, for `nsenter` and for the ends of cables. */
  get pid(): number {
    // `unshare` waits for it.
    const parent = String(this.#init.pid);
    return Number(readFileSync(join("/proc", parent, "task", parent, "children"), "utf8"));
  }

  /** Copies a file into the folder of root. */
  async give(path: string): Promise<void> {
    await this.#write(join("root", basename(path)), async (to) => copyFile(path, to));
  }

  /** Lets the package find a service manager. */
  async giveServiceManager(): Promise<void> {
    await this.shell("mkdir -p /run/systemd/system");
    await this.#write("usr/local/bin/systemctl", async (to) => {
      await writeFile(to, systemctl);
      await chmod(to, 0o755);
    });
  }

  async writeFile(path: string, text: string): Promise<void> {
    await this.#write(path.replace(/^\//, ""), async (to) => writeFile(to, text));
  }

  /** Runs a command line as root in the folder of root. @throws ScriptError with its output where it fails */
  async shell(line: string): Promise<string> {
    const { status, output } = await run(
      "nsenter",
      [...this.#enter, "/bin/sh", "-c", `cd /root && ${line}`],
      {
        env: {
          PATH: "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
          HOME: "/root",
          LANG: "C.UTF-8",
        },
      },
    );
    if (status !== 0) throw new ScriptError(`${this.name}: ${line}\nended with ${status}:\n${output}`);
    return output;
  }

  async ip(...args: string[]): Promise<void> {
    await must("nsenter", ["--target", String(this.pid), "--net", "ip", ...args]);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const ended = once(this.#init, "exit");
    this.#init.stdin?.end();
    await ended;
  }

  get #enter(): string[] {
    const namespaces = ["--mount", "--pid", "--uts", "--net", "--ipc"];
    return ["--target", String(this.pid), ...namespaces, "chroot", this.root];
  }

  async #write(path: string, write: (to: string) => Promise<void>): Promise<void> {
    // The host's root is mounted for its own processes only.
    await write(join("/proc", String(this.pid), "root", this.root, path));
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
