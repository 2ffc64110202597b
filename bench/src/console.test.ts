// SPDX-License-Identifier: Apache-2.0

import { spawnSync } from "node:child_process";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { missingBrowser } from "@millpond/test/support/chromium";
import { expect, onTestFinished, test } from "vitest";

const positive = expect.toSatisfy((value) => typeof value === "number" && value > 0) as number;

test.skipIf(missingBrowser !== "")(
  `the console is measured from the request of its page to its frames${missingBrowser}`,
  async () => {
    const directory = await mkdtemp(join(tmpdir(), "millpond-bench-test-"));
    onTestFinished(() => rm(directory, { recursive: true, force: true }));
    const file = join(directory, "result.json");
    const small = ["--nodes", "3", "--claims", "2", "--passes", "1", "--seconds", "1", "--json", file];
    const { status, stderr } = spawnSync(
      process.execPath,
      [join(import.meta.dirname, "console.ts"), ...small],
      {
        encoding: "utf8",
      },
    );
    // 1: a bar was missed, as may happen on a busy machine.
    expect([status === 0 || status === 1, stderr]).toEqual([true, ""]);
    expect(JSON.parse(await readFile(file, "utf8"))).toMatchObject({
      gpus: 24,
      claims: 2,
      scriptBytes: positive,
      passes: [
        {
          poolMs: positive,
          gpus: { framesPerSecond: positive, mainThreadMs: positive },
          claims: { framesPerSecond: positive },
        },
      ],
    });
  },
);
