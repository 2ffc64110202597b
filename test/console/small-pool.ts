// SPDX-License-Identifier: Apache-2.0
import { DeviceHealth } from "@millpond/api";
import { fakeDevice } from "@millpond/controller/testing/fake-agent";
import { ConsolePool } from "./browser.ts";

const GiB = 1n << 30n;

/** Two nodes with two devices each: one claim runs, one waits. */
export async function startPool(): Promise<ConsolePool> {
  const pool = await ConsolePool.start({
    "node-a": [fakeDevice(0, 4n * GiB), fakeDevice(1, 4n * GiB)],
    "node-b": [
      fakeDevice(0, 8n * GiB),
      { ...fakeDevice(1, 8n * GiB), health: DeviceHealth.UNHEALTHY, healthReason: "Xid 79" },
    ],
  });
  const { claims } = pool.clients();
  await claims.createClaim({
    claim: { name: "train", gpus: 2, computePercent: 50, memoryBytes: 2n * GiB, leaseSeconds: 3600 },
  });
  const { ticket } = await claims.createTicket({ claim: "train", program: "python", clientPid: 77 });
  await pool.agent("node-a").openSession(ticket);
  await claims.createClaim({ claim: { name: "big", gpus: 2, exclusive: true, leaseSeconds: 3600 } });
  return pool;
}
