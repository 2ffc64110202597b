// SPDX-License-Identifier: Apache-2.0

import { expect, test } from "vitest";
import { makeResourceNames } from "../request/resource-names.ts";
import { claimsOfJob, claimsOfJobSet, type JobLike } from "./job-size.ts";

const names = makeResourceNames();

function makeJob(
  spec: { readonly parallelism?: number; readonly completions?: number },
  containers: number,
  annotations: Record<string, string> = { "millpond.dev/gang-size": "all" },
): JobLike {
  const each = Array.from({ length: containers }, (_, index) => ({
    name: `c${index}`,
    image: "x",
    resources: { limits: { "millpond.dev/vgpu": "1" } },
  }));
  const plain = { name: "plain", image: "x" };
  return {
    spec: { ...spec, template: { metadata: { annotations }, spec: { containers: [...each, plain] } } },
  };
}

test("a Job's gang has a claim for each container that asks, of the pods that run at a time", () => {
  expect(claimsOfJob(names, makeJob({}, 1))).toBe(1);
  expect(claimsOfJob(names, makeJob({ parallelism: 4, completions: 4 }, 2))).toBe(8);
  expect(claimsOfJob(names, makeJob({ parallelism: 4, completions: 100 }, 1))).toBe(4);
  expect(claimsOfJob(names, makeJob({ parallelism: 8, completions: 4 }, 1))).toBe(4);
  expect(claimsOfJob(names, makeJob({ parallelism: 0 }, 1))).toBe(0);
});

test("pods that have succeeded are not waited for", () => {
  const job = { ...makeJob({ parallelism: 4, completions: 6 }, 1), status: { succeeded: 3 } };
  expect(claimsOfJob(names, job)).toBe(3);
});

test("of a JobSet those replicas count that say so", () => {
  const jobSet = {
    spec: {
      replicatedJobs: [
        { replicas: 1, template: makeJob({}, 0, {}) },
        { replicas: 2, template: makeJob({ parallelism: 3, completions: 3 }, 1) },
        { template: makeJob({ parallelism: 1 }, 2) },
        { replicas: 5, template: makeJob({ parallelism: 1 }, 1, {}) },
      ],
    },
  };
  expect(claimsOfJobSet(names, jobSet)).toBe(8);
  expect(claimsOfJobSet(names, {})).toBe(0);
});
