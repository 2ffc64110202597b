// SPDX-License-Identifier: Apache-2.0
// Several clients on a device, and limits that hold.
import { afterEach, describe, expect, it } from "vitest";
import { Pool } from "./support/pool.ts";

let pool: Pool | undefined;
afterEach(async () => {
  await pool?.[Symbol.asyncDispose]();
  pool = undefined;
});

describe("sharing", () => {
  it.each([
    { clients: 2, devices: 1 },
    { clients: 4, devices: 2 },
  ])("$clients clients on $devices devices run at the same time", async ({ clients, devices }) => {
    pool = await Pool.start("--devices", String(devices), "--device-memory", "1Gi");
    const running = Array.from({ length: clients }, (_, i) =>
      (pool as Pool).startEndless(["-m", "256Mi", "-p", "0.25", "--transport", i % 2 ? "tcp" : "shm"]),
    );
    const sessions = await pool.connected(clients);
    const used = new Set(sessions.flatMap((session) => session.devices.map(({ uuid }) => uuid)));
    expect(used.size).toBeLessThanOrEqual(devices);
    // While they run, another program computes correctly beside them.
    const { stdout } = await pool.run(["-m", "64Mi", "--compute", "25"], ["reduction", "50000"]);
    expect(stdout).toContain("reduction: OK");
    for (const program of running) program.signal("SIGINT");
    for (const program of running) expect((await program.finished).status).toBe(130);
    await pool.isClean();
  });

  it("a client that wants more than its limit gets out-of-memory, sees the limit as the card's size, and goes on", async () => {
    pool = await Pool.start("--devices", "1", "--device-memory", "1Gi");
    const { status, stdout } = await pool.run(["-m", "128Mi"], ["memhog"]);
    expect(stdout).toContain("memory: 128 MiB, of which free 128 MiB");
    expect(stdout).toMatch(/out of memory after \d+ chunks of 16 MiB: 128 MiB/);
    expect(stdout).toMatch(/memhog: OK .*0 chunks damaged, computing goes on/);
    expect(status).toBe(0);
    await pool.isClean();
  });

  it("a claim that does not fit now waits and says why, and is served when there is room", async () => {
    pool = await Pool.start("--devices", "1", "--device-memory", "1Gi");
    const first = pool.startHolder(["-m", "768Mi"]);
    await pool.connected(1);
    const second = pool.start(["run", "-m", "512Mi", "--", "true"]);
    await second.says("stderr", /wait.*512/i);
    const waiting = (await pool.claims()).find(({ state }) => state === "pending");
    expect(waiting?.reason).toMatch(/512/);
    first.signal("SIGTERM");
    expect((await first.finished).status).toBe(143);
    const { status, stdout } = await second.finished;
    expect(stdout).toBe("");
    expect(status).toBe(0);
    await pool.isClean();
  });

  it("more than the pool has is refused at once with status 122", async () => {
    pool = await Pool.start("--devices", "1", "--device-memory", "1Gi");
    for (const options of [
      ["-n", "2"],
      ["-m", "2Gi"],
    ]) {
      const { status, stdout, stderr } = await pool.run(options, ["vectoradd"]);
      expect(stderr).toMatch(/\[MILLPOND_E_/);
      expect(stdout).toBe("");
      expect(status).toBe(122);
    }
    await pool.isClean();
  });
});
