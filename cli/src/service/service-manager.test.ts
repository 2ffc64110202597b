// SPDX-License-Identifier: Apache-2.0

// Services under a service manager: they notify it when they are ready, feed its watchdog, and reload.

import { spawn, spawnSync } from "node:child_process";
import { existsSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { expect, onTestFinished, test } from "vitest";
import { entry } from "../../test/entry.ts";
import { Home } from "../../test/fixture.ts";

/** Prints the messages at a Unix datagram socket, which Node does not support. */
const listener = `
import socket, sys
receiver = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
receiver.bind(sys.argv[1])
print("bound", flush=True)
while True:
    print(receiver.recv(4096).decode().replace("\\n", " "), flush=True)
`;

const missing = ["python3", "systemd-notify"].filter((tool) => spawnSync(tool, ["--version"]).status !== 0);

/** The output lines of a program, and waiting for one of them. */
function follow(
  command: string,
  args: readonly string[],
  env: NodeJS.ProcessEnv,
  stream: "stdout" | "stderr",
) {
  const child = spawn(command, args, { env, stdio: ["ignore", "pipe", "pipe"] });
  onTestFinished(async () => {
    if (child.exitCode !== null || child.signalCode !== null) return;
    const exited = new Promise((resolve) => child.once("exit", resolve));
    child.kill("SIGTERM");
    await exited;
  });
  const lines: string[] = [];
  let look = (): void => undefined;
  createInterface({ input: child[stream] }).on("line", (line) => {
    lines.push(line);
    look();
  });
  child[stream === "stdout" ? "stderr" : "stdout"].resume();
  const says = async (pattern: RegExp): Promise<void> => {
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    look = () => {
      if (lines.some((line) => pattern.test(line))) resolve();
    };
    child.once("exit", () => reject(new Error(`it ended without saying ${pattern}:\n${lines.join("\n")}`)));
    look();
    await promise;
  };
  return { child, says, lines };
}

test.skipIf(missing.length > 0)(
  "a controller tells its manager that it serves and lives, and reloads its file without a restart",
  async () => {
    using home = new Home();
    const socket = join(home.directory, "notify");
    const manager = follow("python3", ["-c", listener, socket], process.env, "stdout");
    await manager.says(/^bound$/);
    expect(existsSync(socket)).toBe(true);
    const config = join(home.directory, "controller.yaml");
    writeFileSync(config, "listen: 127.0.0.1:0\nlogLevel: warn\n");
    const controller = follow(
      process.execPath,
      [entry, "controller", "--config", config, "--state", join(home.directory, "state")],
      { PATH: process.env["PATH"], HOME: home.directory, NOTIFY_SOCKET: socket, WATCHDOG_USEC: "300000" },
      "stderr",
    );
    await manager.says(/READY=1/);
    await manager.says(/WATCHDOG=1/);
    expect(controller.lines).toEqual([]);

    writeFileSync(config, "listen: 127.0.0.1:0\nlogLevel: nothing\n");
    controller.child.kill("SIGHUP");
    await controller.says(/the options cannot be read and stay unchanged/);
    writeFileSync(config, "listen: 127.0.0.1:0\nlogLevel: info\n");
    controller.child.kill("SIGHUP");
    await controller.says(/"level":30.*"reloaded"/);
  },
);
