// SPDX-License-Identifier: Apache-2.0

import { expect, test } from "vitest";
import { describeTasks, parseArray, runTasks } from "./array.ts";

test("an array is a list of indexes and ranges, each once and in order, and a number of tasks at a time", () => {
  expect(parseArray("3")).toEqual({ indexes: [3], atOnce: 1 });
  expect(parseArray("7,0-2,1")).toEqual({ indexes: [0, 1, 2, 7], atOnce: 4 });
  expect(parseArray("10-12%2")).toEqual({ indexes: [10, 11, 12], atOnce: 2 });
  expect(parseArray("0-9999").indexes).toHaveLength(10_000);
});

test.each([
  "",
  "a",
  "1-",
  "-1",
  "3-1",
  "1,,2",
  "0-10000",
  "0-999999999999",
  "0-5%0",
  "0-5%",
  "0-5%999",
  "1.5",
  "1000000",
  "١",
])("%j is no array", (text) => {
  expect(() => parseArray(text)).toThrow(/--array .*MILLPOND_E_INVALID/s);
});

test("tasks run so many at a time, and none begins after the signal", async () => {
  const stop = new AbortController();
  let running = 0;
  let most = 0;
  const statuses = await runTasks(parseArray("0-9%3"), stop.signal, async (index) => {
    running += 1;
    most = Math.max(most, running);
    await new Promise((resolve) => setImmediate(resolve));
    running -= 1;
    if (index === 5) stop.abort();
    return index === 2 ? 7 : 0;
  });
  expect(most).toBe(3);
  expect(statuses.get(2)).toBe(7);
  expect(statuses.size).toBeLessThan(10);
  expect(describeTasks(parseArray("0-9"), statuses)).toMatch(
    new RegExp(
      `^${statuses.size - 1} of 10 tasks succeeded; 2 ended with 7; ${10 - statuses.size} were not started$`,
    ),
  );
});
