// SPDX-License-Identifier: Apache-2.0

import { DeviceHealth, SessionState, type SyncRequest } from "@millpond/api";
import { describe, expect, test } from "vitest";
import { attach, firstDevice, NodeFixture, openSession, secondDevice, until } from "../../test/fixture.ts";
import { signalProcess } from "../process/process-identity.ts";

describe("workers that die", () => {
  test("end their session, are reported and replaced", async () => {
    await using node = await NodeFixture.create();
    const agent = await node.startKnownAgent();
    node.controller.allocate("claim-1", "node-a", [firstDevice]);
    const ticket = node.controller.ticket("claim-1");
    const opened = await openSession(agent, ticket);
    using _client = await attach({ path: opened.unixPath }, ticket);
    await node.controller.report(
      ({ sessions, warmWorkers }) => sessions[0]?.state === SessionState.CONNECTED && warmWorkers === 2,
    );
    for (const worker of node.workerProcesses()) signalProcess(worker, "SIGKILL");
    await node.controller.report(({ sessions }) => sessions.length === 0);
    await node.controller.report(({ warmWorkers }) => warmWorkers === 2);
    await until(() => node.workerIds().length === 2, "the dead workers' directories are gone");
  });

  test("while they wait are replaced, and their device stays healthy", async () => {
    await using node = await NodeFixture.create();
    await node.startKnownAgent();
    await node.controller.report(({ warmWorkers }) => warmWorkers === 2);
    node.controller.reports.length = 0;
    for (const worker of node.workerProcesses()) signalProcess(worker, "SIGKILL");
    await node.controller.report(({ warmWorkers }) => warmWorkers === 0);
    await node.controller.report(({ warmWorkers }) => warmWorkers === 2);
    const reasons = node.controller.reports.flatMap(({ devices }) =>
      devices.map((device) => device.healthReason),
    );
    expect(new Set(reasons)).toEqual(new Set([""]));
  });

  test("at start are retried with growing pauses, make their device unhealthy, and it recovers", async () => {
    await using node = await NodeFixture.create();
    node.setDriver({ startFailure: "the device fell off the bus" });
    await node.startAgent({ restartFirstMs: 100, restartCeilingMs: 200 });
    const ill = await node.controller.report(({ devices }) =>
      devices.every(({ healthReason }) => healthReason !== ""),
    );
    expect(ill.devices[0]?.healthReason).toMatch(/the device fell off the bus/);
    node.setDriver({});
    const well = await node.controller.report(({ warmWorkers }) => warmWorkers === 2);
    expect(well.devices.map(({ healthReason }) => healthReason)).toEqual(["", ""]);
  });
});

describe("a device that must not be used any more", () => {
  const ill = [{ uuid: firstDevice, reason: "the driver has reported Xid 79" }];

  test("is reported, keeps no workers and gets no session, while others go on; and it recovers", async () => {
    await using node = await NodeFixture.create();
    const agent = await node.startKnownAgent();
    node.controller.allocate("claim-1", "node-a", [firstDevice]);
    node.controller.allocate("claim-2", "node-a", [secondDevice]);
    await node.controller.report(({ warmWorkers }) => warmWorkers === 2);
    node.setDriver({ ill });
    const told = await node.controller.report(
      ({ devices, warmWorkers }) => devices[0]?.healthReason !== "" && warmWorkers === 1,
    );
    expect(told.devices.map(({ health, healthReason }) => [health, healthReason])).toEqual([
      [DeviceHealth.UNHEALTHY, "the driver has reported Xid 79"],
      [DeviceHealth.HEALTHY, ""],
    ]);
    await expect(openSession(agent, node.controller.ticket("claim-1"))).rejects.toThrow(
      /device node-a\/0 is unhealthy: the driver has reported Xid 79\..*\[MILLPOND_E_DEVICE_UNHEALTHY\]$/,
    );
    const ticket = node.controller.ticket("claim-2");
    const { unixPath } = await openSession(agent, ticket);
    using client = await attach({ path: unixPath }, ticket);
    node.setDriver({});
    const well = await node.controller.report(({ warmWorkers }) => warmWorkers === 2);
    expect(well.devices.map(({ healthReason }) => healthReason)).toEqual(["", ""]);
    expect(client.isConnected).toBe(true);
  });

  test("is ill after a report of its driver until the last report is cleared", async () => {
    await using node = await NodeFixture.create();
    await node.startKnownAgent();
    await node.controller.report(({ warmWorkers }) => warmWorkers === 2);
    const report = (...xids: readonly number[]) =>
      node.setDriver({
        faults: xids.map((xid) => ({ uuid: firstDevice, reason: `the driver has reported Xid ${xid}` })),
      });
    const isFault = (fault: bigint) => (told: SyncRequest) => told.devices[0]?.fault === fault;
    report(79, 48);
    const told = await node.controller.report(isFault(2n));
    expect(told.devices.map(({ healthReason, fault }) => [healthReason, fault])).toEqual([
      ["the driver has reported Xid 79", 2n],
      ["", 0n],
    ]);
    // A fault stays, even though the driver does not repeat it.
    node.setDriver({});
    await node.controller.report(({ warmWorkers }) => warmWorkers === 1);
    report(79);
    await node.controller.report(isFault(3n));
    node.controller.clearedFaults = [{ uuid: firstDevice, fault: 2n }];
    node.controller.allocate("claim-1", "node-a", [secondDevice]);
    const answered = node.controller.reports.length + 2;
    await node.controller.report(() => node.controller.reports.length > answered);
    expect(node.controller.reports.at(-1)?.devices[0]?.health).toBe(DeviceHealth.UNHEALTHY);
    node.controller.clearedFaults = [{ uuid: firstDevice, fault: 3n }];
    const well = await node.controller.report(({ warmWorkers }) => warmWorkers === 2);
    expect(well.devices.map(({ health, fault }) => [health, fault])).toEqual([
      [DeviceHealth.HEALTHY, 0n],
      [DeviceHealth.HEALTHY, 0n],
    ]);
  });

  test.each([
    ["says nothing", { isSilent: true }, /^its driver has not answered for 0\.3 s$/],
    [
      "prints something else",
      { nonsense: "{}" },
      /^its driver cannot be asked: it printed an unexpected line/,
    ],
  ])("is every one of a driver that %s, until it speaks again", async (_what, change, reason) => {
    await using node = await NodeFixture.create();
    await node.startKnownAgent({ driverSilenceMs: 300 });
    node.setDriver(change);
    const told = await node.controller.report(({ devices }) =>
      devices.every(({ healthReason }) => reason.test(healthReason)),
    );
    expect(told.devices.map(({ health }) => health)).toEqual([
      DeviceHealth.UNHEALTHY,
      DeviceHealth.UNHEALTHY,
    ]);
    node.setDriver({});
    await node.controller.report(({ devices }) => devices.every(({ healthReason }) => healthReason === ""));
  });
});
