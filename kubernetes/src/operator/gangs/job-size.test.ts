// SPDX-License-Identifier: Apache-2.0

import { expect, test } from "vitest";
import { makeResourceNames } from "../../request/resource-names.ts";
import { claimsOfJob, gangOfJobSet, type JobLike } from "./job-size.ts";

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

const jobs = [
  { name: "plain", replicas: 1, template: makeJob({}, 0, {}) },
  { name: "workers", replicas: 2, template: makeJob({ parallelism: 3, completions: 3 }, 1) },
  { name: "leader", template: makeJob({ parallelism: 1 }, 2) },
  { name: "alone", replicas: 5, template: makeJob({ parallelism: 1 }, 1, {}) },
];

test("of a JobSet those replicas count that say so", () => {
  expect(gangOfJobSet(names, { spec: { replicatedJobs: jobs } }, "leader")).toEqual({ size: 8 });
  expect(gangOfJobSet(names, {}, "leader")).toEqual({ size: 0 });
});

test("Jobs of a JobSet that have succeeded are not waited for", () => {
  const status = { replicatedJobsStatus: [{ name: "workers", succeeded: 1 }, { name: "leader" }] };
  expect(gangOfJobSet(names, { spec: { replicatedJobs: jobs }, status }, "workers")).toEqual({ size: 5 });
});

test("Jobs of a JobSet that start after others are gangs of their own", () => {
  const inOrder = { replicatedJobs: jobs, startupPolicy: { startupPolicyOrder: "InOrder" } };
  expect(gangOfJobSet(names, { spec: inOrder }, "workers")).toEqual({ size: 6, part: "workers" });
  expect(gangOfJobSet(names, { spec: inOrder }, "leader")).toEqual({ size: 2, part: "leader" });
  const anyOrder = { ...inOrder, startupPolicy: { startupPolicyOrder: "AnyOrder" } };
  expect(gangOfJobSet(names, { spec: anyOrder }, "leader")).toEqual({ size: 8 });
  const depending = [
    ...jobs,
    {
      name: "after",
      template: makeJob({ parallelism: 4 }, 1),
      dependsOn: [{ name: "leader", status: "Complete" }],
    },
  ];
  const spec = { replicatedJobs: depending };
  expect(gangOfJobSet(names, { spec }, "workers")).toEqual({ size: 8 });
  expect(gangOfJobSet(names, { spec }, "after")).toEqual({ size: 4, part: "after" });
});
