// SPDX-License-Identifier: Apache-2.0

// What systemd wants to know of a service of Type=notify.

import { spawn } from "node:child_process";

/** Of systemd: Node has no datagram sockets of the family, so the manager's own program speaks. */
const notifier = "systemd-notify";

/**
 * Speaks with the service manager, when one started this process: says that it serves, and from then on that its event
 * loop turns, for the watchdog. Does nothing elsewhere.
 */
export class ServiceManager implements Disposable {
  readonly #socket: string | undefined;
  readonly #watchdogMs: number;
  #timer: NodeJS.Timeout | undefined;

  /** Takes the socket out of the environment: what this process starts has nothing to say to the manager. */
  constructor(environment: NodeJS.ProcessEnv) {
    this.#socket = environment["NOTIFY_SOCKET"];
    const { WATCHDOG_USEC: microseconds, WATCHDOG_PID: pid } = environment;
    const isOurs = pid === undefined || pid === String(process.pid);
    this.#watchdogMs = isOurs && microseconds !== undefined ? Number(microseconds) / 1000 : 0;
    for (const name of ["NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"]) delete environment[name];
  }

  ready(): void {
    this.#say("READY=1");
    if (this.#watchdogMs > 0) {
      this.#timer = setInterval(() => this.#say("WATCHDOG=1"), this.#watchdogMs / 3);
      this.#timer.unref();
    }
  }

  [Symbol.dispose](): void {
    clearInterval(this.#timer);
  }

  #say(state: string): void {
    if (this.#socket === undefined || this.#socket === "") return;
    const child = spawn(notifier, [state], {
      stdio: "ignore",
      env: { PATH: process.env["PATH"], NOTIFY_SOCKET: this.#socket },
    });
    child.on("error", (error) =>
      process.stderr.write(`millpond: ${notifier} cannot be run: ${error.message}\n`),
    );
    child.unref();
  }
}
