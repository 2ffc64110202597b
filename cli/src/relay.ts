// SPDX-License-Identifier: Apache-2.0

// The client library speaks plain HTTP. Where the controller has TLS, `run` takes the library's calls on loopback and
// passes them on.

import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import { request as secureRequest } from "node:https";
import type { AddressInfo } from "node:net";
import { pipeline } from "node:stream";
import { once } from "node:events";
import type { ConnectError } from "@connectrpc/connect";
import { explainTlsFailure, millpondError, splitAddresses } from "@millpond/api";
import type { Endpoint } from "./connection.ts";

export interface Relay extends AsyncDisposable {
  /** Base URL on loopback. */
  readonly url: string;
}

/** What the library calls; it gets nothing else from here. */
const path = /^\/millpond\.v1\.ClaimService\/(CreateClaim|WaitClaim|CreateTicket|ReleaseClaim)$/;

/** Where a call is passed on to. */
interface Target {
  readonly address: string;
  readonly ca: string | undefined;
  /** It does not answer, or does not lead. */
  readonly onAway: () => void;
}

/** Starts a relay to a controller with TLS, or to several. Callers bring their own token, and call again after a 502 or 503. */
export async function startRelay({ controller, ca }: Pick<Endpoint, "controller" | "ca">): Promise<Relay> {
  const addresses = splitAddresses(controller);
  let current = 0;
  const server = createServer((incoming, answer) => {
    const index = current;
    const onAway = () => {
      if (current === index) current = (index + 1) % addresses.length;
    };
    forward({ address: addresses[index] ?? controller, ca, onAway }, incoming, answer);
  });
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

function forward({ address, ca, onAway }: Target, incoming: IncomingMessage, answer: ServerResponse): void {
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
    `${address}${incoming.url}`,
    { method: "POST", headers, ...(ca === undefined ? {} : { ca }) },
    (response) => {
      if (response.statusCode === 503) onAway();
      answer.writeHead(response.statusCode ?? 502, response.headers);
      pipeline(response, answer, (error) => {
        if (error !== null && error !== undefined) answer.destroy();
      });
    },
  );
  onward.on("error", (error) => {
    onAway();
    const who = `the controller at ${address}`;
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
