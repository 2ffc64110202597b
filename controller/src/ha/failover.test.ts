// SPDX-License-Identifier: Apache-2.0

// Several controllers on one database: leader, database or agent is killed or stopped, and the pool keeps working.

import { expect, test } from "vitest";
import { runCrashRounds } from "../testing/crash-rounds.ts";
import { missingPostgres } from "../testing/postgres-server.ts";

/** How often; `MILLPOND_CRASH_ROUNDS` asks for more, and `npm run bench:takeovers` measures them. */
const rounds = Number(process.env["MILLPOND_CRASH_ROUNDS"] ?? 4);
const seed = Number(process.env["MILLPOND_CRASH_SEED"] ?? 20_261_122);
const why = missingPostgres === undefined ? "" : ` (${missingPostgres})`;

test.skipIf(missingPostgres !== undefined)(
  `whoever leads may go ${rounds} times, nothing acknowledged is lost and nothing is granted twice${why}`,
  { timeout: 240_000 + rounds * 60_000 },
  async () => {
    // Their clocks disagree by hours: nothing may depend on them.
    const { broken, terms, acknowledged, grants, deeds } = await runCrashRounds({
      seed,
      rounds,
      clocks: [0, 3600, -3600],
    });
    expect(broken).toEqual([]);
    expect(terms).toEqual(terms.toSorted((a, b) => Number(a - b)));
    expect(terms.at(-1)).toBeGreaterThan(1n);
    expect(acknowledged).toBeGreaterThan(rounds * 5);
    expect(grants).toBeGreaterThan(rounds);
    expect(Object.entries(deeds).filter(([, times]) => times === 0)).toEqual([]);
  },
);
