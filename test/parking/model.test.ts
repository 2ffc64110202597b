// SPDX-License-Identifier: Apache-2.0
// Random programs of the model test in one process whose session is parked between them: what they use of it, streams, events and
// modules, is restored each time, and they compute what the oracle says. MILLPOND_MODEL_SEED and MILLPOND_MODEL_PROGRAMS
// choose others, or more.
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, beforeAll, expect, it } from "vitest";
import { nativeDir } from "../../scripts/lib/paths.ts";
import { Pool } from "../support/pool.ts";

const seed = Number(process.env["MILLPOND_MODEL_SEED"] ?? 41);
const programs = Number(process.env["MILLPOND_MODEL_PROGRAMS"] ?? 6);
const model = join(nativeDir("release"), "testing", "model", "model");
/** After these calls, a session is never parked. */
const without = "functions,peer";

let pool: Pool;
beforeAll(async () => {
  pool = await Pool.start("--nodes", "1", "--devices", "1", "--device-memory", "1Gi");
});
afterAll(async () => {
  await pool[Symbol.asyncDispose]();
});

it.each(["shm", "tcp"])(
  "over %s random programs compute the same with their session parked in between",
  async (transport) => {
    const name = `model-${transport}`;
    const claim = ["--lazy", "--lazy-idle", "1s", "--name", name, "--transport", transport, "-m", "512Mi"];
    const range = ["--seed", String(seed), "--programs", String(programs), "--patience", "60"];
    const running = pool.start([
      "run",
      ...claim,
      "--",
      model,
      ...range,
      "--without",
      without,
      "--pause",
      "4000",
    ]);
    let isOver = false;
    void running.finished.then(() => {
      isOver = true;
    });
    let parks = 0;
    let isAwake = false;
    while (!isOver) {
      const state = await pool.claimState(name).catch(() => undefined);
      if (state === "CLAIM_STATE_DORMANT" && isAwake) parks += 1;
      isAwake = state === "CLAIM_STATE_BOUND" || (isAwake && state !== "CLAIM_STATE_DORMANT");
      await sleep(50);
    }
    const { status, stdout, stderr } = await running.finished;
    expect({ status, last: stdout.trimEnd().split("\n").at(-1) }, stderr).toEqual({
      status: 0,
      last: `program ${programs - 1}`,
    });
    expect(parks).toBeGreaterThanOrEqual(programs / 2);
  },
);
