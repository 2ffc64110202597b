// SPDX-License-Identifier: Apache-2.0
// A relay of TCP connections to a port of this host that cuts them at random bytes.
import { connect, createServer, type Server, type Socket } from "node:net";
import { ScriptError } from "../command.ts";

/**
 * The most bytes that a connection carries before it is cut. The numbers are spread evenly over the orders of magnitude up to
 * this.
 */
const mostBytes = 8 * 1024 * 1024;

/** Bytes that the first connection carries before it may be cut: those of its handshake, with the snapshot of the devices. */
const uncutBytes = 256 * 1024;

export class CuttingRelay implements AsyncDisposable {
  readonly port: number;
  /** The number of connections that have been cut. */
  cuts = 0;
  readonly #server: Server;
  readonly #sockets: Set<Socket>;

  /** @param seed determines where connections are cut, which also depends on the traffic */
  static async open(target: number, seed: number): Promise<CuttingRelay> {
    let state = seed;
    const random = (): number => {
      // The minimal standard generator of Park and Miller.
      state = (state * 48_271) % 2_147_483_647;
      return state / 2_147_483_647;
    };
    const sockets = new Set<Socket>();
    let isFirst = true;
    let relay: CuttingRelay | undefined;
    const server = createServer((near) => {
      const far = connect({ port: target, host: "127.0.0.1" });
      // A connection that is lost during the first handshake opens no session.
      let left = Math.ceil(mostBytes ** random()) + (isFirst ? uncutBytes : 0);
      isFirst = false;
      const cut = (): void => {
        near.destroy();
        far.destroy();
      };
      for (const [from, to] of [
        [near, far],
        [far, near],
      ] as const) {
        sockets.add(from);
        from.setNoDelay(true);
        from.on("error", cut);
        from.on("close", () => {
          sockets.delete(from);
          cut();
        });
        from.on("data", (data: Buffer) => {
          if (data.length < left) {
            left -= data.length;
            if (!to.write(data)) {
              from.pause();
              to.once("drain", () => from.resume());
            }
            return;
          }
          if (relay !== undefined) relay.cuts++;
          // Bytes before the cut still arrive.
          to.end(data.subarray(0, left));
          from.destroy();
        });
      }
    });
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    const address = server.address();
    if (address === null || typeof address === "string") throw new ScriptError("the relay has no port");
    relay = new CuttingRelay(server, sockets, address.port);
    return relay;
  }

  private constructor(server: Server, sockets: Set<Socket>, port: number) {
    this.#server = server;
    this.#sockets = sockets;
    this.port = port;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const socket of this.#sockets) socket.destroy();
    await new Promise<void>((resolve) => this.#server.close(() => resolve()));
  }
}
