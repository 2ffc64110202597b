// SPDX-License-Identifier: Apache-2.0

import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import {
  claimFieldsDocUrl,
  claimVariablesHeaderUrl,
  renderClaimFieldsDoc,
  renderClaimVariablesHeader,
} from "./claim-fields-doc.ts";
import { metricsDocUrl, renderMetricsDoc } from "./metrics-doc.ts";
import { Histogram, type MetricDefinition, metricTable, renderMetrics } from "./metrics.ts";

/** As far as it is looked at. */
interface Panel {
  readonly id: number;
  readonly gridPos: { readonly x: number; readonly y: number; readonly w: number; readonly h: number };
  readonly targets?: readonly { readonly expr: string }[];
}

test("generated pages are what their tables make: npm run generate -w api", () => {
  expect(readFileSync(metricsDocUrl, "utf8")).toBe(renderMetricsDoc());
  expect(readFileSync(claimFieldsDocUrl, "utf8")).toBe(renderClaimFieldsDoc());
  expect(readFileSync(claimVariablesHeaderUrl, "utf8")).toBe(renderClaimVariablesHeader());
});

test("names say their unit as Prometheus has it", () => {
  for (const [name, definition] of Object.entries<MetricDefinition>(metricTable)) {
    expect(name).toMatch(/^(millpond|process)_[a-z0-9_]+$/);
    expect(name.endsWith("_total")).toBe(definition.type === "counter");
    expect(definition.type === "histogram").toBe(definition.buckets !== undefined);
    expect(definition.help).not.toMatch(/\.$/);
  }
});

test("the text form", () => {
  const waits = new Histogram("millpond_claim_wait_seconds");
  waits.observe(4, { queue: "a" });
  waits.observe(5, { queue: "a" });
  waits.observe(100_000, { queue: "a" });
  const text = renderMetrics(
    [{ name: "millpond_events_total", labels: { kind: 'a"b\\c\nd' }, value: 2 }],
    [waits],
  );
  expect(text).toContain(
    '# TYPE millpond_events_total counter\nmillpond_events_total{kind="a\\"b\\\\c\\nd"} 2\n',
  );
  expect(text).toContain('millpond_claim_wait_seconds_bucket{queue="a",le="1"} 0\n');
  expect(text).toContain('millpond_claim_wait_seconds_bucket{queue="a",le="5"} 2\n');
  expect(text).toContain('millpond_claim_wait_seconds_bucket{queue="a",le="+Inf"} 3\n');
  expect(text).toContain('millpond_claim_wait_seconds_sum{queue="a"} 100009\n');
});

test("the dashboard uses metrics and labels that there are", () => {
  const url = new URL("../../packaging/grafana/millpond.json", import.meta.url);
  const dashboard: { panels: Panel[] } = JSON.parse(readFileSync(url, "utf8"));
  expect(new Set(dashboard.panels.map(({ id }) => id)).size).toBe(dashboard.panels.length);
  const cells = dashboard.panels.flatMap(({ gridPos: { x, y, w, h } }) =>
    Array.from({ length: w * h }, (_, n) => `${x + (n % w)}, ${y + Math.floor(n / w)}`),
  );
  expect(new Set(cells).size, "panels lie beside each other").toBe(cells.length);
  const expressions = dashboard.panels.flatMap(({ targets = [] }) => targets.map(({ expr }) => expr));
  expect(expressions.length).toBeGreaterThan(10);
  const tables = new Map(Object.entries<MetricDefinition>(metricTable));
  for (const expression of expressions) {
    const names = expression.match(/\b(?:millpond|process)_[a-z_]+\b/g) ?? [];
    expect(names.length).toBeGreaterThan(0);
    for (const name of names) {
      const base = name.replace(/_(bucket|sum|count)$/, "");
      expect(tables.has(name) || tables.get(base)?.type === "histogram", name).toBe(true);
    }
    const grouped = expression.matchAll(/\b(?:by|on|group_left) \(([^)]*)\)/g);
    const labels = [...grouped].flatMap(([, list = ""]) => list.split(/, */));
    const known = names.flatMap((name) => tables.get(name.replace(/_(bucket|sum|count)$/, ""))?.labels ?? []);
    for (const label of labels.filter((each) => each !== "le")) {
      expect(known, `${label} in ${expression}`).toContain(label);
    }
  }
});
