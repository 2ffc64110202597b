// SPDX-License-Identifier: Apache-2.0

import { expect, test } from "vitest";
import { logLineOptions } from "./log-destination.ts";

test("the log lines of all services have the same members in front", () => {
  for (const part of ["controller", "agent", "kubernetes"] as const) {
    const { base, timestamp } = logLineOptions(part);
    expect(base).toEqual({ part });
    expect(timestamp()).toMatch(/^,"time":"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"$/);
  }
});
