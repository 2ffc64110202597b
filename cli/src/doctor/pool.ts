// SPDX-License-Identifier: Apache-2.0

import { statSync } from "node:fs";
import { createClient } from "@connectrpc/connect";
import { createConnectTransport } from "@connectrpc/connect-node";
import {
  countOf,
  DeviceHealth,
  errorCodeOf,
  type Node,
  NodeService,
  NodeState,
  type GetVersionResponse,
} from "@millpond/api";
import { agentTransportOptions, parseAgentUrl, splitAddresses } from "@millpond/platform";
import { type Connection, connect, resolveEndpoint } from "../connection/connection.ts";
import type { Endpoint } from "../connection/endpoint.ts";
import { contextFilePath } from "../connection/context.ts";
import { errorParts } from "../command-line/errors.ts";
import { programVersion } from "../command-line/version.ts";
import { failure, type Finding, ok, warning } from "./check.ts";

const patienceMs = 5000;
const roundTrips = 5;
const slowMs = 200;

export function checkContextFile(environment: NodeJS.ProcessEnv): readonly Finding[] {
  const path = contextFilePath(environment);
  const mode = statSync(path, { throwIfNoEntry: false })?.mode;
  if (mode === undefined || (mode & 0o077) === 0) return [];
  return [warning("configuration", `${path} holds tokens, and others can read it`, `chmod 600 ${path}`)];
}

/** Checks the pool as a user sees it. */
export async function checkPool(
  options: Parameters<typeof resolveEndpoint>[0],
  environment: NodeJS.ProcessEnv,
): Promise<readonly Finding[]> {
  let endpoint: Endpoint;
  try {
    endpoint = resolveEndpoint(options, environment);
  } catch (error) {
    const { what, remedy } = errorParts(error);
    return [failure("controller", what, remedy)];
  }
  const connection = connect(endpoint);
  const { finding, nodes } = await checkToken(connection);
  const reached = await checkController(connection);
  if (reached.status === "failure") return [reached];
  const silent = await checkOthers(endpoint);
  if (nodes === undefined) return [reached, ...silent, finding];
  return [reached, ...silent, finding, ...(await checkNodes(nodes))];
}

/**
 * Returns warnings about controllers that do not answer. Ordinary calls hide that, because another controller answers them.
 */
async function checkOthers(endpoint: Endpoint): Promise<readonly Finding[]> {
  const addresses = splitAddresses(endpoint.controller);
  if (addresses.length < 2) return [];
  const findings = addresses.map(async (controller): Promise<Finding[]> => {
    try {
      await connect({ ...endpoint, controller }).pool.getVersion({}, { timeoutMs: patienceMs });
      return [];
    } catch (error) {
      const { what, code } = errorParts(error);
      if (code === "MILLPOND_E_UNAUTHENTICATED") return [];
      const others = `one of ${addresses.length} controllers does not answer; the others serve its calls`;
      return [warning("controller", `${others}: ${what}`, `See the log of ${controller}, and start it.`)];
    }
  });
  return (await Promise.all(findings)).flat();
}

async function checkController({ pool, controller, source }: Connection): Promise<Finding> {
  const times: number[] = [];
  let answer: GetVersionResponse | undefined;
  try {
    for (let trip = 0; trip < roundTrips; trip += 1) {
      const begin = performance.now();
      answer = await pool.getVersion({}, { timeoutMs: patienceMs });
      times.push(performance.now() - begin);
    }
  } catch (error) {
    const { what, remedy, code } = errorParts(error);
    // A refusal for lack of a valid token is an answer: the controller is running.
    if (code === "MILLPOND_E_UNAUTHENTICATED") return ok("controller", `${controller} (${source}) answers`);
    return failure("controller", what, remedy);
  }
  const median = times.toSorted((a, b) => a - b)[Math.floor(roundTrips / 2)] ?? 0;
  const text = `${controller} (${source}) answers in ${median.toFixed(1)} ms`;
  if (answer?.version !== programVersion) {
    return warning(
      "controller",
      `${text}, and has version ${answer?.version}, while this is ${programVersion}`,
      "Install the same version on both sides.",
    );
  }
  return median > slowMs
    ? warning("controller", text, "Claims will be slow: check the network and the controller's load.")
    : ok("controller", text);
}

async function checkToken(
  connection: Connection,
): Promise<{ readonly finding: Finding; readonly nodes: readonly Node[] | undefined }> {
  try {
    const { nodes } = await connection.pool.listNodes({}, { timeoutMs: patienceMs });
    return { finding: ok("token", "the controller accepts it"), nodes };
  } catch (error) {
    const { what, remedy } = errorParts(error);
    return { finding: failure("token", what, remedy), nodes: undefined };
  }
}

async function checkNodes(nodes: readonly Node[]): Promise<readonly Finding[]> {
  if (nodes.length === 0) {
    return [
      failure(
        "nodes",
        "no agent has joined the pool",
        "Have a GPU host join: `millpond token create NODE --role agent` prints the command for it.",
      ),
    ];
  }
  return (await Promise.all(nodes.map(checkOneNode))).flat();
}

async function checkOneNode(node: Node): Promise<readonly Finding[]> {
  const name = `node ${node.name}`;
  if (node.state !== NodeState.READY) {
    return [failure(name, `is not ready: ${node.reason}`, "See its agent's log, and start the agent.")];
  }
  const findings: Finding[] = [];
  const reason = await agentFailure(node.agentUrl);
  if (reason !== undefined) {
    findings.push(
      failure(
        name,
        `its agent at ${parseAgentUrl(node.agentUrl).baseUrl} cannot be reached from here: ${reason}`,
        "Programs of this machine cannot use that node: check the network between the two.",
      ),
    );
  }
  for (const device of node.devices.filter(({ health }) => health !== DeviceHealth.HEALTHY)) {
    findings.push(
      failure(
        name,
        `device ${device.index} (${device.uuid}) is unhealthy: ${device.healthReason}`,
        "See the agent's log; meanwhile no claims are placed on it.",
      ),
    );
  }
  const summary = `ready, ${countOf(node.devices.length, "device")}, ${countOf(node.warmWorkers, "warm worker")}`;
  return findings.length > 0 ? findings : [ok(name, node.cordoned ? `${summary}, cordoned` : summary)];
}

/** Returns why an agent cannot be reached. A refusal for lack of its token is an answer. */
async function agentFailure(url: string): Promise<string | undefined> {
  const client = createClient(NodeService, createConnectTransport(agentTransportOptions(url)));
  try {
    await client.getNodeStatus({}, { timeoutMs: patienceMs });
    return undefined;
  } catch (error) {
    const code = errorCodeOf(error);
    return code === undefined || code === "MILLPOND_E_TLS" ? errorParts(error).what : undefined;
  }
}
