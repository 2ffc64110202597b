// SPDX-License-Identifier: Apache-2.0

import { expect, test } from "vitest";
import { PoolFixture } from "../../../test/fixture.ts";

test("guarantees beyond the pool are taken, with a warning that names both", async () => {
  await using pool = await PoolFixture.start();
  const queue = async (...args: string[]) => await pool.home.millpond(["queue", ...args]);
  const within = await queue("create", "a", "--guaranteed", "gpus=1");
  expect(within).toMatchObject({ code: 0, stderr: "", stdout: "queue/a created\n" });
  expect(await queue("create", "b", "--guaranteed", "gpus=23,memory=1Ti")).toMatchObject({
    code: 0,
    stdout: "queue/b created\n",
    stderr: "millpond: the queues are guaranteed 24 of 1 GPU, 1 TiB of 4 GiB memory of this pool\n",
  });
  // A child queue counts within its group.
  const part = await queue("create", "c", "--parent", "a", "--guaranteed", "gpus=1");
  expect(part.stderr).toContain("24 of 1 GPU");
  // Nothing else about a queue repeats it.
  expect((await queue("change", "a", "--weight", "2")).stderr).toBe("");
  expect((await queue("change", "b", "--guaranteed", "none")).stderr).toBe("");
  const file = "kind: Queue\nname: b\nguaranteed: {gpus: 9}\n";
  const applied = await pool.home.millpond(["apply", "-f", "-"], { input: file });
  expect(applied.stderr).toBe("millpond: the queues are guaranteed 10 of 1 GPU of this pool\n");
});
