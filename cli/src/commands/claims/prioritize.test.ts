// SPDX-License-Identifier: Apache-2.0

import { expect, test } from "vitest";
import { PoolFixture } from "../../../test/fixture.ts";

test("the priority of a claim is changed by its name, also to one below 0", async () => {
  await using pool = await PoolFixture.start();
  const { home } = pool;
  // The pool has nothing to which it could be bound.
  const run = home.start(["apply", "-f", "-"]);
  run.child.stdin?.end("kind: Claim\nname: train\nlease: 1h\n");
  expect(await run.finished).toMatchObject({ code: 0 });
  expect(await home.millpond(["prioritize", "train", "--priority", "10"])).toMatchObject({
    code: 0,
    stdout: "claim/train has the priority 10\n",
  });
  expect(await home.millpond(["prioritize", "tra", "--priority", "-5"])).toMatchObject({
    code: 0,
    stdout: "claim/train has the priority -5\n",
  });
  const { stdout } = await home.millpond(["get", "claims", "-o", "json"]);
  expect(stdout).toContain('"priority": -5');
  const missing = await home.millpond(["prioritize", "train"]);
  expect([missing.code, missing.stderr]).toEqual([118, expect.stringContaining("--priority is not given")]);
});
