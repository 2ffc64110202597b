// SPDX-License-Identifier: Apache-2.0
// Ctrl-Z stops `millpond run`, which then cannot renew the leases of its claims. A process outside of the terminal's group
// renews them meanwhile.

import { type ChildProcess, spawn } from "node:child_process";
import { setTimeout as delay } from "node:timers/promises";
import { errorCodeOf } from "@millpond/api";
import { exitStatus } from "../command-table/command-table.ts";
import { type Connection, isSilent, openConnection } from "../connection/connection.ts";

/** Variable that starts a `millpond` as such a process; its value is the id of the stopped one. Programs do not get it. */
const leaseVariable = "MILLPOND_LEASES";

const renewalMs = 5000;
const askTimeoutMs = 5000;

/** Signals by which the terminal stops a process. */
const stopping = ["SIGTSTP", "SIGTTIN", "SIGTTOU"] as const;

/** Stops this process, after another one has taken over renewing the leases of its claims. */
export class StoppedLeases implements Disposable {
  readonly #connection: Connection;
  readonly #names = new Set<string>();
  #keeper: ChildProcess | undefined;
  readonly #stop = (): void => {
    if (this.#names.size > 0) this.#startKeeper();
    process.kill(process.pid, "SIGSTOP");
  };
  readonly #continue = (): void => {
    this.#keeper?.kill();
    this.#keeper = undefined;
  };

  constructor(connection: Connection) {
    this.#connection = connection;
    for (const signal of stopping) process.on(signal, this.#stop);
    process.on("SIGCONT", this.#continue);
  }

  add(name: string): void {
    this.#names.add(name);
  }

  delete(name: string): void {
    this.#names.delete(name);
  }

  [Symbol.dispose](): void {
    for (const signal of stopping) process.off(signal, this.#stop);
    process.off("SIGCONT", this.#continue);
    this.#continue();
  }

  #startKeeper(): void {
    const { controller, token, ca } = this.#connection;
    const keeper = spawn(
      process.execPath,
      [...process.execArgv, process.argv[1] ?? "", ...this.#names],
      // In a session of its own, so that the signals of the terminal do not reach it.
      {
        detached: true,
        stdio: "ignore",
        env: {
          ...process.env,
          MILLPOND_CONTROLLER: controller,
          MILLPOND_TOKEN: token,
          ...(ca === undefined ? {} : { MILLPOND_CA: ca }),
          [leaseVariable]: String(process.pid),
        },
      },
    );
    // Without that process the leases would expire, as if it had not been started.
    keeper.on("error", () => undefined);
    keeper.unref();
    this.#keeper = keeper;
  }
}

/** Renews the leases of claims until the process that started this one has ended or terminates this one. */
export async function keepLeases(names: readonly string[], parent: number): Promise<number> {
  const { claims } = openConnection({
    controller: process.env["MILLPOND_CONTROLLER"],
    token: process.env["MILLPOND_TOKEN"],
  });
  const left = new Set(names);
  while (left.size > 0 && process.ppid === parent) {
    for (const name of left) {
      try {
        await claims.waitClaim({ name, timeoutSeconds: 0 }, { timeoutMs: askTimeoutMs });
      } catch (error) {
        if (errorCodeOf(error) === "MILLPOND_E_NOT_FOUND") left.delete(name);
        else if (!isSilent(error)) throw error;
      }
    }
    await delay(renewalMs);
  }
  return exitStatus.ok;
}
