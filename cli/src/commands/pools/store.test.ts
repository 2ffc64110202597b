// SPDX-License-Identifier: Apache-2.0

import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { missingPostgres, PostgresServer } from "@millpond/controller/testing/postgres-server";
import { Home } from "../../../test/fixture.ts";

const why = missingPostgres === undefined ? "" : ` (${missingPostgres})`;

test.skipIf(missingPostgres !== undefined)(
  `the state of a pool is taken along into a database, on which the pool goes on${why}`,
  async () => {
    using home = new Home();
    const server = await PostgresServer.start();
    onTestFinished(() => server[Symbol.asyncDispose]());
    const url = await server.makeDatabase();
    const up = async (...options: string[]) => {
      const running = home.start(["up", "--soft", "--listen", "127.0.0.1:0", ...options]);
      await running.says("stdout", /Ctrl-C stops all of it/);
      return async () => {
        running.child.kill("SIGTERM");
        expect(await running.finished).toMatchObject({ code: 0 });
      };
    };
    const copy = (...options: string[]) => {
      const from = join(home.state, "millpond", "controller");
      return home.millpond(["store", "copy", "--from", from, ...options]);
    };

    const stop = await up();
    await home.millpond(["queue", "create", "research"]);
    expect((await copy("--to", url)).stderr).toContain("[MILLPOND_E_STATE_LOCKED]");
    await stop();
    expect((await copy()).stderr).toMatch(/--to is missing.*\n.*MILLPOND_STORE/);
    expect(await copy("--to", url)).toMatchObject({
      code: 0,
      stdout: expect.stringMatching(/^copied 0 claims, 1 node, 1 queue, 0 tenants, /) as string,
    });
    const stopAgain = await up("--store", url);
    expect((await home.millpond(["get", "queues", "-o", "name"])).stdout).toContain("queue/research\n");
    await home.millpond(["queue", "create", "later"]);
    await stopAgain();
    expect(await server.query("test1", "SELECT name FROM millpond.queues ORDER BY name")).toEqual([
      { name: "later" },
      { name: "research" },
    ]);
  },
);
