// SPDX-License-Identifier: Apache-2.0

import { join } from "node:path";

/** The variable by which tests find the program that was bundled for them. */
export const entryVariable = "TEST_MILLPOND_ENTRY";

/** `millpond`, for Node: as packages have it within tests, elsewhere the source. */
export const entry: string =
  process.env[entryVariable] ?? join(import.meta.dirname, "..", "bin", "millpond.mjs");
