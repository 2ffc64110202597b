// SPDX-License-Identifier: Apache-2.0

// Runtime support for every service and client of the control plane: TLS, connections, logs, metrics.

// Connections
export { agentTransportOptions, agentUrl, parseAgentUrl } from "./agent-url.ts";
export {
  type ConnectionLimits,
  defaultConnectionLimits,
  handshakeTimeoutMs,
  limitConnections,
  requestTimes,
} from "./connection-limits.ts";
export { type FailoverOptions, makeFailoverTransport, splitAddresses } from "./failover.ts";
export { makePromptAgent } from "./outgoing/prompt-agent.ts";
export { isLoopbackAddress, isLoopbackHost, isLoopbackUrl } from "./addresses/loopback.ts";
export { isOwnHost, reachableHost } from "./addresses/reachable-host.ts";

// Files
export { makeFolders } from "./make-folders.ts";
export { makeFileOnce, makePrivateFile } from "./files/private-file.ts";
export { makePoolKeyText, poolKeyBytes, poolKeyPrefix } from "./files/pool-key-text.ts";
export { controllerStateDirectory, userStateDirectory } from "./state-directory.ts";

// TLS
export { authorityPath, makeOwnCertificate } from "./own-certificate.ts";
export { explainTlsFailure, isTlsFailure, readAuthorities, speaksNoTls } from "./tls.ts";
export { makeAuthority, makeServerCertificate } from "./x509.ts";
export type { CertificatePair, Validity } from "./x509.ts";

// Logs
export { logDestinationOptions, logLineOptions, toleratingWriteErrors } from "./log-destination.ts";

// Metrics
export { type DcgmSample, renderDcgmMetrics } from "./dcgm-metrics.ts";
export { Histogram, metricsContentType, processMetrics, renderMetrics } from "./metrics.ts";
export type { MetricLabels, MetricSample } from "./metrics.ts";

// Traces
export { OtlpExporter, type OtlpTarget, otlpTarget, type Span } from "./otlp.ts";
