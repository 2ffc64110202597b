// SPDX-License-Identifier: Apache-2.0
import { availableParallelism } from "node:os";
import { defineConfig } from "vitest/config";

export default defineConfig({
  test: {
    include: ["**/*.test.ts"],
    exclude: ["**/node_modules/**", "build/**"],
    // Processes, not threads: tests start servers, send signals and change the environment.
    pool: "forks",
    // Tests of whole pools wait for processes more than they compute.
    maxWorkers: availableParallelism() + 1,
    testTimeout: 60_000,
    hookTimeout: 60_000,
  },
});
