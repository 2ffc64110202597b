// SPDX-License-Identifier: Apache-2.0

import { readFileSync } from "node:fs";
import { parseArgs } from "node:util";
import { millpondError, parseLabels, parseSize, quote } from "@millpond/api";
import { readAuthorities } from "@millpond/platform";
import { type Agent, startAgent } from "./agent.ts";
import type { AgentOptions } from "./options.ts";
import type { Drain } from "./workers/worker-pool.ts";

const usage = `Usage: millpond agent --name NODE --controller URL --token-file FILE --driver LIB[,LIB]
                      --worker PROGRAM --run DIR [--listen 0.0.0.0:7171] [--advertise HOST] [--encrypt] [--warm 1]
                      [--drain none|idle|all] [--reconnect-grace 300] [--labels KEY=VALUE,...] [--ca FILE]
                      [--worker-ports FROM-TO] [--worker-users FROM-TO] [--worker-user USER|none] [--claim-host-memory SIZE]
                      [--session-overhead SIZE] [--no-containment] [--trust-pageable-access]

Runs the agent of one node until SIGTERM or SIGINT. --drain says which workers end with it: none (default) leaves
sessions and idle workers to the next agent on the same --run directory. --reconnect-grace is the longest time, in
seconds, that a session waits for a program whose TCP connection was lost; 0 ends a session with its connection.
--labels are labels of the node, by which claims can choose it (MILLPOND_AGENT_LABELS). --ca is the certificate, PEM, of
the authority that signed the controller's certificate (MILLPOND_CA). Traffic of programs with this agent and its workers
is encrypted beyond loopback, and with --encrypt on loopback too. --advertise is the name or address by which programs
reach this node, where it differs from --listen's. --worker-ports are the TCP ports of its workers, one for each warm worker
and each session (default: any free ports).

Workers run with the fewest rights that suffice. --worker-users are the user ids that they get from an agent that runs as
root, one for each claim (default: 1900000000-1900065535); agents of one host need ranges of their own. --worker-user is one
user for all workers instead. --claim-host-memory is the most host memory that the workers of one claim may have together
(default: three quarters of the host's), where the agent can make control groups. --session-overhead is the memory of a GPU
that its driver takes for a session beside what the claim has, and that the scheduler reserves for each claim (default: 4 MiB
for each multiprocessor; 0 on software GPUs). --no-containment leaves workers the agent's rights, for debugging on a host
without tenants. --trust-pageable-access serves GPUs whose kernels can address the memory of their worker (HMM, ATS).
`;

/** The agent's command line, read and checked for form. Values are checked by `startAgent`. */
export function parseAgentCommand(
  args: readonly string[],
): "help" | { readonly options: AgentOptions; readonly drain: Drain } {
  const { values } = parse(args);
  if (values.help) return "help";
  const required = (name: "name" | "controller" | "token-file" | "driver" | "worker" | "run"): string => {
    const value = values[name];
    if (value === undefined || value === "") throw invalid(`--${name} is missing`);
    return value;
  };
  const { ca = process.env["MILLPOND_CA"] ?? "" } = values;
  const { warm, drain, labels = process.env["MILLPOND_AGENT_LABELS"] ?? "" } = values;
  if (warm !== undefined && !/^\d{1,2}$/.test(warm)) throw invalid(`--warm ${quote(warm)} is not a number`);
  const grace = values["reconnect-grace"];
  if (grace !== undefined && !/^\d{1,5}$/.test(grace)) {
    throw invalid(`--reconnect-grace ${quote(grace)} is not a number of seconds`);
  }
  const hostMemory = values["claim-host-memory"];
  const overhead = values["session-overhead"];
  if (drain !== "none" && drain !== "idle" && drain !== "all") {
    throw invalid(`--drain ${quote(drain)} is not one of none, idle, all`);
  }
  const name = required("name");
  const controller = required("controller");
  const tokenFile = required("token-file");
  const metricsTokenFile = values["metrics-token-file"];
  const drivers = required("driver").split(",");
  return {
    options: {
      name,
      controller,
      ca: ca === "" ? undefined : readAuthorities(ca),
      token: readToken(tokenFile),
      metricsToken: metricsTokenFile === undefined ? undefined : readToken(metricsTokenFile),
      drivers,
      worker: required("worker"),
      run: required("run"),
      listen: values.listen,
      workerPorts: values["worker-ports"],
      advertise: values.advertise,
      encrypt: values.encrypt,
      labels: labels === "" ? {} : parseLabels(labels),
      warm: warm === undefined ? undefined : Number(warm),
      reconnectGraceSeconds: grace === undefined ? undefined : Number(grace),
      workerUser: values["worker-user"],
      workerUsers: values["worker-users"],
      claimHostBytes: hostMemory === undefined ? undefined : Number(parseSize(hostMemory)),
      sessionOverheadBytes: overhead === undefined ? undefined : parseOverhead(overhead),
      noContainment: values["no-containment"],
      trustPageableAccess: values["trust-pageable-access"],
    },
    drain,
  };
}

export interface CommandOptions {
  readonly onReady?: () => void;
  /** Reads the command line again for a reload: the configuration file may have changed. */
  readonly readAgain?: () => Promise<readonly string[]>;
}

/**
 * Runs an agent until SIGTERM or SIGINT or, when another process started it with an IPC channel, until that process ends.
 * Over such a channel it sends `{"type": "ready", "url": …}`. SIGHUP reloads its labels. Resolves with the exit status;
 * rejects with errors that occur before the agent serves.
 */
export async function runAgentCommand(
  args: readonly string[],
  { onReady, readAgain }: CommandOptions = {},
): Promise<number> {
  const command = parseAgentCommand(args);
  if (command === "help") {
    process.stdout.write(usage);
    return 0;
  }
  const stopRequested = new Promise<void>((resolve) => {
    for (const signal of ["SIGTERM", "SIGINT"] as const) process.once(signal, () => resolve());
    process.once("disconnect", () => resolve());
  });
  const agent = await startAgent(command.options);
  const reload = (): void => {
    void reloadAgent(agent, async () => (await readAgain?.()) ?? args);
  };
  process.on("SIGHUP", reload);
  process.send?.({ type: "ready", url: agent.url });
  onReady?.();
  await stopRequested;
  process.off("SIGHUP", reload);
  await agent.stop({ drain: command.drain });
  if (process.connected) process.disconnect?.();
  return 0;
}

async function reloadAgent(agent: Agent, readAgain: () => Promise<readonly string[]>): Promise<void> {
  try {
    const command = parseAgentCommand(await readAgain());
    if (command !== "help") agent.reload({ labels: command.options.labels ?? {} });
  } catch (error) {
    agent.log.error({ err: error }, "the options cannot be read and stay unchanged");
  }
}

function parse(args: readonly string[]) {
  try {
    return parseArgs({
      args: [...args],
      options: {
        help: { type: "boolean", short: "h", default: false },
        name: { type: "string" },
        controller: { type: "string" },
        "token-file": { type: "string" },
        "metrics-token-file": { type: "string" },
        driver: { type: "string" },
        worker: { type: "string" },
        run: { type: "string" },
        listen: { type: "string" },
        advertise: { type: "string" },
        encrypt: { type: "boolean" },
        warm: { type: "string" },
        "reconnect-grace": { type: "string" },
        "worker-ports": { type: "string" },
        "worker-user": { type: "string" },
        "worker-users": { type: "string" },
        "claim-host-memory": { type: "string" },
        "session-overhead": { type: "string" },
        "no-containment": { type: "boolean" },
        "trust-pageable-access": { type: "boolean" },
        drain: { type: "string", default: "none" },
        labels: { type: "string" },
        ca: { type: "string" },
      },
    });
  } catch (cause) {
    throw invalid(cause instanceof Error ? cause.message : String(cause), cause);
  }
}

/** A claim cannot have the size 0. */
function parseOverhead(text: string): number {
  return text === "0" ? 0 : Number(parseSize(text));
}

function readToken(path: string): string {
  try {
    return readFileSync(path, "utf8").trim();
  } catch (cause) {
    throw millpondError("MILLPOND_E_INVALID", `the token file ${quote(path)} cannot be read`, { cause });
  }
}

function invalid(what: string, cause?: unknown) {
  return millpondError("MILLPOND_E_INVALID", what.replace(/\.$/, ""), {
    remedy: "See `millpond agent --help`.",
    cause,
  });
}
