// SPDX-License-Identifier: Apache-2.0

import { isIPv4, isIPv6 } from "node:net";
import { isAbsolute, resolve } from "node:path";
import { millpondError, quote } from "@millpond/api";
import { type ConnectionLimits, isLoopbackAddress, type OtlpTarget } from "@millpond/platform";
import type { Logger } from "pino";
import { type Clock, systemClock } from "./timers/clock.ts";
import type { TlsSource } from "./http/tls.ts";
import { defaultChangesPerSecond } from "./auth/call-limits.ts";
import { type OidcConfig, readOidcConfig } from "./auth/oidc-config.ts";
import { isToken } from "./auth/tokens.ts";
import { poolKeyPath } from "./state/pool-key.ts";
import { readWebhooks, type WebhookConfig } from "./notifications/webhook-config.ts";

export const defaultListen = "127.0.0.1:7170";

const maxChangesPerSecond = 1_000_000;

/** Command-line options of the controller. */
export interface ControllerOptions {
  /** Directory of the state and the tokens; created with mode 0700 if it does not exist. */
  readonly stateDirectory: string;
  /** `postgres://user:password@host:port/database`, which several controllers may share. Absent: a file of the directory. */
  readonly storeUrl?: string | undefined;
  /** File of the key that seals the pool's secrets, the same for all its controllers. Default: `pool.key` of the directory. */
  readonly keyFile?: string | undefined;
  /** Base URL at which other hosts reach this controller. Default: its listening address. */
  readonly advertise?: string | undefined;
  /**
   * Authorities that the leader is verified against, PEM. Default: the pool's own authority where this controller has a
   * certificate of it, else those of the host.
   */
  readonly ca?: string | undefined;
  /** `host:port`; TLS is required beyond loopback. Port 0 picks a free one. Default `127.0.0.1:7170`. */
  readonly listen?: string;
  /** Tokens of users besides the one in the state directory, 16 to 384 printable characters each. */
  readonly userTokens?: readonly string[];
  /** Tokens of agents besides the one in the state directory. */
  readonly agentTokens?: readonly string[];
  /**
   * Files of a certificate and its key, PEM: TLS on any address. Absent: beyond loopback, a certificate of the pool's own
   * authority.
   */
  readonly tlsCertificate?: string | undefined;
  readonly tlsKey?: string | undefined;
  /** Additional names and addresses of this host, for the certificate of the pool's own authority. */
  readonly tlsNames?: readonly string[];
  /** Limits on concurrent connections. Default: derived from the limits of the process. */
  readonly connectionLimits?: ConnectionLimits;
  /**
   * Whether agents may authenticate with the token of the state directory, which may report any node without a token of
   * its own. Default true.
   */
  readonly takesSharedAgentTokens?: boolean;
  /** File that the audit is written to besides the store, as JSON lines. Default: none. */
  readonly auditLog?: string | undefined;
  /** Whether changes are refused while their audit records cannot be written there. Default false. */
  readonly isAuditLogRequired?: boolean;
  /** Changes per second that a token of a tenant may make, averaged over ten seconds. Default 100. */
  readonly changesPerSecond?: number;
  /** Collector of OpenTelemetry that the life of claims is sent to. Default: none. */
  readonly tracing?: OtlpTarget | undefined;
  /** File that names the receivers of events, JSON. Default: no receivers. */
  readonly webhooks?: string | undefined;
  /** File that names the OpenID provider of the console, JSON. Default: no provider. */
  readonly oidc?: string | undefined;
  /** Default: JSON lines to standard error at the level `info`. */
  readonly log?: Logger;
  /** Default: the clock of the host. */
  readonly clock?: Clock;
}

/** The validated options, with defaults filled in. */
export interface ResolvedOptions {
  readonly stateDirectory: string;
  readonly storeUrl: string | undefined;
  readonly keyFile: string;
  readonly advertise: string | undefined;
  readonly ca: string | undefined;
  readonly host: string;
  readonly port: number;
  readonly userTokens: readonly string[];
  readonly agentTokens: readonly string[];
  /** undefined: plain HTTP, on loopback only. */
  readonly tls: TlsSource | undefined;
  readonly auditLog: { readonly path: string; readonly isRequired: boolean } | undefined;
  readonly changesPerSecond: number;
  readonly takesSharedAgentTokens: boolean;
  readonly webhooks: readonly WebhookConfig[];
  readonly oidc: OidcConfig | undefined;
  readonly clock: Clock;
}

/** @throws MILLPOND_E_INVALID */
export function resolveOptions(options: ControllerOptions): ResolvedOptions {
  const {
    stateDirectory,
    storeUrl,
    keyFile = "",
    advertise,
    ca,
    listen = defaultListen,
    userTokens = [],
    agentTokens = [],
    tlsCertificate,
    tlsKey,
    tlsNames = [],
    auditLog = "",
    isAuditLogRequired = false,
    takesSharedAgentTokens = true,
    changesPerSecond = defaultChangesPerSecond,
    webhooks = "",
    oidc = "",
    clock = systemClock,
  } = options;
  if (stateDirectory === "") {
    throw millpondError("MILLPOND_E_INVALID", "the state directory is empty");
  }
  if (![...userTokens, ...agentTokens].every(isToken)) {
    throw millpondError("MILLPOND_E_INVALID", "a token is not 16 to 384 printable characters without blanks");
  }
  if (!takesSharedAgentTokens && agentTokens.length > 0) {
    throw millpondError(
      "MILLPOND_E_INVALID",
      "shared agent tokens are refused, and MILLPOND_AGENT_TOKENS has some",
    );
  }
  if (isAuditLogRequired && auditLog === "") {
    throw millpondError("MILLPOND_E_INVALID", "an audit log is required, and there is none");
  }
  if (!(changesPerSecond > 0 && changesPerSecond <= maxChangesPerSecond)) {
    throw millpondError(
      "MILLPOND_E_INVALID",
      `the changes per second are ${changesPerSecond}, not between 1 and ${maxChangesPerSecond}`,
    );
  }
  const { host, port } = parseListen(listen);
  if ((tlsCertificate === undefined) !== (tlsKey === undefined)) {
    throw millpondError("MILLPOND_E_INVALID", "a certificate and its key are given together or not at all");
  }
  const given: TlsSource | undefined =
    tlsCertificate === undefined || tlsKey === undefined
      ? undefined
      : { kind: "given", certificate: tlsCertificate, key: tlsKey };
  return {
    stateDirectory: isAbsolute(stateDirectory) ? stateDirectory : resolve(stateDirectory),
    storeUrl: storeUrl === "" ? undefined : storeUrl,
    keyFile: resolve(keyFile === "" ? poolKeyPath(stateDirectory) : keyFile),
    advertise: advertise === undefined || advertise === "" ? undefined : checkUrl(advertise),
    ca,
    host,
    port,
    userTokens,
    agentTokens,
    auditLog: auditLog === "" ? undefined : { path: resolve(auditLog), isRequired: isAuditLogRequired },
    changesPerSecond,
    takesSharedAgentTokens,
    webhooks: webhooks === "" ? [] : readWebhooks(resolve(webhooks)),
    oidc: oidc === "" ? undefined : readOidcConfig(resolve(oidc)),
    tls: given ?? (isLoopbackAddress(host) ? undefined : { kind: "own", names: tlsNames }),
    clock,
  };
}

/**
 * Parses `address:port`, `[v6]:port` or `localhost:port`.
 *
 * @throws MILLPOND_E_INVALID
 */
export function parseListen(text: string): { readonly host: string; readonly port: number } {
  const match = /^(?:\[([^\]]+)\]|([^:[\]]+)):(\d{1,5})$/.exec(text);
  const host = match?.[1] ?? match?.[2];
  const port = Number(match?.[3]);
  if (host === undefined || port > 65_535) {
    throw millpondError("MILLPOND_E_INVALID", `the address ${quote(text)} is not of the form host:port`);
  }
  // Resolving the name depends on the host's configuration, so it is not resolved.
  const address = host === "localhost" ? "127.0.0.1" : host;
  if (!isIPv4(address) && !isIPv6(address)) {
    throw millpondError(
      "MILLPOND_E_INVALID",
      `the host of ${quote(text)} is neither an IP address nor localhost`,
    );
  }
  return { host: address, port };
}

/** @throws MILLPOND_E_INVALID */
function checkUrl(text: string): string {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (url?.protocol !== "http:" && url?.protocol !== "https:") {
    throw millpondError(
      "MILLPOND_E_INVALID",
      `the address to advertise, ${quote(text)}, is not a URL such as https://controller-1:7170`,
    );
  }
  return text.replace(/\/+$/, "");
}
