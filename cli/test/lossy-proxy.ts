// SPDX-License-Identifier: Apache-2.0

import { once } from "node:events";
import { createConnection, createServer, type Server } from "node:net";
import type { AddressInfo } from "node:net";

/** A proxy that drops the first answer together with its connection, and then works normally. */
export class LossyProxy implements AsyncDisposable {
  /** Number of lost answers. */
  lost = 0;
  readonly #server: Server;

  private constructor(server: Server) {
    this.#server = server;
  }

  static async to(target: string): Promise<LossyProxy> {
    const { hostname, port } = new URL(target);
    const server = createServer();
    const proxy = new LossyProxy(server);
    server.on("connection", (near) => {
      const far = createConnection({ host: hostname, port: Number(port) });
      for (const [one, other] of [
        [near, far],
        [far, near],
      ] as const) {
        one.on("error", () => other.destroy()).on("close", () => other.destroy());
      }
      near.pipe(far);
      far.on("data", (bytes) => {
        if (proxy.lost > 0) near.write(bytes);
        else {
          proxy.lost += 1;
          near.resetAndDestroy();
        }
      });
    });
    server.listen(0, "127.0.0.1");
    await once(server, "listening");
    return proxy;
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await new Promise<void>((resolve) => this.#server.close(() => resolve()));
  }
}
