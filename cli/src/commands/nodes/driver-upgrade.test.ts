// SPDX-License-Identifier: Apache-2.0
// A driver upgrade on a node by the steps of docs/upgrade.md: the administrator's commands, and the output that a user gets.

import { writeFileSync } from "node:fs";
import { expect, onTestFinished, test } from "vitest";
import { fakeClient, PoolFixture, type Result } from "../../../test/fixture.ts";

test("a drained node gets another driver, its program ends with 75, and programs see the new driver", async () => {
  const pool = await PoolFixture.start();
  onTestFinished(() => pool[Symbol.asyncDispose]());
  const millpond = async (...args: readonly string[]): Promise<Result> => {
    const result = await pool.home.millpond(args);
    expect([args, result.stderr, result.code]).toEqual([args, expect.any(String), 0]);
    return result;
  };
  const driver = async (): Promise<string> =>
    (
      await millpond("get", "devices", "-o", "jsonpath={.items[*].driverVersion} {.items[*].cudaVersion}")
    ).stdout.trim();
  expect(await driver()).toBe("13000");
  const { devices } = await pool.connection.pool.listDevices({});

  // Its claim is of the command, which is notified: it ends, and does not begin elsewhere.
  const program = pool.home.start(["run", "-m", "1Gi", "--", ...fakeClient]);
  await program.says("stdout", /attached/);
  const drained = millpond("drain", "node-a", "--reason", "driver 590", "--wait");
  const ended = await program.finished;
  expect(ended).toMatchObject({ code: 75, stderr: expect.stringMatching(/driver 590/) as string });
  expect((await drained).stdout).toMatch(/node-a/);
  const refused = await pool.home.millpond(["run", "--no-wait", "-m", "1Gi", "--", "true"]);
  expect(refused).toMatchObject({ code: 123, stderr: expect.stringMatching(/cordoned/) as string });

  await pool.whileNoAgentRuns(() => {
    const replaced = devices.map(({ uuid, memoryBytes }) => ({ uuid, memoryBytes: Number(memoryBytes) }));
    const description = { version: "590.48.01", cudaVersion: 13_010, devices: replaced };
    writeFileSync(pool.home.softgpu, JSON.stringify(description));
  });
  expect(await driver()).toBe("590.48.01 13010");
  // The device is the one that it was, and its node stays cordoned until the administrator says otherwise.
  expect((await pool.connection.pool.listDevices({})).devices.map(({ uuid }) => uuid)).toEqual(
    devices.map(({ uuid }) => uuid),
  );
  expect((await millpond("get", "nodes")).stdout).toMatch(/Cordoned/);
  await millpond("uncordon", "node-a");
  expect((await millpond("get", "devices", "-o", "wide")).stdout).toMatch(/13\.1/);
  const again = pool.home.start(["run", "-m", "1Gi", "--", ...fakeClient]);
  await again.says("stdout", /attached/);
  again.child.stdin?.end();
  expect(await again.finished).toMatchObject({ code: 0 });
});
