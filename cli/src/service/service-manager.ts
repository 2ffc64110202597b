// SPDX-License-Identifier: Apache-2.0

// Notifications to systemd from a service of Type=notify.

import { spawn } from "node:child_process";

/** A systemd program that sends notifications, because Node has no Unix datagram sockets. */
const notifier = "systemd-notify";

/**
 * Notifies the service manager, if one started this process: that the service is ready, and then regularly,
 * for the watchdog, that its event loop runs. Does nothing elsewhere.
 */
export class ServiceManager implements Disposable {
  readonly #socket: string | undefined;
  readonly #watchdogMs: number;
  #timer: NodeJS.Timeout | undefined;

  /** Removes the socket from the environment: child processes must not notify the manager. */
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
