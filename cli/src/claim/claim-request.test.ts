// SPDX-License-Identifier: Apache-2.0

import { errorCodeOf, millpondError } from "@millpond/api";
import { expect, test } from "vitest";
import { withOptionNames } from "./claim-request.ts";

test("errors of the API name the options of the command line, and leave other words alone", () => {
  const named = (text: string): string => {
    const error = withOptionNames(millpondError("MILLPOND_E_INVALID", text));
    expect(errorCodeOf(error)).toBe("MILLPOND_E_INVALID");
    return String(error);
  };
  expect(named("gang is given without gangSize, the number")).toContain(
    "--gang is given without --gang-size, the",
  );
  expect(named("lazyIdleSeconds is given without lazy")).toContain("--lazy-idle is given without --lazy");
  expect(named("lazy and gang are both given: a gang is bound")).toContain(
    "--lazy and --gang are both given: a gang is",
  );
  expect(named("memoryBytes and memoryPercent are both given")).toContain("--memory and --memory are both");
  expect(named("onlyDevices are not UUIDs")).toContain("onlyDevices are not UUIDs");
  const other = millpondError("MILLPOND_E_NOT_FOUND", "there is no claim gangSize");
  expect(withOptionNames(other)).toBe(other);
});
