// SPDX-License-Identifier: Apache-2.0

// Decides which connections stay open after an answer: unauthenticated callers keep none and a token a bounded number,
// so that one tenant's idle connections do not exhaust the server's.

import type { ServerResponse } from "node:http";
import type { Socket } from "node:net";
import type { Caller } from "../domain/caller.ts";

/** The most connections that a token keeps, if the server allows that many. */
const mostOfToken = 1024;

export class KeptConnections {
  /** By the token that made the first call of the connection. */
  readonly #sockets = new Map<string, Set<Socket>>();
  readonly #owners = new WeakMap<Socket, string>();
  readonly #most: number;

  /**
   * @param mostOfAddress Connections that the server accepts from one address: a token has a quarter of them at most.
   */
  constructor(mostOfAddress: number) {
    this.#most = Math.max(1, Math.min(mostOfToken, Math.floor(mostOfAddress / 4)));
  }

  /** Called before an answer is written. */
  keep(response: ServerResponse, caller: Caller | undefined): void {
    if (!response.shouldKeepAlive) {
      return;
    }
    response.shouldKeepAlive = caller !== undefined && this.#mayKeep(response.socket, caller);
  }

  #mayKeep(socket: Socket | null, { name, tenant }: Caller): boolean {
    if (socket === null || tenant === "" || this.#owners.has(socket)) {
      return true;
    }
    const sockets = this.#sockets.get(name) ?? new Set<Socket>();
    if (sockets.size >= this.#most) {
      return false;
    }
    this.#sockets.set(name, sockets.add(socket));
    this.#owners.set(socket, name);
    socket.once("close", () => {
      sockets.delete(socket);
      if (sockets.size === 0) {
        this.#sockets.delete(name);
      }
    });
    return true;
  }
}
