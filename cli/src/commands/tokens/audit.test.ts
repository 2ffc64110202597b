// SPDX-License-Identifier: Apache-2.0

import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { expect, test } from "vitest";
import { PoolFixture } from "../../../test/fixture.ts";

test("an audit that was edited or shortened in the database is found by audit verify", async () => {
  await using pool = await PoolFixture.start();
  for (const name of ["one", "two", "three"]) {
    await pool.connection.queues.putQueue({ queue: { name } });
  }
  const verify = async (...options: string[]) => await pool.home.millpond(["audit", "verify", ...options]);
  const whole = await verify();
  expect(whole).toMatchObject({ code: 0, stderr: "" });
  expect(whole.stdout).toMatch(
    /^the audit is intact: \d+ chained records\nnewest: record \d+ [0-9a-f]{64}\n$/,
  );
  const hash = whole.stdout.trim().split(" ").at(-1) ?? "";
  expect(await verify("--includes", hash)).toMatchObject({ code: 0 });
  expect(await verify("--includes", "0".repeat(64))).toMatchObject({ code: 1 });

  const edit = async (sql: string) => {
    await pool.stopController();
    const database = new DatabaseSync(join(pool.home.directory, "controller", "controller.sqlite"));
    database.exec(sql);
    database.close();
    await pool.startController();
  };
  await edit("UPDATE audit SET who = 'another' WHERE id = 2");
  const edited = await verify("-o", "json");
  expect(edited.code).toBe(1);
  expect(JSON.parse(edited.stdout)).toMatchObject({
    kind: "AuditVerification",
    problems: ["record 2 was changed after it was written"],
  });
  await edit("DELETE FROM audit WHERE id = 2");
  const shortened = await verify();
  expect(shortened.code).toBe(1);
  expect(shortened.stdout).toContain("records between 1 and 3 were removed");
});
