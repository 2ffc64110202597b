// SPDX-License-Identifier: Apache-2.0

// gRPC over Unix sockets, as between kubelets and their plugins.

import { mkdirSync, rmSync } from "node:fs";
import { createServer, type Http2Server, type ServerHttp2Session } from "node:http2";
import { createConnection } from "node:net";
import { dirname } from "node:path";
import type { ConnectRouter, Transport } from "@connectrpc/connect";
import { connectNodeAdapter, createGrpcTransport } from "@connectrpc/connect-node";

/** Serves gRPC at a path, where it replaces a stale socket. */
export class UnixGrpcServer implements AsyncDisposable {
  readonly path: string;
  readonly #server: Http2Server;
  readonly #sessions = new Set<ServerHttp2Session>();

  private constructor(path: string, server: Http2Server) {
    this.path = path;
    this.#server = server;
    server.on("session", (session) => {
      this.#sessions.add(session);
      session.once("close", () => this.#sessions.delete(session));
    });
  }

  static async listen(path: string, routes: (router: ConnectRouter) => void): Promise<UnixGrpcServer> {
    mkdirSync(dirname(path), { recursive: true, mode: 0o750 });
    rmSync(path, { force: true });
    const adapter = connectNodeAdapter({ routes, connect: false, grpcWeb: false });
    const server = new UnixGrpcServer(
      path,
      createServer((request, response) => {
        // A kubelet sends the escaped path of the socket, which is not a valid host of a URL.
        request.headers[":authority"] = "localhost";
        adapter(request, response);
      }),
    );
    await new Promise<void>((resolve, reject) => {
      server.#server.once("error", reject).listen(path, () => resolve());
    });
    return server;
  }

  /** Open streams are cut off. */
  async [Symbol.asyncDispose](): Promise<void> {
    const closed = new Promise<void>((resolve) => this.#server.close(() => resolve()));
    for (const session of this.#sessions) session.destroy();
    await closed;
    rmSync(this.path, { force: true });
  }
}

/** A transport for clients of a server at a path. */
export function unixGrpcTransport(path: string): Transport {
  return createGrpcTransport({
    baseUrl: "http://localhost",
    nodeOptions: { createConnection: () => createConnection(path) },
  });
}
