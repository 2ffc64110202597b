// SPDX-License-Identifier: Apache-2.0

/**
 * Acts like the client library in a CUDA program: gets a ticket for the claim in its environment, opens a session and
 * attaches to its worker. Prints `attached` and the device's UUID, and stays until its standard input ends.
 */

import { once } from "node:events";
import { readFileSync } from "node:fs";
import { createConnection } from "node:net";
import { createClient } from "@connectrpc/connect";
import { createConnectTransport } from "@connectrpc/connect-node";
import { NodeService } from "@millpond/api";
import { agentTransportOptions, readAuthorities } from "@millpond/platform";
import { connect } from "../src/connection/connection.ts";

const { MILLPOND_CONTROLLER, MILLPOND_TOKEN, MILLPOND_CA, MILLPOND_CLAIM, MILLPOND_TRANSPORT } = process.env;
const { claims } = connect({
  controller: MILLPOND_CONTROLLER ?? "",
  token: MILLPOND_TOKEN ?? "",
  ca: MILLPOND_CA === undefined ? undefined : readAuthorities(MILLPOND_CA),
  source: "the environment",
});
const clientHost = readFileSync("/proc/sys/kernel/random/boot_id", "utf8").trim();
const { ticket, agentUrl } = await claims.createTicket({
  claim: MILLPOND_CLAIM ?? "",
  clientHost,
  clientPid: process.pid,
  program: "fake-client",
});
const agent = createClient(NodeService, createConnectTransport(agentTransportOptions(agentUrl)));
const opened = await agent.openSession({ ticket, transport: MILLPOND_TRANSPORT ?? "auto" });
const worker =
  opened.unixPath === ""
    ? createConnection({ host: opened.tcpHost, port: opened.tcpPort })
    : createConnection({ path: opened.unixPath });
worker.write(`${JSON.stringify({ ticket, clientPid: process.pid, program: "fake-client" })}\n`);
const [answer] = (await once(worker, "data")) as [Buffer];
if (answer.toString() !== "ok\n") throw new Error(`the worker said ${answer.toString()}`);
process.stdout.write(`attached over ${opened.unixPath === "" ? "tcp" : "shm"}\n`);
process.stdin.resume();
const lost = once(worker, "close").then(() => "lost");
const isLost = (await Promise.race([once(process.stdin, "end"), lost])) === "lost";
worker.destroy();
if (isLost) {
  process.stderr.write("the vGPU is lost\n");
  process.exitCode = 46;
}
process.stdin.destroy();
