// SPDX-License-Identifier: Apache-2.0

// The pod of a node's agent. It publishes the release of its image, which the container with the workers runs, and is
// ready when the agent in that container is of this release.

import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import type { Logger } from "pino";
import type { ReleaseDirectory, Start } from "./release-directory.ts";

export interface PublishOptions {
  readonly releases: ReleaseDirectory;
  /** Directory of the release in the image. */
  readonly source: string;
  readonly start: Start;
  /** Port of `/readyz`; 0: a free one. */
  readonly listen: { readonly host: string; readonly port: number };
  readonly log: Logger;
}

export interface Publisher extends AsyncDisposable {
  readonly id: string;
  readonly port: number;
}

/** Publishes a release. The caller disposes of the publisher; the release stays. */
export async function publishRelease(options: PublishOptions): Promise<Publisher> {
  const { releases, source, start, listen, log } = options;
  const id = releases.publish(source, start);
  log.info({ release: id }, "the release is published");
  const server = createServer((request, response) => {
    const isKnown = request.method === "GET" && request.url === "/readyz";
    const isReady = releases.running === id;
    response.writeHead(isKnown ? (isReady ? 200 : 503) : 404, { "content-type": "text/plain" });
    response.end(isKnown && !isReady ? `runs ${releases.running ?? "nothing"}, and not ${id}\n` : "");
  });
  server.listen(listen.port, listen.host);
  await once(server, "listening");
  return {
    id,
    port: (server.address() as AddressInfo).port,
    [Symbol.asyncDispose]: async () => {
      const closed = once(server, "close");
      server.close();
      server.closeAllConnections();
      await closed;
    },
  };
}

/** Variables of the agent that its pod sets: those of Millpond and of CUDA. */
export function agentVariables(environment: NodeJS.ProcessEnv): Record<string, string> {
  return Object.fromEntries(
    Object.entries(environment).filter(
      (entry): entry is [string, string] => /^(MILLPOND|CUDA)_/.test(entry[0]) && entry[1] !== undefined,
    ),
  );
}
