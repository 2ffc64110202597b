// SPDX-License-Identifier: Apache-2.0

// docs/reference/metrics.md, made from the table of metrics. `node platform/src/metrics-doc.ts` writes it.

import { writeFileSync } from "node:fs";
import { dcgmTable } from "./dcgm-metrics.ts";
import { type MetricDefinition, metricTable } from "./metrics.ts";

/** Where the page is kept. */
export const metricsDocUrl: URL = new URL("../../docs/reference/metrics.md", import.meta.url);

/** The page's text. */
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

\`GET /metrics\` on a controller, with the token of a user, an agent or an administrator, and on an agent, with the token that
this agent has, answers in the text form of Prometheus. What a tenant uses is told to its own tokens and to administrators. A pool on one machine:

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

| file | what |
|---|---|
| \`controller-ca.crt\` | \`tls/ca.crt\` of the controller's state directory, or what has signed a given certificate; of several controllers, one behind the other |
| \`user.token\` | a token for this: \`millpond token create prometheus --role admin\` where what all tenants use is to be seen, else without the role |
| \`agents-ca.crt\` | \`tls/ca.crt\` of the run directories of all agents, one behind the other: each agent has an authority of its own, which stays the same for ten years |
| \`agent.token\` | the token that the agents were started with. Where each has its own, each has a job of its own |
| \`agents.json\` | the agents, made as below; Prometheus reads it again when it has changed |

\`\`\`
millpond get nodes -o json | jq '[.items[] | {targets: [.agentUrl | sub("^https?://"; "") | sub("[/#].*"; "")],
  labels: {node: .name}}]' > agents.json
\`\`\`

The label \`node\` is the one that the controller's metrics have, so that both can be joined. What is wrong stands beside the
target in Prometheus: \`certificate signed by unknown authority\` is an agent that is not in \`agents-ca.crt\`, 401 another token.

## Dashboard

\`packaging/grafana/millpond.json\` is a dashboard for Grafana: import it, or put it into a folder from which Grafana provisions
dashboards. The Prometheus data source is chosen at its top, and so are queues, tenants and nodes where there are many; the
first row, and what the agents tell by claim, is of the whole pool.

## Alerts

\`packaging/prometheus/millpond.rules.yml\` has rules for Prometheus: no leader, nodes and GPUs that are lost, claims that wait
for long, GPUs that are granted and idle, changes that are slow. Name it under \`rule_files\`; thresholds are meant to be changed.

## Names of DCGM

\`GET /metrics/dcgm\` on a controller has what claims and their programs use under the names and labels of NVIDIA's DCGM
exporter, for dashboards that ask for those. They are not of whole cards: on a shared card each claim has its own total, and each
program its own use. \`namespace\` and \`pod\` are those of Kubernetes, and absent for other claims. A token sees its own tenant,
one of an administrator all. Only the leader has them.

| metric | labels | meaning |
|---|---|---|
${ofDcgm.join("\n")}

## Traces

With \`OTEL_EXPORTER_OTLP_ENDPOINT=http://collector:4318\` in its environment the leader sends the life of each claim to a collector
of OpenTelemetry, as OTLP over HTTP in JSON; without it nothing is traced. \`OTEL_EXPORTER_OTLP_TRACES_ENDPOINT\`,
\`OTEL_EXPORTER_OTLP_HEADERS\` and \`OTEL_SDK_DISABLED\` mean what they mean elsewhere. A collector that does not answer hinders no
claim: spans are dropped, and the log says so.

| span | from | until |
|---|---|---|
| \`claim\` | the request, or when the controller became leader for claims that are older | its end |
| \`wait\`, in it | the request, or its return to the queue | it is bound |
| \`attach\`, in it | it is bound | its first program has connected to a worker |
| \`first kernel\`, in it | then | the program has launched a kernel, to within the interval of agents' reports |

Attributes are \`millpond.claim\`, \`millpond.tenant\`, \`millpond.queue\`, \`millpond.gpus\`, \`millpond.owner\`, and where there are any
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
