// SPDX-License-Identifier: Apache-2.0

// HTTP/1.1 in front of the services: calls by their paths, `/healthz` and `/metrics`.

import { once } from "node:events";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import { createServer as createTlsServer, Server as TlsServer } from "node:https";
import { isIPv6 } from "node:net";
import { ConnectError } from "@connectrpc/connect";
import { type CertificatePair, metricsContentType, millpondError } from "@millpond/api";
import type { Logger } from "pino";
import { requireToken } from "./call-guard.ts";
import { CallsUnderWay } from "./calls-under-way.ts";
import type { Handlers } from "./handlers.ts";
import { type CertificateSource, flawOf } from "./tls.ts";
import type { TokenVerifier } from "./tokens.ts";

/** Whoever takes longer to say what he wants is cut off. */
const requestTimeoutMs = 30_000;

/** A connection that carries no call is kept for so long. */
const keepAliveMs = 72_000;

export interface ServerOptions {
  /** Absent: plain HTTP. */
  readonly certificates?: CertificateSource | undefined;
  readonly tokens: TokenVerifier;
  readonly log: Logger;
  /** Aborted with the error that calls under way are to end with. */
  readonly shutdown: AbortSignal;
  /** Those of this moment. */
  readonly handlers: () => Handlers;
  /** Throws when the controller cannot do its work. */
  readonly checkHealth: () => Promise<void>;
  /** The text form of Prometheus. */
  readonly readMetrics: () => Promise<string>;
}

export interface HttpServer {
  /** @returns The base URL. */
  listen(address: { readonly host: string; readonly port: number }): Promise<string>;
  /** Ends the calls under way with this error. */
  endCalls(reason: Error): void;
  /** Takes no more calls, and waits for those under way. */
  close(): Promise<void>;
}

/** Connect and gRPC-web over HTTP/1.1, JSON and binary, and two pages for machines. */
export function makeServer(options: ServerOptions): HttpServer {
  const { log, shutdown, handlers, certificates } = options;
  const calls = new CallsUnderWay(shutdown);
  const answer = async (request: IncomingMessage, response: ServerResponse): Promise<void> => {
    // Whoever calls again has to look for another controller.
    response.shouldKeepAlive &&= !shutdown.aborted;
    const path = pathOf(request);
    const handler = handlers().get(path);
    if (handler !== undefined) {
      await calls.answer(handler, request, response);
    } else {
      send(response, await readPage(options, request, path));
    }
  };
  const first = certificates?.read();
  const server = makeHttpServer(first, (request, response) => {
    answer(request, response).catch((error: unknown) => {
      log.debug({ err: error, path: pathOf(request) }, "could not be answered");
      response.destroy();
    });
  });
  const renewal =
    certificates === undefined || first === undefined || !(server instanceof TlsServer)
      ? undefined
      : renewCertificate(server, { certificates, first, log });
  return {
    listen: async ({ host, port }) => {
      const listening = once(server, "listening");
      server.listen(port, host);
      await listening;
      return urlOf(server);
    },
    endCalls: (reason) => calls.end(reason),
    close: async () => {
      clearInterval(renewal);
      const closed = once(server, "close");
      server.close();
      await closed;
    },
  };
}

function makeHttpServer(
  certificate: CertificatePair | undefined,
  answer: (request: IncomingMessage, response: ServerResponse) => void,
): Server | TlsServer {
  const times = { requestTimeout: requestTimeoutMs, keepAliveTimeout: keepAliveMs };
  return certificate === undefined
    ? createServer(times, answer)
    : createTlsServer({ ...times, ...secureContext(certificate) }, answer);
}

function secureContext({ certificate, key }: CertificatePair) {
  return { cert: certificate, key, minVersion: "TLSv1.2" as const };
}

/** Serves with a new certificate when there is one, and says when one is of no use, or soon will be: once for each. */
function renewCertificate(
  server: TlsServer,
  options: {
    readonly certificates: CertificateSource;
    readonly first: CertificatePair;
    readonly log: Logger;
  },
): NodeJS.Timeout {
  const { certificates, log } = options;
  let current = options.first;
  let told: string | undefined;
  const tell = (trouble: string | undefined): void => {
    if (trouble !== undefined && trouble !== told) {
      log.error(
        { reason: trouble },
        "who calls will not trust this controller, now or soon: renew its certificate",
      );
    }
    told = trouble;
  };
  const renew = (): void => {
    try {
      const next = certificates.read();
      if (next.certificate !== current.certificate) {
        server.setSecureContext(secureContext(next));
        current = next;
        log.info("the controller serves with a new certificate");
      }
      tell(flawOf(current, new Date()));
    } catch (error) {
      tell(`the certificate could not be renewed, the old one stays: ${ConnectError.from(error).rawMessage}`);
    }
  };
  tell(flawOf(current, new Date()));
  return setInterval(renew, certificates.renewalMs).unref();
}

function urlOf(server: Server | TlsServer): string {
  const address = server.address();
  if (address === null || typeof address === "string") {
    throw millpondError("MILLPOND_E_INTERNAL", "the server listens at no port");
  }
  const host = isIPv6(address.address) ? `[${address.address}]` : address.address;
  return `${server instanceof TlsServer ? "https" : "http"}://${host}:${address.port}`;
}

function pathOf({ url = "" }: IncomingMessage): string {
  const end = url.indexOf("?");
  return end < 0 ? url : url.slice(0, end);
}

interface Page {
  readonly status: number;
  readonly type: string;
  readonly text: string;
}

async function readPage(options: ServerOptions, request: IncomingMessage, path: string): Promise<Page> {
  const isRead = request.method === "GET" || request.method === "HEAD";
  if (isRead && path === "/healthz") {
    return await readHealth(options);
  }
  if (isRead && path === "/metrics") {
    return await readMetrics(options, request.headers.authorization);
  }
  const error = millpondError(
    "MILLPOND_E_NOT_FOUND",
    `there is no method ${request.method} ${(request.url ?? "").slice(0, 200)}`,
    { remedy: "Call POST /millpond.v1.<Service>/<Method>." },
  );
  return json(404, { code: "not_found", message: error.rawMessage });
}

async function readHealth({ checkHealth, log }: ServerOptions): Promise<Page> {
  try {
    await checkHealth();
    return json(200, { status: "ok" });
  } catch (error) {
    log.error({ err: error }, "not healthy");
    return json(503, { status: "failing", message: ConnectError.from(error).rawMessage });
  }
}

async function readMetrics(
  { tokens, readMetrics: read }: ServerOptions,
  authorization: string | undefined,
): Promise<Page> {
  try {
    requireToken(authorization, tokens);
  } catch (error) {
    return json(401, { code: "unauthenticated", message: ConnectError.from(error).rawMessage });
  }
  return { status: 200, type: metricsContentType, text: await read() };
}

function json(status: number, value: unknown): Page {
  return { status, type: "application/json; charset=utf-8", text: JSON.stringify(value) };
}

function send(response: ServerResponse, { status, type, text }: Page): void {
  response.writeHead(status, { "content-type": type, "content-length": Buffer.byteLength(text) });
  response.end(text);
}
