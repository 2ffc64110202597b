// SPDX-License-Identifier: Apache-2.0

import { spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { create } from "@bufbuild/protobuf";
import type { ResourceV1ResourceClaim, V1Pod } from "@kubernetes/client-node";
import { type Claim, ClaimSchema, ClaimState, NodeSchema } from "@millpond/api";
import { expect, onTestFinished, test } from "vitest";
import { inRoot } from "../../../scripts/lib/paths.ts";
import { makeResourceNames } from "../request/resource-names.ts";
import { testLog } from "../testing/test-pool.ts";
import { BookKeeper, type Books, compareBooks, differenceKinds } from "./books.ts";
import { formatMetrics } from "./metrics.ts";

const uid = "11111111-2222-3333-4444-555555555555";
const name = `pod-${uid}`;
const GiB = 1n << 30n;
const nodes = [
  create(NodeSchema, {
    name: "gpu-a",
    devices: [
      { uuid: "GPU-x", index: 0 },
      { uuid: "GPU-y", index: 1 },
    ],
  }),
];

function claim(more: { state?: ClaimState; sizeRevision?: bigint } = {}): Claim {
  const { state = ClaimState.BOUND, sizeRevision = 0n } = more;
  const devices = [{ uuid: "GPU-y", memoryBytes: 4n * GiB, computePercent: 30 }];
  return create(ClaimSchema, {
    name,
    state,
    allocation: { claim: name, node: "gpu-a", devices, sizeRevision },
  });
}

const pod: V1Pod = {
  metadata: { uid, name: "train", namespace: "default", annotations: { "millpond.dev/request": "[]" } },
  status: { phase: "Running" },
};

function down(device: string, cores: string, memory: string): ResourceV1ResourceClaim {
  const result = {
    driver: "millpond.dev",
    pool: "gpu-a",
    device,
    request: "gpu-0",
    consumedCapacity: { cores, memory },
  };
  return {
    metadata: { name: "c", namespace: "default", annotations: { "millpond.dev/claim": name } },
    spec: {},
    status: { allocation: { devices: { results: [result] } } },
  };
}

const kindsOf = (more: Partial<Books>) =>
  compareBooks({
    names: makeResourceNames(),
    claims: new Map([[name, claim()]]),
    pods: new Map([[uid, pod]]),
    resourceClaims: new Map([["r", down("gpu-1", "30", "4Gi")]]),
    nodes,
    ...more,
  }).map(({ kind }) => kind);

test.each<[string, Partial<Books>, readonly string[]]>([
  ["the same in both", {}, []],
  ["written in other words", { resourceClaims: new Map([["r", down("gpu-1", "30", "4096Mi")]]) }, []],
  ["another device", { resourceClaims: new Map([["r", down("gpu-0", "30", "4Gi")]]) }, ["other-devices"]],
  ["another part", { resourceClaims: new Map([["r", down("gpu-1", "31", "4Gi")]]) }, ["other-size"]],
  [
    "another part since a resize",
    {
      resourceClaims: new Map([["r", down("gpu-1", "31", "4Gi")]]),
      claims: new Map([[name, claim({ sizeRevision: 1n })]]),
    },
    [],
  ],
  ["no pod", { pods: new Map() }, ["claim-without-pod"]],
  ["no claim", { claims: new Map() }, ["pod-without-claim", "not-in-pool"]],
  [
    "a claim that has ended",
    { claims: new Map([[name, claim({ state: ClaimState.RELEASED })]]) },
    ["pod-without-claim", "not-in-pool"],
  ],
  [
    "no claim yet, of a pod that does not run",
    {
      claims: new Map(),
      resourceClaims: undefined,
      pods: new Map([[uid, { ...pod, status: { phase: "Pending" } }]]),
    },
    [],
  ],
  ["a node that is not known", { nodes: [] }, []],
])("books with %s", (_what, books, kinds) => {
  expect(kindsOf(books)).toEqual(kinds);
});

test("a difference counts when it has lasted, and no longer than it is there", () => {
  const keeper = new BookKeeper(testLog);
  const differences = [{ kind: "other-devices", subject: name }] as const;
  keeper.take(differences, 0);
  keeper.take(differences, 29_000);
  expect(keeper.lasting("other-devices")).toBe(0);
  keeper.take([], 29_500);
  keeper.take(differences, 30_000);
  keeper.take(differences, 45_000);
  expect(keeper.lasting("other-devices")).toBe(0);
  keeper.take(differences, 60_000);
  expect(keeper.lasting("other-devices")).toBe(1);
  expect(keeper.lasting("other-size")).toBe(0);
  keeper.take([], 60_001);
  expect(keeper.lasting("other-devices")).toBe(0);
});

const noPromtool = spawnSync("promtool", ["--version"]).status === 0 ? "" : " (not run: no promtool here)";

test.skipIf(noPromtool !== "")(
  `alerts fire for differences that last, and without a leader${noPromtool}`,
  () => {
    const directory = mkdtempSync(join(tmpdir(), "millpond-rules-"));
    onTestFinished(() => rmSync(directory, { recursive: true }));
    const rules = inRoot("packaging", "prometheus", "millpond-kubernetes.rules.yml");
    const metrics = {
      leads: true,
      reviews: 0,
      pods: 0,
      bookDifferences: 0,
      queueLength: 0,
      books: undefined,
    };
    const text = formatMetrics(metrics);
    for (const [metric] of readFileSync(rules, "utf8").matchAll(/\bmillpond_[a-z_]+/g))
      expect(text).toContain(metric);
    const series = (leads: number, differences: number) => [
      { series: 'millpond_operator_leads{instance="a"}', values: `${leads}x30` },
      { series: 'millpond_operator_leads{instance="b"}', values: "0x30" },
      ...differenceKinds.map((kind, index) => ({
        series: `millpond_operator_books_differ{kind="${kind}",instance="a"}`,
        values: `${index === 0 ? differences : 0}x30`,
      })),
    ];
    const alerts = ["MillpondBooksDiffer", "MillpondOperatorNoLeader"];
    const tests = [
      [1, 0, []],
      [1, 2, ["MillpondBooksDiffer"]],
      [0, 0, ["MillpondOperatorNoLeader"]],
    ] as const;
    const file = join(directory, "test.yml");
    writeFileSync(
      file,
      JSON.stringify({
        rule_files: [rules],
        tests: tests.map(([leads, differences, fired]) => ({
          interval: "1m",
          input_series: series(leads, differences),
          promql_expr_test: alerts.map((alert) => ({
            eval_time: "10m",
            expr: `count(ALERTS{alertname="${alert}",alertstate="firing"})`,
            exp_samples: (fired as readonly string[]).includes(alert) ? [{ labels: "{}", value: 1 }] : [],
          })),
        })),
      }),
    );
    const { status, stdout, stderr } = spawnSync("promtool", ["test", "rules", file], { encoding: "utf8" });
    expect(`${stdout}${stderr}`).toContain("SUCCESS");
    expect(status).toBe(0);
  },
);
