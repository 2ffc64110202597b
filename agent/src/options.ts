// SPDX-License-Identifier: Apache-2.0

import { isIP } from "node:net";
import { totalmem } from "node:os";
import { resolve } from "node:path";
import { checkLabels, isNodeName, millpondError, quote } from "@millpond/api";
import {
  isLoopbackAddress,
  isLoopbackHost,
  isLoopbackUrl,
  logDestinationOptions,
  logLineOptions,
  toleratingWriteErrors,
  reachableHost,
  splitAddresses,
} from "@millpond/platform";
import { type Logger, pino } from "pino";
import { z } from "zod";
import { parseWorkerPorts, type PortRange } from "./workers/worker-ports.ts";

/** How to run an agent, as its caller states it. */
export interface AgentOptions {
  /** Name of the node, a DNS label, unique in the pool. */
  readonly name: string;
  /** Base URL of the controller; several that share a state, separated by commas. */
  readonly controller: string;
  /** The authority that signed the controller's certificate, PEM. Default: the machine's authorities. */
  readonly ca?: string | undefined;
  /** The pool's agent token. */
  readonly token: string;
  /** A further token, with which metrics are read and nothing else. Default: none. */
  readonly metricsToken?: string | undefined;
  /** Driver libraries whose devices this node offers, in the order of the node's ordinals. */
  readonly drivers: readonly string[];
  /** The worker program. */
  readonly worker: string;
  /** Directory for the files of the workers; created where needed. */
  readonly run: string;
  /**
   * Address and port to serve on; the workers' TCP ports are on the same address; port 0 picks a free one. Beyond
   * loopback all traffic is encrypted. Default `0.0.0.0:7171`, and `127.0.0.1:0` if the controller is on loopback.
   */
  readonly listen?: string | undefined;
  /**
   * TCP ports of the workers, as FROM-TO: one for each warm worker and for each session that the node may have at a
   * time. Default: any free ports.
   */
  readonly workerPorts?: string | undefined;
  /** Name or address by which programs reach this node. Default: the address it listens on. */
  readonly advertise?: string | undefined;
  /** Whether to encrypt on loopback, too. Default false. */
  readonly encrypt?: boolean | undefined;
  /** Labels of the node, by which claims can choose it; labels that operators set take precedence. Default none. */
  readonly labels?: Readonly<Record<string, string>> | undefined;
  /** Idle workers to keep for each device, 0 to 16. Default 1. */
  readonly warm?: number | undefined;
  /** Seconds after which a worker without a session and without an agent ends by itself. Default 30. */
  readonly orphanSeconds?: number | undefined;
  /**
   * Seconds that a session waits for its client. A client connects immediately; the session of a client that died before
   * must not hold its devices until the ticket expires. Default 15.
   */
  readonly connectWithinSeconds?: number | undefined;
  /**
   * Longest time, in seconds, that a session waits for a program whose TCP connection was lost, 0 to 86400; programs ask
   * for 60 by default. 0 ends a session with its connection. Default 300.
   */
  readonly reconnectGraceSeconds?: number | undefined;
  /** How long a worker may take to obey `close`, and then SIGTERM. Default 5000. */
  readonly closeTimeoutMs?: number | undefined;
  /** How long a worker may take to become warm: drivers of machines with many devices are slow. Default 60000. */
  readonly startTimeoutMs?: number | undefined;
  /** Silence of a driver after which its devices count as unhealthy. Default 60000. */
  readonly driverSilenceMs?: number | undefined;
  /** First wait before a worker that died idle is replaced; doubles up to `restartCeilingMs`. Default 500. */
  readonly restartFirstMs?: number | undefined;
  /** Default 60000. */
  readonly restartCeilingMs?: number | undefined;
  /** A single user for all workers, an id or a name; `none`: the agent's own user. Default: `workerUsers`. */
  readonly workerUser?: string | undefined;
  /**
   * User ids of workers, as FROM-TO. An agent that is root gives each claim one of them on this node. Default, if other
   * users can enter the run directory: 1900000000-1900065535.
   */
  readonly workerUsers?: string | undefined;
  /** Most host memory, in bytes, that the workers of a claim may have together. Default: three quarters of the host's. */
  readonly claimHostBytes?: number | undefined;
  /**
   * Memory of each device, in bytes, that the driver takes for a session of a claim in addition to the claim's own
   * memory: the scheduler reserves it for each claim. Default: 4 MiB for each multiprocessor, and none on a software
   * GPU.
   */
  readonly sessionOverheadBytes?: number | undefined;
  /** Let workers keep all rights, for debugging on a host without tenants. Default false. */
  readonly noContainment?: boolean | undefined;
  /** Serve devices whose kernels can address the pageable memory of their worker. Default false. */
  readonly trustPageableAccess?: boolean | undefined;
  /** Default: JSON lines on standard error. */
  readonly log?: Logger | undefined;
}

/** The options, checked and with defaults filled in. */
export interface ResolvedAgentOptions {
  readonly name: string;
  readonly ca: string | undefined;
  readonly controllers: readonly string[];
  readonly token: string;
  readonly metricsToken?: string | undefined;
  readonly drivers: readonly string[];
  readonly worker: string;
  readonly run: string;
  readonly listenHost: string;
  readonly listenPort: number;
  /** Undefined: any free ports. */
  readonly workerPorts: PortRange | undefined;
  /** Name or address by which programs reach this node. */
  readonly advertisedHost: string;
  readonly isEncrypted: boolean;
  readonly labels: Readonly<Record<string, string>>;
  readonly warm: number;
  readonly orphanSeconds: number;
  readonly connectWithinSeconds: number;
  readonly reconnectGraceSeconds: number;
  readonly closeTimeoutMs: number;
  readonly startTimeoutMs: number;
  readonly assignTimeoutMs: number;
  readonly driverSilenceMs: number;
  readonly restartFirstMs: number;
  readonly restartCeilingMs: number;
  readonly workerUser?: string | undefined;
  readonly workerUsers?: string | undefined;
  readonly claimHostBytes: number;
  readonly sessionOverheadBytes?: number | undefined;
  readonly noContainment: boolean;
  readonly trustPageableAccess: boolean;
  readonly log: Logger;
}

const leastClaimHostBytes = 2 ** 30;
const mostOverheadBytes = 2 ** 34;
const milliseconds = z.int().min(1).max(3_600_000);

const schema = z.object({
  name: z
    .string()
    .refine(isNodeName, "must be a host name of 1 to 63 lower-case letters, digits, hyphens and dots"),
  controllers: z
    .array(z.url({ protocol: /^https?$/, error: "must be a URL such as http://127.0.0.1:7170" }))
    .min(1, "must be a URL such as http://127.0.0.1:7170"),
  ca: z.string().optional(),
  token: z.string().regex(/^[\x21-\x7e]+$/, "must be one word of printable characters"),
  // A short token could be guessed.
  metricsToken: z
    .string()
    .regex(/^[\x21-\x7e]{16,}$/, "must be one word of at least 16 printable characters")
    .optional(),
  drivers: z.array(z.string().min(1)).min(1, "at least one driver library is needed"),
  worker: z.string().min(1),
  run: z.string().min(1),
  listen: z.string().optional(),
  workerPorts: z.string().optional(),
  advertise: z.string().optional(),
  encrypt: z.boolean().default(false),
  warm: z.int().min(0).max(16).default(1),
  orphanSeconds: z.int().min(1).max(86_400).default(30),
  connectWithinSeconds: z.int().min(1).max(60).default(15),
  reconnectGraceSeconds: z.int().min(0).max(86_400).default(300),
  closeTimeoutMs: milliseconds.default(5000),
  startTimeoutMs: milliseconds.default(60_000),
  driverSilenceMs: milliseconds.default(60_000),
  restartFirstMs: milliseconds.default(500),
  restartCeilingMs: milliseconds.default(60_000),
  workerUser: z.string().min(1).optional(),
  workerUsers: z.string().min(1).optional(),
  claimHostBytes: z
    .int()
    .min(leastClaimHostBytes, "must be 1 GiB or more: a worker itself needs some hundred MiB")
    .default(() => Math.max(Math.floor((totalmem() * 3) / 4), leastClaimHostBytes)),
  sessionOverheadBytes: z.int().nonnegative().max(mostOverheadBytes, "must be 16 GiB or less").optional(),
  noContainment: z.boolean().default(false),
  trustPageableAccess: z.boolean().default(false),
});

/** @throws MILLPOND_E_INVALID */
export function resolveAgentOptions(options: AgentOptions): ResolvedAgentOptions {
  const { log, labels = {}, controller, ...plain } = options;
  const parsed = schema.safeParse({ ...plain, controllers: splitAddresses(controller) });
  if (!parsed.success) {
    const issue = parsed.error.issues[0];
    throw millpondError(
      "MILLPOND_E_INVALID",
      `the agent's option ${issue?.path.join(".")}: ${issue?.message}`,
    );
  }
  const { advertise, encrypt, drivers, worker, run, workerPorts, ...rest } = parsed.data;
  const remote = rest.controllers.find((each) => !isLoopbackUrl(new URL(each)));
  const listen = parsed.data.listen ?? (remote === undefined ? "127.0.0.1:0" : "0.0.0.0:7171");
  const { host, port } = parseAddress(listen);
  const advertisedHost = advertise === undefined ? reachableHost(host) : checkHost(advertise);
  if (remote !== undefined && isLoopbackHost(advertisedHost)) {
    throw millpondError(
      "MILLPOND_E_INVALID",
      `the agent would be reached at ${advertisedHost}, by programs of this machine only, and its controller ${remote} is on another machine`,
      {
        remedy:
          "Omit --listen and --advertise, or give addresses of this machine that others reach: --listen 0.0.0.0:7171.",
      },
    );
  }
  return {
    ...rest,
    ca: rest.ca,
    labels: checkLabels(labels),
    drivers: drivers.map((driver) => resolve(driver)),
    worker: resolve(worker),
    run: resolve(run),
    listenHost: host,
    listenPort: port,
    workerPorts: workerPorts === undefined ? undefined : parseWorkerPorts(workerPorts, port),
    advertisedHost,
    isEncrypted: encrypt || !isLoopbackAddress(host),
    assignTimeoutMs: 10_000,
    log: log ?? pino(logLineOptions("agent"), toleratingWriteErrors(pino.destination(logDestinationOptions))),
  };
}

/**
 * Reads `address:port`, `[v6]:port` or `address`.
 *
 * @throws MILLPOND_E_INVALID
 */
function parseAddress(text: string): { readonly host: string; readonly port: number } {
  const match = /^(?:\[([0-9a-f:.]+)\]|([^:[\]]+))(?::(\d{1,5}))?$/i.exec(text);
  const host = match?.[1] ?? match?.[2];
  const port = Number(match?.[3] ?? 0);
  const address = host === "localhost" ? "127.0.0.1" : (host ?? "");
  if (isIP(address) === 0 || port > 65535) {
    throw millpondError("MILLPOND_E_INVALID", `${quote(text)} is not an address such as 127.0.0.1:0`);
  }
  return { host: address, port };
}

function checkHost(text: string): string {
  if (isIP(text) === 0 && !/^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$/i.test(text)) {
    throw millpondError(
      "MILLPOND_E_INVALID",
      `${quote(text)} is neither a host name nor an address to advertise`,
    );
  }
  return text;
}
