// SPDX-License-Identifier: Apache-2.0

// The disk of the state directory fills up under load.

import { spawn } from "node:child_process";
import { once } from "node:events";
import { closeSync, openSync, readFileSync, rmSync, writeSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { createClient } from "@connectrpc/connect";
import { ClaimService, ClaimState, errorCodeOf, PoolService } from "@millpond/api";
import { expect, onTestFinished, test } from "vitest";
import { systemClock } from "../timers/clock.ts";
import { ControllerProcess, missingDisks } from "../testing/controller-process.ts";
import { FakeAgent, fakeDevice } from "../testing/fake-agent.ts";
import { GiB, makeTestDirectory } from "../testing/test-pool.ts";
import { makeTransport } from "../testing/transport.ts";

/**
 * Fills the disk to its last byte.
 *
 * @returns a function that makes room again
 */
function fill(directory: string): () => void {
  const path = join(directory, "filler");
  const file = openSync(path, "w");
  const piece = Buffer.alloc(4096, 1);
  try {
    for (;;) {
      writeSync(file, piece);
    }
  } catch (error) {
    expect(error).toMatchObject({ code: "ENOSPC" });
  } finally {
    closeSync(file);
  }
  return () => rmSync(path);
}

const why = missingDisks === undefined ? "" : ` (${missingDisks})`;

test.skipIf(missingDisks !== undefined)(
  `on a full disk what was granted stays, what is new is refused with numbers, and all goes on when there is room${why}`,
  async () => {
    const controller = await ControllerProcess.start(makeTestDirectory(), { diskBytes: 8 << 20 });
    onTestFinished(async () => void (await controller.end("SIGKILL")));
    const transport = makeTransport(controller.url, controller.userToken);
    const [claims, pool] = [createClient(ClaimService, transport), createClient(PoolService, transport)];
    const agent = new FakeAgent({
      url: controller.url,
      token: controller.agentToken,
      clock: systemClock,
      node: "node-a",
      devices: [fakeDevice(0, 8n * GiB)],
    });
    onTestFinished(() => agent[Symbol.asyncDispose]());
    await agent.start();
    const held = await claims.createClaim({ claim: { name: "held", memoryBytes: GiB, leaseSeconds: 3600 } });
    expect(held.claim?.state).toBe(ClaimState.BOUND);

    const makeRoom = fill(controller.directory);
    const acknowledged = ["held"];
    let refusal: Error | undefined;
    // The database has some reserve of its own.
    for (let n = 0; refusal === undefined; n += 1) {
      const name = `new-${n}`;
      try {
        // Owners of different lengths, so that a different write fails each time.
        await claims.createClaim({
          claim: { name, memoryBytes: 1n << 20n, owner: "o".repeat(n % 200), leaseSeconds: 3600 },
        });
        acknowledged.push(name);
      } catch (error) {
        refusal = error as Error;
      }
    }
    expect(errorCodeOf(refusal)).toBe("MILLPOND_E_STATE_FULL");
    expect(refusal?.message).toMatch(/0 MiB of 8 MiB are free on the disk of/);
    const namesOf = async (): Promise<string[]> =>
      (await claims.listClaims({ includeEnded: true })).claims.map(({ name }) => name);
    expect(await namesOf()).toEqual(acknowledged);
    // Many concurrent ones: each is refused, none fails the others, and none is half done.
    const many = await Promise.allSettled(
      Array.from({ length: 20 }, (_, n) =>
        claims.createClaim({ claim: { name: `many-${n}`, owner: "o".repeat(200) } }),
      ),
    );
    for (const [n, outcome] of many.entries()) {
      if (outcome.status === "fulfilled") {
        acknowledged.push(`many-${n}`);
      } else {
        expect(errorCodeOf(outcome.reason)).toBe("MILLPOND_E_STATE_FULL");
      }
    }
    expect((await namesOf()).sort()).toEqual(acknowledged.sort());
    // Sessions of existing grants need no write, nor does their agent.
    await agent.sync();
    await claims.createTicket({ claim: "held" });
    expect((await pool.listNodes({})).nodes.map(({ name }) => name)).toEqual(["node-a"]);

    makeRoom();
    await claims.releaseClaim({ name: "held" });
    const late = await claims.createClaim({ claim: { name: "late", memoryBytes: GiB } });
    expect(late.claim?.state).toBe(ClaimState.BOUND);
    expect((await namesOf()).sort()).toEqual([...acknowledged, "late"].sort());
  },
);

test("a controller whose log cannot be written does its work, and ends in order", async () => {
  const directory = makeTestDirectory();
  // Every write to it fails as on a full disk.
  const full = openSync("/dev/full", "w");
  const mainPath = fileURLToPath(new URL("../main.ts", import.meta.url));
  const options = ["--listen", "127.0.0.1:0", "--state", directory, "--log-level", "trace"];
  const child = spawn(process.execPath, [mainPath, ...options], { stdio: ["ignore", "ignore", full, "ipc"] });
  closeSync(full);
  onTestFinished(() => void child.kill("SIGKILL"));
  const exited = once(child, "exit");
  const [ready] = (await Promise.race([once(child, "message"), exited])) as [
    { readonly url?: string } | number,
  ];
  expect(ready).toMatchObject({ type: "ready" });
  const token = readFileSync(join(directory, "user.token"), "utf8").trim();
  const url = typeof ready === "object" ? (ready.url ?? "") : "";
  const claims = createClient(ClaimService, makeTransport(url, token));
  for (const name of ["one", "two", "three"]) {
    await claims.createClaim({ claim: { name } });
  }
  expect((await claims.listClaims({})).claims.map(({ name }) => name)).toEqual(["one", "two", "three"]);
  child.disconnect();
  expect(await exited).toEqual([0, null]);
});

test.skipIf(missingDisks !== undefined)(
  `a controller that finds no room for its state when it starts says so, with numbers${why}`,
  async () => {
    await expect(ControllerProcess.start(makeTestDirectory(), { diskBytes: 64 << 10 })).rejects.toThrow(
      /cannot be opened: \d+ B of \d+ B are free on the disk of .* Free space on .*\[MILLPOND_E_STATE_FULL\]$/,
    );
  },
);
