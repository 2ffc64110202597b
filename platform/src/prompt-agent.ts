// SPDX-License-Identifier: Apache-2.0

// Connections to controllers that succeed soon or fail: a machine without power answers nothing, and the
// system would keep trying for minutes.

import { Agent as HttpAgent } from "node:http";
import { Agent as HttpsAgent } from "node:https";
import type { Socket } from "node:net";
import type { Duplex } from "node:stream";

/** Error code of a connection that was not established in time; no byte of the call was received. */
export const notConnectedCode = "ERR_NOT_CONNECTED";

/** Fails connections that are not established in time, TLS handshake included. */
export function makePromptAgent(
  address: string,
  { connectMs, ca }: { readonly connectMs: number; readonly ca?: string | undefined },
): HttpAgent {
  const isSecure = address.startsWith("https:");
  const agent = isSecure
    ? new HttpsAgent({ keepAlive: true, ...(ca === undefined ? {} : { ca }) })
    : new HttpAgent({ keepAlive: true });
  const connect = agent.createConnection.bind(agent);
  agent.createConnection = (...args: Parameters<typeof connect>) =>
    limit(connect(...args), isSecure ? "secureConnect" : "connect", connectMs);
  return agent;
}

function limit<T extends Duplex | Socket | null | undefined>(socket: T, made: string, connectMs: number): T {
  const timer = setTimeout(() => {
    const error = new Error(`no connection within ${connectMs / 1000} s`);
    socket?.destroy(Object.assign(error, { code: notConnectedCode, syscall: "connect" }));
  }, connectMs);
  for (const event of [made, "close"]) {
    socket?.once(event, () => clearTimeout(timer));
  }
  return socket;
}
