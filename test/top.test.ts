// SPDX-License-Identifier: Apache-2.0
// `millpond top` on a terminal.
import { spawnSync } from "node:child_process";
import { join } from "node:path";
import { expect, it } from "vitest";
import { entry } from "@millpond/cli/testing/entry";
import { Pool } from "./support/pool.ts";
import { startProgram } from "./support/program.ts";

const missing = spawnSync("script", ["--version"]).status === 0 ? "" : " (not run: no script(1) here)";

it.skipIf(missing !== "")(
  `shows what runs, on a terminal of 80 columns without colour${missing}`,
  async () => {
    await using pool = await Pool.start("--devices", "1", "--device-memory", "1Gi");
    const program = pool.startEndless(["-m", "256Mi", "--compute", "30"]);
    const [session] = await pool.connected(1);
    const top = [process.execPath, entry, "top", "-d", "1s"].join(" ");
    const shown = startProgram(
      "script",
      ["-qec", `stty rows 24 cols 80; exec ${top}`, "/dev/null"],
      {
        PATH: process.env["PATH"],
        HOME: pool.directory,
        MILLPOND_CONFIG: join(pool.directory, "config.json"),
        TERM: "vt100",
        NO_COLOR: "1",
        SHELL: "/bin/sh",
      },
      "pipe",
    );
    await shown.says("stdout", /node-a\/0 .* 30% .*OK/);
    shown.type("3");
    await shown.says("stdout", new RegExp(`${session?.clientPid} millpond`));
    shown.type("\r");
    await shown.says("stdout", new RegExp(`Claim: +${session?.claim}`, "i"));
    shown.type("\r");
    shown.type("?");
    await shown.says("stdout", /sort by the next column/);
    shown.type("x");
    shown.type("q");
    const { status, stdout } = await shown.finished;
    expect(status).toBe(0);
    // It uses no colours, and restores the screen.
    for (const colour of [31, 32, 33]) expect(stdout).not.toContain(`\x1b[${colour}m`);
    expect(stdout.trimEnd().endsWith("\x1b[?1049l")).toBe(true);
    program.signal("SIGINT");
    await program.finished;
    const { stdout: once, status: ended } = await pool.millpond(["top", "devices", "--once"]);
    expect(ended).toBe(0);
    expect(once).toMatch(/^1 device: /);
    await pool.isClean();
  },
);
