// SPDX-License-Identifier: Apache-2.0
// Machines with addresses of their own: network namespaces of this one, joined by a cable.
import { spawn, spawnSync } from "node:child_process";
import { until } from "./pool.ts";
import { Program } from "./program.ts";

/** A new network, in a user namespace in which this user may change it. */
const newNetwork = ["unshare", "--map-root-user", "--net"];
/** Exists until its standard input ends, so that it never outlives the test. */
const stand = ["sh", "-c", "ip link set lo up && echo stands && exec cat"];

/** Why such machines cannot exist here; undefined: they can. */
export const missingMachines: string | undefined = (() => {
  const [command, ...args] = [
    ...newNetwork,
    "ip",
    "link",
    "add",
    "name",
    "one",
    "type",
    "veth",
    "peer",
    "name",
    "two",
  ];
  const { status, stderr, error } = spawnSync(command, args, { encoding: "utf8" });
  return status === 0 ? undefined : `no networks of one's own here: ${error?.message ?? stderr.trim()}`;
})();

export class Machine implements AsyncDisposable {
  readonly #holder: Program;

  private constructor(holder: Program) {
    this.#holder = holder;
  }

  static async #start([command = "", ...args]: readonly string[]): Promise<Machine> {
    const machine = new Machine(new Program(spawn(command, args, { stdio: ["pipe", "pipe", "pipe"] })));
    await machine.#holder.says("stdout", /stands/);
    return machine;
  }

  /** Two machines and the cable between them. */
  static async pair(first: string, second: string): Promise<readonly [Machine, Machine]> {
    const one = await Machine.#start([...newNetwork, ...stand]);
    const two = await Machine.#start([...one.#enter, "unshare", "--net", ...stand]);
    await one.#ip(
      "link",
      "add",
      "name",
      "cable",
      "type",
      "veth",
      "peer",
      "name",
      "cable",
      "netns",
      String(two.#holder.pid),
    );
    for (const [machine, address] of [
      [one, first],
      [two, second],
    ] as const) {
      await machine.#ip("address", "add", `${address}/24`, "dev", "cable");
      await machine.setCable("up");
    }
    // The kernel notices the carrier up to a second later. Until then programs do not find the address of the machine.
    for (const machine of [one, two]) {
      await until(
        "the cable has a carrier",
        () => machine.#ip("-oneline", "link", "show", "dev", "cable"),
        (link) => link.includes("state UP"),
        30_000,
      );
    }
    return [one, two];
  }

  get #enter(): readonly string[] {
    return ["nsenter", "--target", String(this.#holder.pid), "--user", "--net", "--preserve-credentials"];
  }

  /** Unplugs the cable of this machine, or plugs it in again. */
  async setCable(state: "up" | "down"): Promise<void> {
    await this.#ip("link", "set", "cable", state);
  }

  /** Runs a program on this machine. */
  start(command: readonly string[], env: NodeJS.ProcessEnv, cwd: string): Program {
    const [enter = "", ...args] = [...this.#enter, ...command];
    return new Program(spawn(enter, args, { cwd, env, stdio: ["pipe", "pipe", "pipe"] }));
  }

  async #ip(...args: readonly string[]): Promise<string> {
    const { status, stdout, stderr } = await this.start(["ip", ...args], process.env, "/").finished;
    if (status !== 0) throw new Error(`ip ${args.join(" ")}: ${stderr}`);
    return stdout;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#holder.endInput();
    await this.#holder.finished;
  }
}
