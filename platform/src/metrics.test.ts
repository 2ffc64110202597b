// SPDX-License-Identifier: Apache-2.0

import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { metricsDocUrl, renderMetricsDoc } from "./metrics-doc.ts";
import { Histogram, type MetricDefinition, metricTable, renderMetrics } from "./metrics.ts";

interface DataSource {
  readonly type: string;
  readonly uid: string;
}

/** The members that the tests read. */
interface Panel {
  readonly id: number;
  readonly title: string;
  readonly type: string;
  readonly gridPos: { readonly x: number; readonly y: number; readonly w: number; readonly h: number };
  readonly datasource: DataSource;
  readonly fieldConfig: {
    readonly defaults: {
      readonly unit: string;
      readonly mappings?: readonly object[];
      readonly thresholds?: { readonly steps: readonly { readonly value: number | null }[] };
    };
    readonly overrides: readonly { readonly matcher: { readonly id: string; readonly options: string } }[];
  };
  readonly targets: readonly {
    readonly expr: string;
    readonly refId: string;
    readonly interval?: string;
    readonly instant?: boolean;
    readonly range?: boolean;
    readonly datasource: DataSource;
  }[];
}

interface Variable {
  readonly name: string;
  readonly type: string;
  readonly datasource?: DataSource;
  readonly query: string | { readonly query: string };
  readonly allValue?: string;
}

const dashboard: {
  readonly panels: readonly Panel[];
  readonly templating: { readonly list: readonly Variable[] };
} = JSON.parse(readFileSync(new URL("../../packaging/grafana/millpond.json", import.meta.url), "utf8"));

test("the generated page is what the table makes: npm run generate -w platform", () => {
  expect(readFileSync(metricsDocUrl, "utf8")).toBe(renderMetricsDoc());
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

test("the dashboard can be imported and provisioned as it is, and asks the data source that is chosen", () => {
  // Provisioning fills in no inputs, and a database identifier would refer to another database there.
  expect(dashboard).not.toHaveProperty("__inputs");
  expect(dashboard).not.toHaveProperty("id");
  expect(dashboard).toMatchObject({ uid: "millpond", title: "Millpond" });
  const chosen = { type: "prometheus", uid: "${datasource}" };
  const [source, ...choices] = dashboard.templating.list;
  expect(source).toMatchObject({ name: "datasource", type: "datasource", query: chosen.type });
  for (const { name, datasource } of choices) expect(datasource, name).toEqual(chosen);
  for (const { title, datasource, targets, fieldConfig } of dashboard.panels) {
    expect(datasource, title).toEqual(chosen);
    expect(fieldConfig.defaults.unit, title).not.toBe("");
    for (const target of targets) expect(target.datasource, title).toEqual(chosen);
    const refs = targets.map(({ refId }) => refId);
    expect(new Set(refs).size, title).toBe(refs.length);
    for (const { matcher } of fieldConfig.overrides) {
      expect(matcher.id, title).toBe("byFrameRefID");
      expect(refs, title).toContain(matcher.options);
    }
  }
});

const tables = new Map(Object.entries<MetricDefinition>(metricTable));
const definitionOf = (metric: string) => {
  const base = tables.get(metric.replace(/_(bucket|sum|count)$/, ""));
  return tables.get(metric) ?? (base?.type === "histogram" ? base : undefined);
};

test("what can be chosen on the dashboard is asked of a metric that has it, and chosen by that label", () => {
  const choices = dashboard.templating.list.filter(({ type }) => type === "query");
  expect(choices.map(({ name }) => name)).toEqual(["queue", "tenant", "node"]);
  for (const { name, query, allValue } of choices) {
    const asked = typeof query === "string" ? query : query.query;
    const [, metric = "", label = ""] = /^label_values\((\w+), (\w+)\)$/.exec(asked) ?? [];
    expect(definitionOf(metric)?.labels, asked).toContain(label);
    expect(label).toBe(name);
    // All of them are selected, even if there are more than a query can name.
    expect(allValue).toBe(".*");
  }
  const used = new Set<string>();
  for (const { targets } of dashboard.panels) {
    for (const { expr, interval } of targets) {
      for (const [, label, variable] of expr.matchAll(/(\w+)=~"\$(\w+)"/g)) {
        expect(variable, expr).toBe(label);
        used.add(label ?? "");
      }
      // Grafana fits this window to the shown time range: a fixed one misses values between two points of a week.
      for (const [, window] of expr.matchAll(/\[([^\]]*)\]/g)) {
        expect(window, expr).toBe("$__rate_interval");
        expect(interval, expr).toBe("1m");
      }
    }
  }
  expect([...used].sort()).toEqual(["node", "queue", "tenant"]);
});

test("panels of one value show that of now, in colours of their own", () => {
  const single = dashboard.panels.filter(({ type }) => type === "stat" || type === "gauge");
  expect(single.length).toBeGreaterThan(0);
  for (const { title, type, fieldConfig, targets } of single) {
    // Green is for values, and not for a controller that reports nothing.
    if (type === "stat") {
      expect(fieldConfig.defaults.mappings, title).toMatchObject([
        { type: "special", options: { match: "null", result: { color: "text" } } },
      ]);
    }
    // The last point of a week is minutes old, and a point from before a controller stopped is not a current value.
    for (const target of targets) expect(target, title).toMatchObject({ instant: true, range: false });
    // Grafana's default thresholds turn red at 80.
    expect(fieldConfig.defaults.thresholds?.steps[0], title).toMatchObject({ value: null });
  }
});

test("the dashboard uses metrics and labels that there are", () => {
  expect(new Set(dashboard.panels.map(({ id }) => id)).size).toBe(dashboard.panels.length);
  const cells = dashboard.panels.flatMap(({ gridPos: { x, y, w, h } }) =>
    Array.from({ length: w * h }, (_, n) => `${x + (n % w)}, ${y + Math.floor(n / w)}`),
  );
  expect(new Set(cells).size, "panels lie beside each other").toBe(cells.length);
  const expressions = dashboard.panels.flatMap(({ targets }) => targets.map(({ expr }) => expr));
  expect(expressions.length).toBeGreaterThan(10);
  for (const expression of expressions) {
    const names = expression.match(/\b(?:millpond|process)_[a-z_]+\b/g) ?? [];
    expect(names.length).toBeGreaterThan(0);
    for (const name of names) expect(definitionOf(name), name).toBeDefined();
    for (const [, name = "", matchers = ""] of expression.matchAll(/\b(\w+)\{([^}]*)\}/g)) {
      for (const [, label] of matchers.matchAll(/(\w+)=/g)) {
        expect(definitionOf(name)?.labels, `${label} of ${name}`).toContain(label);
      }
    }
    const grouped = expression.matchAll(/\b(?:by|on|group_left) \(([^)]*)\)/g);
    const labels = [...grouped].flatMap(([, list = ""]) => list.split(/, */));
    const known = names.flatMap((name) => definitionOf(name)?.labels ?? []);
    for (const label of labels.filter((each) => each !== "le")) {
      expect(known, `${label} in ${expression}`).toContain(label);
    }
  }
});
