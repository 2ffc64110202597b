// SPDX-License-Identifier: Apache-2.0

// Connections to controllers that are made soon or not at all: a machine that has lost its power answers nothing, and the
// system would go on trying for minutes.

import { Agent as HttpAgent } from "node:http";
import { Agent as HttpsAgent } from "node:https";
import type { Socket } from "node:net";
import type { Duplex } from "node:stream";

/** What an error says where a connection was not made in time, and nobody has heard anything. */
export const notConnectedCode = "ERR_NOT_CONNECTED";

/** Fails connections to an address that are not made within so long, TLS included. */
export function makePromptAgent(
  address: string,
  { connectMs, ca }: { readonly connectMs: number; readonly ca?: string | undefined },
): HttpAgent {
  return address.startsWith("https:")
    ? new PromptHttpsAgent({ keepAlive: true, ...(ca === undefined ? {} : { ca }) }, connectMs)
    : new PromptHttpAgent({ keepAlive: true }, connectMs);
}

class PromptHttpAgent extends HttpAgent {
  readonly #connectMs: number;

  constructor(options: ConstructorParameters<typeof HttpAgent>[0], connectMs: number) {
    super(options);
    this.#connectMs = connectMs;
  }

  override createConnection(
    ...args: Parameters<HttpAgent["createConnection"]>
  ): ReturnType<HttpAgent["createConnection"]> {
    return limit(super.createConnection(...args), "connect", this.#connectMs);
  }
}

class PromptHttpsAgent extends HttpsAgent {
  readonly #connectMs: number;

  constructor(options: ConstructorParameters<typeof HttpsAgent>[0], connectMs: number) {
    super(options);
    this.#connectMs = connectMs;
  }

  override createConnection(
    ...args: Parameters<HttpsAgent["createConnection"]>
  ): ReturnType<HttpsAgent["createConnection"]> {
    return limit(super.createConnection(...args), "secureConnect", this.#connectMs);
  }
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
