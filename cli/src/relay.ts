// SPDX-License-Identifier: Apache-2.0

// The client library speaks plain HTTP. Where the controller has TLS, `run` takes the library's calls on loopback and
// passes them on.

import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import { request as secureRequest } from "node:https";
import type { AddressInfo } from "node:net";
import { pipeline } from "node:stream";
import { once } from "node:events";
import type { ConnectError } from "@connectrpc/connect";
import { explainTlsFailure, millpondError } from "@millpond/api";
import type { Endpoint } from "./connection.ts";

export interface Relay extends AsyncDisposable {
  /** Base URL on loopback. */
  readonly url: string;
}

/** What the library calls; it gets nothing else from here. */
const path = /^\/millpond\.v1\.ClaimService\/(CreateClaim|WaitClaim|CreateTicket|ReleaseClaim)$/;

/** Starts a relay to a controller with TLS. Callers bring their own token. */
export async function startRelay({ controller, ca }: Pick<Endpoint, "controller" | "ca">): Promise<Relay> {
  const server = createServer((incoming, answer) => forward({ controller, ca }, incoming, answer));
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  return {
    url: `http://127.0.0.1:${port}`,
    [Symbol.asyncDispose]: async () => {
      const closed = once(server, "close");
      server.close();
      server.closeAllConnections();
      await closed;
    },
  };
}

function forward(
  { controller, ca }: Pick<Endpoint, "controller" | "ca">,
  incoming: IncomingMessage,
  answer: ServerResponse,
): void {
  if (incoming.method !== "POST" || !path.test(incoming.url ?? "")) {
    refuse(
      answer,
      404,
      millpondError("MILLPOND_E_NOT_FOUND", "the relay passes on what the client library calls"),
    );
    return;
  }
  const { host: _host, connection: _connection, ...headers } = incoming.headers;
  const onward = secureRequest(
    `${controller}${incoming.url}`,
    { method: "POST", headers, ...(ca === undefined ? {} : { ca }) },
    (response) => {
      answer.writeHead(response.statusCode ?? 502, response.headers);
      pipeline(response, answer, (error) => {
        if (error !== null && error !== undefined) answer.destroy();
      });
    },
  );
  onward.on("error", (error) => {
    const who = `the controller at ${controller}`;
    // 502 is worth another try, a certificate that is not trusted is not.
    const untrusted = explainTlsFailure(error, who);
    if (untrusted === undefined) {
      refuse(
        answer,
        502,
        millpondError("MILLPOND_E_UNREACHABLE", `${who} does not answer: ${error.message}`),
      );
    } else {
      refuse(answer, 400, untrusted);
    }
  });
  answer.on("close", () => onward.destroy());
  pipeline(incoming, onward, (error) => {
    if (error !== null && error !== undefined) onward.destroy(error);
  });
}

function refuse(answer: ServerResponse, status: number, error: ConnectError): void {
  if (answer.headersSent) {
    answer.destroy();
    return;
  }
  const code = status === 502 ? "unavailable" : status === 404 ? "not_found" : "failed_precondition";
  answer.writeHead(status, { "content-type": "application/json" });
  answer.end(JSON.stringify({ code, message: error.rawMessage }));
}
