// SPDX-License-Identifier: Apache-2.0

// Connections to controllers and agents that succeed soon or fail: a machine without power does not answer, and the system
// would keep trying for minutes. Connections without TLS are made only to trusted users of this machine.

import { Agent as HttpAgent } from "node:http";
import { Agent as HttpsAgent } from "node:https";
import { connect as connectSocket, type NetConnectOpts, type Socket } from "node:net";
import type { Duplex } from "node:stream";
import { assertTrustedPeer, NoServerError } from "./loopback-peer.ts";

/** Error code of a connection that was not established in time; no byte of the call was received. */
export const notConnectedCode = "ERR_NOT_CONNECTED";

/** Time limit for a connection if callers set none. */
const usualConnectMs = 10_000;

interface PromptOptions {
  readonly connectMs?: number | undefined;
  readonly ca?: string | undefined;
}

/**
 * Fails connections that are not established in time, TLS handshake included. Without TLS, it also fails those to other
 * users' servers on loopback.
 */
export function makePromptAgent(
  address: string,
  { connectMs = usualConnectMs, ca }: PromptOptions = {},
): HttpAgent {
  if (!address.startsWith("https:")) return new PlainAgent(connectMs);
  const agent = new HttpsAgent({ keepAlive: true, ...(ca === undefined ? {} : { ca }) });
  const connect = agent.createConnection.bind(agent);
  agent.createConnection = (...args: Parameters<typeof connect>) => limit(connect(...args), connectMs);
  return agent;
}

function limit<T extends Duplex | Socket | null | undefined>(socket: T, connectMs: number): T {
  const timer = setTimeout(() => socket?.destroy(lateError(connectMs)), connectMs);
  for (const event of ["secureConnect", "close"]) {
    socket?.once(event, () => clearTimeout(timer));
  }
  return socket;
}

function lateError(connectMs: number): Error {
  return notConnected(`no connection within ${connectMs / 1000} s`);
}

function notConnected(message: string): Error {
  return Object.assign(new Error(message), { code: notConnectedCode, syscall: "connect" });
}

class PlainAgent extends HttpAgent {
  readonly #connectMs: number;

  constructor(connectMs: number) {
    super({ keepAlive: true });
    this.#connectMs = connectMs;
  }

  /** Hands over the connection only after its server's user has been checked, so that nothing is sent to another user. */
  override createConnection(
    options: NetConnectOpts,
    callback?: (error: Error | null, socket: Duplex) => void,
  ): undefined {
    const socket = connectSocket(options);
    const done = (error: Error | null): void => {
      clearTimeout(timer);
      socket.removeListener("error", done);
      socket.removeListener("close", closed);
      if (error !== null) socket.once("error", () => undefined).destroy();
      callback?.(error, socket);
      callback = undefined;
    };
    const closed = (): void => done(notConnected("the connection was closed"));
    const timer = setTimeout(() => done(lateError(this.#connectMs)), this.#connectMs);
    socket.once("error", done);
    socket.once("close", closed);
    socket.once("connect", () => {
      const { localAddress, localPort, remoteAddress, remotePort } = socket;
      if (
        localAddress === undefined ||
        localPort === undefined ||
        remoteAddress === undefined ||
        remotePort === undefined
      ) {
        return;
      }
      assertTrustedPeer({ localAddress, localPort, remoteAddress, remotePort }).then(
        () => done(null),
        (error: unknown) => {
          if (error instanceof NoServerError) done(notConnected(error.message));
          else done(error instanceof Error ? error : new Error(String(error)));
        },
      );
    });
    return undefined;
  }
}
