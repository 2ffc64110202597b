// SPDX-License-Identifier: Apache-2.0

// The controller as a process of its own.

import { homedir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { ConnectError } from "@connectrpc/connect";
import { millpondError, quote } from "@millpond/api";
import { startController } from "./controller.ts";
import { logLevels, makeLog } from "./log.ts";
import { type ControllerOptions, defaultListen } from "./options.ts";

const help = `Usage: controller [--listen HOST:PORT] [--state DIR] [--log-level LEVEL]
                  [--store URL [--advertise URL]]
                  [--tls-cert FILE --tls-key FILE | --tls-names NAME,...]

  --listen HOST:PORT   where to listen; beyond loopback with TLS; port 0 takes a free one
                       (MILLPOND_LISTEN, default ${defaultListen})
  --state DIR          where the state and the tokens are kept
                       (MILLPOND_STATE, default ~/.local/state/millpond/controller)
  --store URL          where the state is kept instead: postgres://user@host:5432/database,
                       which several controllers may share (MILLPOND_STORE, where a
                       password is out of sight)
  --advertise URL      where other controllers send who wants this one
                       (MILLPOND_ADVERTISE, default where it listens)
  --log-level LEVEL    trace, debug, info, warn, error or silent
                       (MILLPOND_LOG_LEVEL, default info)
  --tls-cert FILE      certificate to serve with, PEM (MILLPOND_TLS_CERT); default beyond
                       loopback: one of the pool's own authority, tls/ca.crt in the state
                       directory, which clients name in MILLPOND_CA
  --tls-key FILE       its key, PEM (MILLPOND_TLS_KEY)
  --tls-names NAMES    more names and addresses of this machine for the own certificate
                       (MILLPOND_TLS_NAMES)

Further tokens, separated by commas: MILLPOND_USER_TOKENS, MILLPOND_AGENT_TOKENS.
Logs are JSON lines on standard error. SIGINT and SIGTERM end it.
`;

/** @returns undefined when only the help is asked for. */
function readOptions(args: readonly string[], env: NodeJS.ProcessEnv): ControllerOptions | undefined {
  const { values } = parseArguments(args);
  if (values.help === true) {
    return undefined;
  }
  const asked = values["log-level"] ?? env["MILLPOND_LOG_LEVEL"] ?? "info";
  const level = logLevels.find((each) => each === asked);
  if (level === undefined) {
    throw millpondError(
      "MILLPOND_E_INVALID",
      `the log level ${quote(asked)} is not one of ${logLevels.join(", ")}`,
    );
  }
  return {
    stateDirectory:
      values.state ?? env["MILLPOND_STATE"] ?? join(homedir(), ".local/state/millpond/controller"),
    storeUrl: values.store ?? env["MILLPOND_STORE"],
    advertise: values.advertise ?? env["MILLPOND_ADVERTISE"],
    listen: values.listen ?? env["MILLPOND_LISTEN"] ?? defaultListen,
    tlsCertificate: values["tls-cert"] ?? env["MILLPOND_TLS_CERT"],
    tlsKey: values["tls-key"] ?? env["MILLPOND_TLS_KEY"],
    tlsNames: splitList(values["tls-names"] ?? env["MILLPOND_TLS_NAMES"]),
    userTokens: splitList(env["MILLPOND_USER_TOKENS"]),
    agentTokens: splitList(env["MILLPOND_AGENT_TOKENS"]),
    log: makeLog(level),
  };
}

function parseArguments(args: readonly string[]) {
  try {
    return parseArgs({
      args: [...args],
      options: {
        listen: { type: "string" },
        state: { type: "string" },
        store: { type: "string" },
        advertise: { type: "string" },
        "log-level": { type: "string" },
        "tls-cert": { type: "string" },
        "tls-key": { type: "string" },
        "tls-names": { type: "string" },
        help: { type: "boolean", short: "h" },
      },
    });
  } catch (cause) {
    const message = cause instanceof Error ? cause.message.replace(/\.$/, "") : String(cause);
    throw millpondError("MILLPOND_E_INVALID", message, { remedy: "See --help.", cause });
  }
}

function splitList(text = ""): string[] {
  return text.split(",").filter((part) => part !== "");
}

async function untilSignal(): Promise<void> {
  const { promise, resolve } = Promise.withResolvers<void>();
  process.once("SIGINT", () => resolve());
  process.once("SIGTERM", () => resolve());
  await promise;
}

try {
  const options = readOptions(process.argv.slice(2), process.env);
  if (options === undefined) {
    process.stdout.write(help);
  } else {
    const ended = untilSignal();
    await using _controller = await startController(options);
    await ended;
  }
} catch (error) {
  process.stderr.write(`error: ${ConnectError.from(error).rawMessage}\n`);
  process.exitCode = 1;
}
