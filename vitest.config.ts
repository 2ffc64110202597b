// SPDX-License-Identifier: Apache-2.0
import { availableParallelism } from "node:os";
import { defineConfig } from "vitest/config";

export default defineConfig({
  test: {
    include: ["**/*.test.ts"],
    exclude: ["**/node_modules/**", "build/**"],
    globalSetup: ["test/support/bundled-command.ts"],
    // Processes, not threads: tests start servers, send signals and change the environment.
    pool: "forks",
    // Tests of whole pools wait for processes more than they compute.
    maxWorkers: availableParallelism() + 1,
    // These end what hangs. Eight times what the slowest take on a machine that does nothing else.
    testTimeout: 240_000,
    hookTimeout: 240_000,
    expect: { poll: { timeout: 120_000 } },
    // CI shows a failure once, so its message has to be complete.
    chaiConfig: { truncateThreshold: 0 },
  },
});
