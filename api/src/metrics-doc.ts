// SPDX-License-Identifier: Apache-2.0

// docs/reference/metrics.md, made from the table of metrics. `node api/src/metrics-doc.ts` writes it.

import { writeFileSync } from "node:fs";
import { type MetricDefinition, metricTable } from "./metrics.ts";

/** Where the page is kept. */
export const metricsDocUrl: URL = new URL("../../docs/reference/metrics.md", import.meta.url);

/** The page's text. */
export function renderMetricsDoc(): string {
  const rows = Object.entries<MetricDefinition>(metricTable).map(
    ([name, { part, type, help, labels }]) =>
      `| \`${name}\` | ${part === "both" ? "controller, agent" : part} | ${type} | ${labels.map((label) => `\`${label}\``).join(", ")} | ${help} |`,
  );
  return `<!-- Generated from api/src/metrics.ts by \`npm run generate -w api\`. Do not edit. -->

# Metrics

\`GET /metrics\` on a controller, with the token of a user or an agent, and on an agent, with the agent token, answers in the
text form of Prometheus:

\`\`\`yaml
scrape_configs:
  - job_name: millpond
    authorization: {credentials_file: /etc/millpond/user.token}
    static_configs: [{targets: ["127.0.0.1:7170"]}]
\`\`\`

Agents are asked at their addresses (\`millpond describe node\`) in the same way, with the agent token.

\`packaging/grafana/millpond.json\` is a dashboard for Grafana: import it, or put it into a folder from which Grafana provisions
dashboards. The Prometheus data source is chosen at its top, and so are queues, tenants and nodes where there are many; the
first row, and what the agents tell by claim, is of the whole pool.

| metric | part | type | labels | meaning |
|---|---|---|---|---|
${rows.join("\n")}
`;
}

if (import.meta.main) {
  writeFileSync(metricsDocUrl, renderMetricsDoc());
}
