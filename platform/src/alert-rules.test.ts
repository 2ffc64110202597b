// SPDX-License-Identifier: Apache-2.0

// The shipped alert rules, tested with Debian's promtool: each fires when it should, and none fires in a healthy pool.

import { spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";
import { type MetricDefinition, metricTable } from "./metrics.ts";

const rulesFile = fileURLToPath(new URL("../../packaging/prometheus/millpond.rules.yml", import.meta.url));
const rules = readFileSync(rulesFile, "utf8");
const missing = spawnSync("promtool", ["--version"]).status === 0 ? "" : " (not run: no promtool here)";

/** A series with a constant value for three hours, one sample each minute. */
const always = (series: string, value: string): object => ({ series, values: `${value}x180` });
const device = '{node="a",device="0",uuid="GPU-0",model="H200",instance="c1",job="millpond"}';

const healthy = [
  always('millpond_controller_leads{instance="c1"}', "1"),
  always('millpond_controller_leads{instance="c2"}', "0"),
  always('millpond_nodes{state="ready"}', "4"),
  always('millpond_nodes{state="notReady"}', "0"),
  always(`millpond_device_healthy${device}`, "1"),
  always(`millpond_device_ecc_uncorrected_errors_total${device}`, "3"),
  always(`millpond_device_row_remap_pending${device}`, "0"),
  always(`millpond_device_memory_allocated_bytes${device}`, "1000"),
  always(`millpond_device_memory_used_bytes${device}`, "500"),
  always('millpond_oldest_pending_claim_seconds{queue="q"}', "30"),
  always('millpond_queue_used_gpus{queue="q"}', "8"),
  always('millpond_queue_guaranteed_gpus{queue="q"}', "8"),
  always('millpond_claims{queue="q",state="pending"}', "1"),
  always('millpond_change_seconds_bucket{le="0.01"}', "0+100"),
  always('millpond_change_seconds_bucket{le="2.5"}', "0+100"),
  always('millpond_change_seconds_bucket{le="+Inf"}', "0+100"),
  always('millpond_agent_last_sync_timestamp_seconds{instance="a1"}', "0+60"),
];

/** The deviation from a healthy pool, by the alert that it fires. */
const faults: Readonly<Record<string, readonly object[]>> = {
  MillpondNoLeader: [always('millpond_controller_leads{instance="c1"}', "0")],
  MillpondSeveralLeaders: [always('millpond_controller_leads{instance="c2"}', "1")],
  MillpondNodesLost: [always('millpond_nodes{state="notReady"}', "1")],
  MillpondDeviceUnhealthy: [always(`millpond_device_healthy${device}`, "0")],
  MillpondDeviceMemoryErrors: [always(`millpond_device_ecc_uncorrected_errors_total${device}`, "0+1")],
  MillpondClaimsWait: [always('millpond_oldest_pending_claim_seconds{queue="q"}', "7200")],
  MillpondQueueBelowGuarantee: [always('millpond_queue_used_gpus{queue="q"}', "4")],
  MillpondGrantedAndIdle: [always(`millpond_device_memory_used_bytes${device}`, "0")],
  MillpondChangesSlow: [always('millpond_change_seconds_bucket{le="0.01"}', "0")],
  MillpondAgentCutOff: [always('millpond_agent_last_sync_timestamp_seconds{instance="a1"}', "60")],
};

const nameOf = (series: object): string => (series as { readonly series: string }).series;

const names = [...rules.matchAll(/- alert: (\w+)/g)].map(([, name = ""]) => name);

test("every alert has a fault that fires it", () => {
  expect(names.toSorted()).toEqual(Object.keys(faults).toSorted());
});

test("alerts ask for metrics and states that there are", () => {
  const used = [...rules.matchAll(/\bmillpond_[a-z_]+/g)].map(([name]) => name.replace(/_bucket$/, ""));
  expect(used.length).toBeGreaterThan(10);
  const tables: Readonly<Record<string, MetricDefinition>> = metricTable;
  for (const name of used) expect(tables[name], name).toBeDefined();
  for (const [, metric = "", labels = ""] of rules.matchAll(/\b(millpond_[a-z_]+)\{([^}]*)\}/g)) {
    for (const [, label = ""] of labels.matchAll(/(\w+)=/g)) {
      expect(tables[metric]?.labels, metric).toContain(label);
    }
  }
});

test.skipIf(missing !== "")(`each alert fires for its fault alone, and none without one${missing}`, () => {
  const directory = mkdtempSync(join(tmpdir(), "millpond-rules-"));
  try {
    const cases = [["", []] as const, ...Object.entries(faults)].map(([name, changed]) => ({
      name: name === "" ? "healthy" : name,
      interval: "1m",
      input_series: [
        ...healthy.filter((each) => !changed.some((fault) => nameOf(fault) === nameOf(each))),
        ...changed,
      ],
      promql_expr_test: names.map((alert) => ({
        expr: `count(ALERTS{alertname="${alert}",alertstate="firing"})`,
        eval_time: "2h",
        exp_samples: alert === name ? [{ labels: "{}", value: 1 }] : [],
      })),
    }));
    const file = join(directory, "rules-test.yml");
    // JSON is also valid YAML.
    writeFileSync(file, JSON.stringify({ rule_files: [rulesFile], evaluation_interval: "1m", tests: cases }));
    for (const args of [
      ["check", "rules", rulesFile],
      ["test", "rules", file],
    ]) {
      const { status, stdout, stderr } = spawnSync("promtool", args, { encoding: "utf8" });
      expect([status, stderr], stdout).toEqual([0, ""]);
    }
  } finally {
    rmSync(directory, { recursive: true, force: true });
  }
});
