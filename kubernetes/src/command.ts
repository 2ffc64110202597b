// SPDX-License-Identifier: Apache-2.0

import { randomUUID } from "node:crypto";
import { readFileSync } from "node:fs";
import { hostname } from "node:os";
import { parseArgs } from "node:util";
import { millpondError, quote } from "@millpond/api";
import { connect } from "@millpond/cli";
import {
  logDestinationOptions,
  logLineOptions,
  toleratingWriteErrors,
  readAuthorities,
} from "@millpond/platform";
import { type Logger, pino } from "pino";
import type { Allocation } from "./allocation.ts";
import { connectCluster } from "./cluster/cluster.ts";
import { installClientLibrary, withSockets } from "./node/client-library.ts";
import { NodePlugin } from "./node/node-plugin.ts";
import { isUninstalled, removeTraces } from "./node/uninstall.ts";
import { keepRunning } from "./agent/keep.ts";
import { agentVariables, publishRelease } from "./agent/publish.ts";
import { ReleaseDirectory } from "./agent/release-directory.ts";
import { Operator } from "./operator/operator.ts";
import { makeResourceNames } from "./request/resource-names.ts";
import { setUp } from "./setup.ts";

const usage = `Usage: millpond-kubernetes operator [--namespace NAMESPACE] [--service-account NAME] [--domain millpond.dev]
                      [--resource-names KIND=NAME,...] [--allocation auto|dra|device-plugin] [--listen 0.0.0.0:8443]
                      [--programs-controller URL]
                      [--webhook-url URL] [--lease-seconds 15] [--identity NAME]
       millpond-kubernetes node [--namespace NAMESPACE] [--domain millpond.dev] [--resource-names KIND=NAME,...]
                      [--allocation auto|dra|device-plugin] [--library /usr/lib/millpond] [--kubelet /var/lib/kubelet]
                      [--cdi /var/run/cdi] [--install /var/lib/millpond/client] [--host-install PATH] [--slots 256]
                      [--sockets /run/millpond/sockets]
       millpond-kubernetes setup [--namespace NAMESPACE] [--database]
       millpond-kubernetes keep [--releases /var/lib/millpond/agent]
       millpond-kubernetes release [--namespace NAMESPACE] [--releases /var/lib/millpond/agent] [--image /opt/millpond]
                      [--listen 0.0.0.0:8080] -- PROGRAM [ARGUMENT...]

keep: runs the agent of the release that is published in --releases, again when it is killed, and that of the next release
when one is published: the agent's workers, which are in the same container, and their sessions continue meanwhile.

release: publishes the files of --image, and how their agent is started, in --releases. /readyz of --listen is 200 while that
agent runs. When it ends because its DaemonSet is deleted, it removes all releases.

setup: makes the Secret millpond-pool of a pool that runs in the cluster, with its tokens and the controller's certificate,
if there is none. With --database it is for controllers that share a database: it also has their pool key, and the certificate
has their own names.

node: gives the pods of a node the client library of --library, which it copies to --install; --host-install is that path on
the host, if it differs. Programs whose GPU is on the same node reach it through --sockets, which is in the
run directory of the node's agent; if empty, over TCP, like all others. It does not connect to the pool. When it ends because its
DaemonSet is deleted, it takes its files away from the host.

operator: answers the webhooks of a cluster and keeps its pods and their claims in agreement. Several may run; one is the leader.

API servers reach it by the Service millpond of its namespace, or where --webhook-url says. When the leader is
killed, another replica becomes the leader within --lease-seconds; one of the same --identity, such as the UID of its pod, immediately.

The pool is MILLPOND_CONTROLLER, with MILLPOND_TOKEN of an administrator (or MILLPOND_TOKEN_FILE) and MILLPOND_CA.
--programs-controller is the URL at which programs in pods reach it, if that differs. --resource-names are further names of
the resources vgpu, compute, memory and memory-percent: vgpu=pool.example.org/gpu. --allocation says how pods get their
vGPUs: by ResourceClaims (dra, Kubernetes 1.34 or later with consumable capacity) or by a device plugin; auto takes the
first where the cluster's version has it.
`;

/** Name of the node plugin's DaemonSet. */
const nodeObjects = "millpond-node";
/** Name of the DaemonSet of agents. */
const agentObjects = "millpond-agent";

/**
 * Runs a part of Millpond in a Kubernetes cluster until SIGTERM or SIGINT. Resolves with the exit status.
 *
 * @throws MILLPOND_E_INVALID, MILLPOND_E_NOT_CONFIGURED, and errors that keep it from starting
 */
export async function runKubernetesCommand(
  args: readonly string[],
  environment: NodeJS.ProcessEnv,
): Promise<number> {
  const [part = "", ...rest] = args;
  if (part === "operator") return await runOperator(rest, environment);
  if (part === "setup") return await runSetup(rest, environment);
  if (part === "node") return await runNode(rest, environment);
  if (part === "keep") return await runKept(rest, environment);
  if (part === "release") return await runRelease(rest, environment);
  if (part === "--help" || part === "-h") {
    process.stdout.write(usage);
    return 0;
  }
  throw millpondError("MILLPOND_E_INVALID", `${quote(part)} is not a command`, {
    remedy: "The commands are operator, node, setup, keep and release.",
  });
}

async function runOperator(args: readonly string[], environment: NodeJS.ProcessEnv): Promise<number> {
  const { values } = parse(args);
  if (values.help) {
    process.stdout.write(usage);
    return 0;
  }
  const { namespace } = values;
  const allocation = parseAllocation(values.allocation);
  const account = values["service-account"];
  const log = makeLog(environment);
  const endpoint = endpointOf(environment);
  const { host, port } = parseListen(values.listen ?? "0.0.0.0:8443");
  const objects = "millpond";
  const url = values["webhook-url"];
  const lease = values["lease-seconds"];
  if (!/^[1-9]\d{0,2}$/.test(lease) || Number(lease) < 3) {
    throw millpondError(
      "MILLPOND_E_INVALID",
      `--lease-seconds ${quote(lease)} is not a whole number from 3 to 999`,
    );
  }
  if (url !== undefined && (!URL.canParse(url) || new URL(url).protocol !== "https:")) {
    throw millpondError(
      "MILLPOND_E_INVALID",
      `--webhook-url ${quote(url)} is not a URL such as https://10.0.0.7:8443`,
    );
  }
  const operator = await Operator.start({
    cluster: connectCluster(),
    pool: connect({ ...endpoint, source: "MILLPOND_CONTROLLER", reason: "asked for by a pod" }),
    names: makeResourceNames(values.domain, values["resource-names"]),
    namespace,
    identity: values.identity ?? `${hostname()}_${randomUUID()}`,
    user: `system:serviceaccount:${namespace}:${account}`,
    allocation,
    programs: { controller: values["programs-controller"] ?? endpoint.controller, ca: endpoint.ca ?? "" },
    webhook: {
      target:
        url === undefined
          ? { service: { namespace, name: objects, port: 443 } }
          : { url: url.replace(/\/$/, "") },
      host,
      port,
      objects,
      serviceNames: [
        `${objects}.${namespace}.svc`,
        `${objects}.${namespace}.svc.cluster.local`,
        ...(url === undefined ? [] : [new URL(url).hostname.replace(/^\[|\]$/g, "")]),
      ],
    },
    log,
    leaseSeconds: Number(lease),
  });
  log.info({ allocation: operator.allocation, port: operator.webhookPort }, "serving the webhooks");
  await stopRequested();
  log.info("stops");
  await operator[Symbol.asyncDispose]();
  return 0;
}

async function runSetup(args: readonly string[], environment: NodeJS.ProcessEnv): Promise<number> {
  const { values } = parse(args);
  if (values.help) {
    process.stdout.write(usage);
    return 0;
  }
  const { namespace } = values;
  const isNew = await setUp({
    cluster: connectCluster(),
    namespace,
    name: "millpond-pool",
    controllerHost: `millpond-controller.${namespace}.svc`,
    hasDatabase: values.database,
  });
  makeLog(environment).info({ isNew }, "the pool has its Secret");
  return 0;
}

async function runKept(args: readonly string[], environment: NodeJS.ProcessEnv): Promise<number> {
  const { values } = parse(args);
  if (values.help) {
    process.stdout.write(usage);
    return 0;
  }
  const stop = new AbortController();
  void stopRequested().then(() => stop.abort());
  const releases = new ReleaseDirectory(values.releases);
  return await keepRunning({ releases, signal: stop.signal, log: makeLog(environment) });
}

async function runRelease(args: readonly string[], environment: NodeJS.ProcessEnv): Promise<number> {
  const end = args.includes("--") ? args.indexOf("--") : args.length;
  const { values } = parse(args.slice(0, end));
  if (values.help) {
    process.stdout.write(usage);
    return 0;
  }
  const command = args.slice(end + 1);
  if (command.length === 0) {
    throw millpondError("MILLPOND_E_INVALID", "release was given no program", {
      remedy: "Write it after two dashes: release -- PROGRAM [ARGUMENT...].",
    });
  }
  const log = makeLog(environment);
  const cluster = connectCluster();
  const releases = new ReleaseDirectory(values.releases);
  const publisher = await publishRelease({
    releases,
    source: values.image,
    start: { command, environment: agentVariables(environment) },
    listen: parseListen(values.listen ?? "0.0.0.0:8080"),
    log,
  });
  await stopRequested();
  await publisher[Symbol.asyncDispose]();
  const isOver = await isUninstalled(cluster, values.namespace, agentObjects);
  if (isOver) releases.remove();
  log.info({ isOver }, "stops");
  return 0;
}

async function runNode(args: readonly string[], environment: NodeJS.ProcessEnv): Promise<number> {
  const { values } = parse(args);
  if (values.help) {
    process.stdout.write(usage);
    return 0;
  }
  const log = makeLog(environment);
  const cluster = connectCluster();
  const names = makeResourceNames(values.domain, values["resource-names"]);
  const { install, kubelet: kubeletDirectory, slots } = values;
  if (!/^[1-9]\d{0,3}$/.test(slots)) {
    throw millpondError("MILLPOND_E_INVALID", `--slots ${quote(slots)} is not a whole number from 1 to 9999`);
  }
  const installed = installClientLibrary(values.library, install, values["host-install"] ?? install);
  const library = values.sockets === "" ? installed : withSockets(installed, values.sockets);
  const allocation = parseAllocation(values.allocation);
  const plugin = await NodePlugin.start({
    allocation,
    cluster,
    names,
    library,
    kubeletDirectory,
    cdiDirectory: values.cdi,
    slots: Number(slots),
    log,
  });
  log.info({ allocation, library: library.version }, "serving the client library to pods");
  await stopRequested();
  await plugin[Symbol.asyncDispose]();
  const isOver = await isUninstalled(cluster, values.namespace, nodeObjects);
  if (isOver) removeTraces({ domain: names.domain, installDirectory: install, cdiDirectory: values.cdi });
  log.info({ isOver }, "stops");
  return 0;
}

/** @throws MILLPOND_E_INVALID */
function parseAllocation(text: string): Allocation | "auto" {
  if (text === "auto" || text === "dra" || text === "device-plugin") return text;
  throw millpondError(
    "MILLPOND_E_INVALID",
    `--allocation ${quote(text)} is not one of auto, dra, device-plugin`,
  );
}

function parse(args: readonly string[]) {
  try {
    return parseArgs({
      args: [...args],
      options: {
        namespace: { type: "string", default: "millpond-system" },
        "service-account": { type: "string", default: "millpond-operator" },
        domain: { type: "string", default: "millpond.dev" },
        "resource-names": { type: "string", default: "" },
        allocation: { type: "string", default: "auto" },
        listen: { type: "string" },
        releases: { type: "string", default: "/var/lib/millpond/agent" },
        image: { type: "string", default: "/opt/millpond" },
        "programs-controller": { type: "string" },
        "webhook-url": { type: "string" },
        "lease-seconds": { type: "string", default: "15" },
        identity: { type: "string" },
        library: { type: "string", default: "/usr/lib/millpond" },
        kubelet: { type: "string", default: "/var/lib/kubelet" },
        cdi: { type: "string", default: "/var/run/cdi" },
        install: { type: "string", default: "/var/lib/millpond/client" },
        "host-install": { type: "string" },
        sockets: { type: "string", default: "/run/millpond/sockets" },
        slots: { type: "string", default: "256" },
        database: { type: "boolean", default: false },
        help: { type: "boolean", short: "h", default: false },
      },
    });
  } catch (error) {
    throw millpondError(
      "MILLPOND_E_INVALID",
      error instanceof Error ? (error.message.split(". ")[0] ?? "") : "",
      {
        remedy: "`millpond-kubernetes --help` says what there is.",
      },
    );
  }
}

function endpointOf(environment: NodeJS.ProcessEnv) {
  const controller = environment["MILLPOND_CONTROLLER"] ?? "";
  if (controller === "") {
    throw millpondError("MILLPOND_E_NOT_CONFIGURED", "no controller is configured", {
      remedy: "Set MILLPOND_CONTROLLER to its URL.",
    });
  }
  const file = environment["MILLPOND_TOKEN_FILE"] ?? "";
  const token = file === "" ? (environment["MILLPOND_TOKEN"] ?? "") : readFileSync(file, "utf8").trim();
  const ca = environment["MILLPOND_CA"] ?? "";
  return { controller, token, ca: ca === "" ? undefined : readAuthorities(ca) };
}

function parseListen(text: string): { readonly host: string; readonly port: number } {
  const match = /^(?:\[([0-9a-fA-F:]+)\]|([^:]+)):(\d{1,5})$/.exec(text);
  const port = Number(match?.[3] ?? Number.NaN);
  if (match === null || !(port <= 65_535)) {
    throw millpondError(
      "MILLPOND_E_INVALID",
      `--listen ${quote(text)} is not an address and a port such as 0.0.0.0:8443`,
    );
  }
  return { host: match[1] ?? match[2] ?? "", port };
}

function makeLog(environment: NodeJS.ProcessEnv): Logger {
  const level = environment["MILLPOND_LOG"] ?? "info";
  return pino(
    {
      ...logLineOptions("kubernetes"),
      level: /^(?:trace|debug|info|warn|error)$/.test(level) ? level : "info",
    },
    toleratingWriteErrors(pino.destination(logDestinationOptions)),
  );
}

function stopRequested(): Promise<void> {
  return new Promise((resolve) => {
    for (const signal of ["SIGTERM", "SIGINT"] as const) process.once(signal, () => resolve());
  });
}
