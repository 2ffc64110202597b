// SPDX-License-Identifier: Apache-2.0

// docs/reference/metrics.md, generated from the table of metrics. `node platform/src/metrics-doc.ts` writes it.

import { writeFileSync } from "node:fs";
import { dcgmTable } from "./dcgm-metrics.ts";
import { type MetricDefinition, metricTable } from "./metrics.ts";

/** Path of the page. */
export const metricsDocUrl: URL = new URL("../../docs/reference/metrics.md", import.meta.url);

/** The text of the page. */
export function renderMetricsDoc(): string {
  const code = (labels: readonly string[]) => labels.map((label) => `\`${label}\``).join(", ");
  const rows = Object.entries<MetricDefinition>(metricTable).map(
    ([name, { part, type, help, labels }]) =>
      `| \`${name}\` | ${part === "both" ? "controller, agent" : part} | ${type} | ${code(labels)} | ${help} |`,
  );
  const ofDcgm = Object.entries<MetricDefinition>(dcgmTable).map(
    ([name, { help, labels }]) => `| \`${name}\` | ${code(labels)} | ${help} |`,
  );
  return `<!-- Generated from platform/src/metrics.ts by \`npm run generate -w platform\`. Do not edit. -->

# Metrics

\`GET /metrics\` returns metrics in the text format of Prometheus: on a controller with the token of a user, an agent or an
administrator, on an agent with that agent's token or its token of metrics. Only a tenant's own tokens and administrators see its usage. For a pool on one
machine:

\`\`\`yaml
scrape_configs:
  - job_name: millpond
    authorization: {credentials_file: /etc/millpond/user.token}
    static_configs: [{targets: ["127.0.0.1:7170"]}]
\`\`\`

## Controllers and agents of other hosts

Beyond loopback both speak HTTPS:

\`\`\`yaml
scrape_configs:
  - job_name: millpond
    scheme: https
    tls_config: {ca_file: /etc/prometheus/millpond/controller-ca.crt}
    authorization: {credentials_file: /etc/prometheus/millpond/user.token}
    static_configs: [{targets: ["c1.example.org:7170", "c2.example.org:7170"]}]
  - job_name: millpond-agents
    scheme: https
    tls_config: {ca_file: /etc/prometheus/millpond/agents-ca.crt}
    authorization: {credentials_file: /etc/prometheus/millpond/agent.token}
    file_sd_configs: [{files: [/etc/prometheus/millpond/agents.json]}]
\`\`\`

| file | content |
|---|---|
| \`user.token\` | a token for Prometheus: \`millpond token create prometheus --role admin\` to see the usage of all tenants and the temperature, power and clocks of all cards, otherwise without the role |
| \`agent.token\` | a token of metrics, the same for all agents: \`openssl rand -hex 32\` in a file of each node that \`metricsTokenFile\` in its agent.yaml names. Without it, the token with which an agent was started |
| \`controller-ca.crt\` | the authority that the command line trusts for the controller; of several controllers with an authority each, \`tls/ca.crt\` of their state directories, concatenated |
| \`agents-ca.crt\` | the authorities of all agents: each has its own, which is valid for ten years |
| \`agents.json\` | the list of agents |

One command writes the last three. Repeat it when nodes join, from a timer perhaps; Prometheus rereads them when they change:

\`\`\`
millpond prometheus --directory /etc/prometheus/millpond
\`\`\`

The label \`node\` is the same as in the controller's metrics, so that both can be joined. Prometheus shows errors beside the
target: \`certificate signed by unknown authority\` means that the agent is missing in \`agents-ca.crt\`, 401 a wrong token.

## Dashboard

\`packaging/grafana/millpond.json\` is a dashboard for Grafana: import it, or put it into a folder from which Grafana provisions
dashboards. Select the Prometheus data source at its top, and, in a large pool, queues, tenants and nodes; the first row, and the
agents' figures for each claim, always cover the whole pool.

## Alerts

\`packaging/prometheus/millpond.rules.yml\` has alert rules for Prometheus: no leader, lost nodes and GPUs, errors of GPU memory, long waits, idle
granted GPUs, slow changes. Add it to \`rule_files\`, and adapt the thresholds.

## Names of DCGM

\`GET /metrics/dcgm\` on a controller exports the usage of claims and their programs under the names and labels of NVIDIA's DCGM
exporter, for existing dashboards. The values do not describe whole cards: on a shared card each claim has its own total, and each
program its own use. \`namespace\` and \`pod\` are those of Kubernetes, and absent for other claims. A token sees its own tenant,
an administrator's token all tenants. Only the leader exports them.

| metric | labels | meaning |
|---|---|---|
${ofDcgm.join("\n")}

## Traces

With \`OTEL_EXPORTER_OTLP_ENDPOINT=http://collector:4318\` in its environment the leader sends the life of each claim to a collector
of OpenTelemetry, as OTLP over HTTP in JSON; without it nothing is traced. \`OTEL_EXPORTER_OTLP_TRACES_ENDPOINT\`,
\`OTEL_EXPORTER_OTLP_HEADERS\` and \`OTEL_SDK_DISABLED\` have their usual meaning. An unavailable collector delays no
claim: spans are dropped, which is logged.

| span | from | until |
|---|---|---|
| \`claim\` | the request, or for older claims the start of the leader's term | its end |
| \`wait\`, in it | the request, or its return to the queue | it is bound |
| \`attach\`, in it | it is bound | its first program has connected to a worker |
| \`first kernel\`, in it | the end of \`attach\` | the program's first kernel launch, to within the interval of agents' reports |

Attributes are \`millpond.claim\`, \`millpond.tenant\`, \`millpond.queue\`, \`millpond.gpus\`, \`millpond.owner\`, and, if known,
\`millpond.node\`, \`millpond.transport\`, \`process.pid\`.

## By name

| metric | part | type | labels | meaning |
|---|---|---|---|---|
${rows.join("\n")}
`;
}

if (import.meta.main) {
  writeFileSync(metricsDocUrl, renderMetricsDoc());
}
