// SPDX-License-Identifier: Apache-2.0
// A GPU that falls off its bus under programs, and comes back.
import { readdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { type DeviceView, Pool, type SessionView, until } from "./support/pool.ts";

/** A software GPU is missing for as long as this file exists, in the directory with the GPU's other files. */
function lostFile(pool: Pool, uuid: string): string {
  const name = `${uuid.replace("GPU-", "").replaceAll("-", "")}.memory`;
  const found = readdirSync(pool.directory, { recursive: true, encoding: "utf8" }).find((path) =>
    path.endsWith(name),
  );
  if (found === undefined) throw new Error(`there is no ${name}`);
  return join(pool.directory, found.replace(/memory$/, "lost"));
}

function uuidOf(session: SessionView | undefined): string {
  const uuid = session?.devices[0]?.uuid;
  if (uuid === undefined) throw new Error("the session has no device");
  return uuid;
}

test("a GPU that falls off its bus ends its programs and gets no new ones, others go on, until it is back", async () => {
  await using pool = await Pool.start("--devices", "2");
  const first = pool.startEndless(["-m", "3Gi", "--name", "first"]);
  await pool.connected(1);
  const second = pool.startHolder(["-m", "3Gi", "--name", "second"]);
  const sessions = await pool.connected(2);
  const uuid = uuidOf(sessions.find(({ claim }) => claim === "first"));
  expect(uuidOf(sessions.find(({ claim }) => claim === "second"))).not.toBe(uuid);

  const lost = lostFile(pool, uuid);
  writeFileSync(lost, "");
  const { status, stderr } = await first.finished;
  expect(status).not.toBe(0);
  expect(stderr).toMatch(/launch failure|LAUNCH_FAILED/);
  const isHealth = (wanted: DeviceView["health"]) => (devices: readonly DeviceView[]) =>
    devices.find((device) => device.uuid === uuid)?.health === wanted;
  const devices = await until("an unhealthy device", () => pool.devices(), isHealth("unhealthy"));
  expect(devices.map(({ healthReason }) => healthReason).join("")).toContain("CUDA_ERROR_DEVICE_UNAVAILABLE");
  const refused = await pool.run(["-m", "3Gi", "--no-wait"], ["vectoradd", "1000"]);
  expect(refused.stderr).toMatch(/1 device unhealthy.*\[MILLPOND_E_NO_CAPACITY\]/s);
  await pool.connected(1);

  rmSync(lost);
  await until("a healthy device", () => pool.devices(), isHealth("healthy"));
  expect(await pool.run(["-m", "3Gi", "--no-wait"], ["vectoradd", "1000"])).toMatchObject({ status: 0 });
  second.signal("SIGINT");
  expect((await second.finished).status).toBe(130);
});
