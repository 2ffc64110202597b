// SPDX-License-Identifier: Apache-2.0

import { expect, test } from "vitest";
import { markOf } from "./marks.ts";

test.each([
  [{}, "✔"],
  [{ LANG: "C" }, "+"],
  [{ LANG: "POSIX" }, "+"],
  [{ LANG: "C.UTF-8" }, "✔"],
  [{ LANG: "C", LC_ALL: "de_DE.UTF-8" }, "✔"],
  [{ LANG: "de_DE.UTF-8", LC_ALL: "", LC_CTYPE: "C" }, "+"],
])("in the locale of %j, a good finding is marked with %s", (env, mark) => {
  expect(markOf("ok", env)).toBe(mark);
});
