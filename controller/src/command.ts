// SPDX-License-Identifier: Apache-2.0

// The controller as a process: its command line and lifecycle.

import { parseArgs } from "node:util";
import { millpondError, quote } from "@millpond/api";
import { controllerStateDirectory, type OtlpTarget, otlpTarget, readAuthorities } from "@millpond/platform";
import { defaultChangesPerSecond } from "./auth/call-limits.ts";
import { startController } from "./controller.ts";
import { type LogLevel, logLevels, makeLog } from "./log.ts";
import { type ControllerOptions, defaultListen } from "./options.ts";

const help = `Usage: millpond controller [--listen HOST:PORT] [--state DIR] [--log-level LEVEL]
                           [--store URL [--advertise URL] [--ca FILE]]
                           [--tls-cert FILE --tls-key FILE | --tls-names NAME,...]

  --listen HOST:PORT   address to listen on; beyond loopback with TLS; port 0 takes a free one
                       (MILLPOND_LISTEN, default ${defaultListen})
  --state DIR          directory of the state and the tokens
                       (MILLPOND_STATE, default ~/.local/state/millpond/controller)
  --store URL          store of the state instead: postgres://user@host:5432/database,
                       which several controllers may share (MILLPOND_STORE, where a
                       password is out of sight)
  --key-file FILE      the key that seals the pool's secrets in the state and in backups, the
                       same file for all controllers of a pool
                       (MILLPOND_KEY_FILE, default pool.key in the state directory)
  --advertise URL      URL at which other controllers and redirected clients reach it
                       (MILLPOND_ADVERTISE, default: the address of --listen)
  --ca FILE            certificate authority of the other controllers, PEM (MILLPOND_CA);
                       default: the pool's own authority if this controller has a
                       certificate of it, else those of the machine
  --log-level LEVEL    trace, debug, info, warn, error or silent
                       (MILLPOND_LOG_LEVEL, default info)
  --tls-cert FILE      certificate to serve with, PEM (MILLPOND_TLS_CERT); default beyond
                       loopback: one of the pool's own authority, tls/ca.crt in the state
                       directory, which clients name in MILLPOND_CA
  --tls-key FILE       its key, PEM (MILLPOND_TLS_KEY)
  --audit-log FILE     file to which the audit is also written, as JSON lines
                       (MILLPOND_AUDIT_LOG); SIGHUP reopens it
  --audit-log-required refuse changes that cannot be written there
                       (MILLPOND_AUDIT_LOG_REQUIRED=1)
  --changes-per-second N
                       changes that a token of a tenant may make per second
                       (MILLPOND_CHANGES_PER_SECOND, default 100)
  --own-agent-tokens-only
                       accept only agent tokens that were created for their node, not
                       the shared one of the state directory
                       (MILLPOND_OWN_AGENT_TOKENS_ONLY=1)
  --webhooks FILE      receivers of events, as JSON (MILLPOND_WEBHOOKS)
  --oidc FILE          OpenID provider of the console, as JSON (MILLPOND_OIDC)
  --tls-names NAMES    further names and addresses of this machine for the generated
                       certificate
                       (MILLPOND_TLS_NAMES)

Further tokens, separated by commas: MILLPOND_USER_TOKENS, MILLPOND_AGENT_TOKENS.
Logs are JSON lines on standard error. SIGINT and SIGTERM end it;
SIGHUP reloads its certificate and its log level.
`;

export interface CommandOptions {
  readonly onReady?: () => void;
  /** Returns the command line for a reload: its file may have changed. */
  readonly readAgain?: () => readonly string[];
}

/**
 * Runs a controller until it is stopped: by SIGTERM, by SIGINT, or, when another process started it with an IPC channel, by
 * the end of that process. Over such a channel it sends `{"type": "ready", "url": …}`. SIGHUP makes it reread its
 * certificate and its log level. Resolves with the exit status; errors before the controller serves are thrown.
 */
export async function runControllerCommand(
  args: readonly string[],
  { onReady, readAgain }: CommandOptions = {},
): Promise<number> {
  const options = readOptions(args, process.env);
  if (options === "help") {
    process.stdout.write(help);
    return 0;
  }
  const stopRequested = new Promise<void>((resolve) => {
    for (const event of ["SIGTERM", "SIGINT", "disconnect"] as const) {
      process.once(event, () => resolve());
    }
  });
  await using controller = await startController(options);
  const reload = (): void => {
    try {
      const { level } = parseLevel(readAgain?.() ?? args, process.env);
      controller.reload({ logLevel: level });
    } catch (error) {
      options.log?.error({ err: error }, "the options cannot be read and stay unchanged");
    }
  };
  process.on("SIGHUP", reload);
  process.send?.({ type: "ready", url: controller.url });
  onReady?.();
  await stopRequested;
  process.off("SIGHUP", reload);
  return 0;
}

function readOptions(args: readonly string[], env: NodeJS.ProcessEnv): ControllerOptions | "help" {
  const { values } = parse(args);
  if (values.help) {
    return "help";
  }
  const { level } = parseLevel(args, env);
  const ca = values.ca ?? env["MILLPOND_CA"] ?? "";
  return {
    stateDirectory: values.state ?? env["MILLPOND_STATE"] ?? controllerStateDirectory(env),
    storeUrl: values.store ?? env["MILLPOND_STORE"],
    keyFile: values["key-file"] ?? env["MILLPOND_KEY_FILE"],
    advertise: values.advertise ?? env["MILLPOND_ADVERTISE"],
    ca: ca === "" ? undefined : readAuthorities(ca),
    listen: values.listen ?? env["MILLPOND_LISTEN"] ?? defaultListen,
    tlsCertificate: values["tls-cert"] ?? env["MILLPOND_TLS_CERT"],
    tlsKey: values["tls-key"] ?? env["MILLPOND_TLS_KEY"],
    tlsNames: splitList(values["tls-names"] ?? env["MILLPOND_TLS_NAMES"]),
    auditLog: values["audit-log"] ?? env["MILLPOND_AUDIT_LOG"],
    takesSharedAgentTokens: !(
      values["own-agent-tokens-only"] ?? env["MILLPOND_OWN_AGENT_TOKENS_ONLY"] === "1"
    ),
    isAuditLogRequired: values["audit-log-required"] ?? env["MILLPOND_AUDIT_LOG_REQUIRED"] === "1",
    changesPerSecond: parseCount(
      values["changes-per-second"] ?? env["MILLPOND_CHANGES_PER_SECOND"],
      defaultChangesPerSecond,
    ),
    tracing: readTracing(env),
    webhooks: values.webhooks ?? env["MILLPOND_WEBHOOKS"],
    oidc: values.oidc ?? env["MILLPOND_OIDC"],
    userTokens: splitList(env["MILLPOND_USER_TOKENS"]),
    agentTokens: splitList(env["MILLPOND_AGENT_TOKENS"]),
    log: makeLog(level),
  };
}

function readTracing(env: NodeJS.ProcessEnv): OtlpTarget | undefined {
  try {
    return otlpTarget(env);
  } catch {
    throw millpondError(
      "MILLPOND_E_INVALID",
      "OTEL_EXPORTER_OTLP_ENDPOINT or OTEL_EXPORTER_OTLP_TRACES_ENDPOINT is not a URL",
      { remedy: "Set it to one such as http://collector:4318." },
    );
  }
}

function parseLevel(args: readonly string[], env: NodeJS.ProcessEnv): { readonly level: LogLevel } {
  const asked = parse(args).values["log-level"] ?? env["MILLPOND_LOG_LEVEL"] ?? "info";
  const level = logLevels.find((each) => each === asked);
  if (level === undefined) {
    throw invalid(`the log level ${quote(asked)} is not one of ${logLevels.join(", ")}`);
  }
  return { level };
}

function parse(args: readonly string[]) {
  try {
    return parseArgs({
      args: [...args],
      options: {
        listen: { type: "string" },
        state: { type: "string" },
        store: { type: "string" },
        advertise: { type: "string" },
        "key-file": { type: "string" },
        ca: { type: "string" },
        "log-level": { type: "string" },
        "tls-cert": { type: "string" },
        "tls-key": { type: "string" },
        "tls-names": { type: "string" },
        "audit-log": { type: "string" },
        "audit-log-required": { type: "boolean" },
        "own-agent-tokens-only": { type: "boolean" },
        "changes-per-second": { type: "string" },
        webhooks: { type: "string" },
        oidc: { type: "string" },
        help: { type: "boolean", short: "h", default: false },
      },
    });
  } catch (cause) {
    throw invalid(cause instanceof Error ? cause.message : String(cause), cause);
  }
}

function parseCount(text: string | undefined, otherwise: number): number {
  return text === undefined || text === "" ? otherwise : Number(text);
}

function splitList(text = ""): string[] {
  return text.split(",").filter((part) => part !== "");
}

function invalid(what: string, cause?: unknown) {
  return millpondError("MILLPOND_E_INVALID", what.replace(/\.$/, ""), {
    remedy: "See `millpond controller --help`.",
    cause,
  });
}
