// SPDX-License-Identifier: Apache-2.0

// HTTP/1.1 in front of the services: calls by their paths, `/healthz`, `/metrics` and the console.

import { once } from "node:events";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import { createServer as createTlsServer, Server as TlsServer } from "node:https";
import { isIPv6 } from "node:net";
import { ConnectError } from "@connectrpc/connect";
import { millpondError, quote } from "@millpond/api";
import {
  type CertificatePair,
  type ConnectionLimits,
  defaultConnectionLimits,
  handshakeTimeoutMs,
  isOwnHost,
  limitConnections,
  metricsContentType,
  requestTimes,
} from "@millpond/platform";
import type { Logger } from "pino";
import type { Caller } from "../domain/caller.ts";
import { mayCall } from "../auth/access.ts";
import { requireToken } from "../auth/call-guard.ts";
import { InFlightCalls } from "./in-flight.ts";
import { KeptConnections } from "./kept-connections.ts";
import type { Console } from "./console.ts";
import type { Handlers } from "./handlers.ts";
import { type CertificateSource, certificateProblem } from "./tls.ts";
import type { TokenVerifier } from "../auth/tokens.ts";

/** Keep-alive timeout of an idle connection. */
const keepAliveMs = 72_000;

/** How long a health status of the store is cached. */
const healthMs = 1_000;

type ReadMetrics = (caller: Pick<Caller, "role" | "tenant">) => Promise<string>;

export interface ServerOptions {
  /** Absent: plain HTTP. */
  readonly certificates?: CertificateSource | undefined;
  /** Names by which it is reached without TLS, besides its addresses and `localhost`. */
  readonly names?: readonly string[];
  /** Default: as many as the process can handle. */
  readonly connectionLimits?: ConnectionLimits | undefined;
  readonly tokens: TokenVerifier;
  readonly log: Logger;
  /** Aborted with the error with which the calls in flight are to end. */
  readonly shutdown: AbortSignal;
  /** The connections open at this moment. */
  readonly handlers: () => Handlers;
  /** Absent: no console is served. */
  readonly console?: Console | undefined;
  /** Throws when the controller cannot do its work. */
  readonly checkHealth: () => Promise<void>;
  /** By path, in the text format of Prometheus, restricted to the tenants that the caller may see. */
  readonly metrics: Readonly<Record<string, ReadMetrics>>;
}

export interface HttpServer {
  /** @returns The base URL. */
  listen(address: { readonly host: string; readonly port: number }): Promise<string>;
  /** Ends the calls in flight with this error. */
  endCalls(reason: Error): void;
  /** Checks for a new certificate now. */
  renewCertificate(): void;
  /** Accepts no further calls, and waits for pending ones. */
  close(): Promise<void>;
}

/** Connect and gRPC-web over HTTP/1.1, JSON and binary, two pages for machines and those of the console. */
export function makeServer(options: ServerOptions): HttpServer {
  const { log, shutdown, handlers, certificates } = options;
  const limits = options.connectionLimits ?? defaultConnectionLimits();
  const calls = new InFlightCalls(shutdown, new KeptConnections(limits.mostOfAddress));
  const readHealth = makeHealthPage(options);
  const answer = async (request: IncomingMessage, response: ServerResponse): Promise<void> => {
    // Sends the client's next call to another controller.
    response.shouldKeepAlive &&= !shutdown.aborted;
    if (certificates === undefined && !isOwnHost(request.headers.host, options.names)) {
      response.shouldKeepAlive = false;
      send(response, misdirected(request.headers.host));
      return;
    }
    const path = pathOf(request);
    options.console?.admit(request);
    const handler = handlers().get(path);
    if (handler !== undefined) {
      await calls.answer(handler, request, response);
    } else if ((await options.console?.answer(request, response, path)) !== true) {
      const page =
        path === "/healthz" && isRead(request) ? await readHealth() : await readPage(options, request, path);
      // Authenticated callers keep their connections; others reconnect for each page.
      response.shouldKeepAlive &&= page.status === 200;
      send(response, page);
    }
  };
  const first = certificates?.read();
  const server = makeHttpServer(first, (request, response) => {
    answer(request, response).catch((error: unknown) => {
      log.debug({ err: error, path: pathOf(request) }, "the call could not be answered");
      response.destroy();
    });
  });
  limitConnections(server, limits, (refused) =>
    log.warn(refused, "connections are refused: the limit per address or in total is reached"),
  );
  const renewal =
    certificates === undefined || first === undefined || !(server instanceof TlsServer)
      ? undefined
      : watchCertificate(server, { certificates, first, log });
  return {
    listen: async ({ host, port }) => {
      const listening = once(server, "listening");
      server.listen(port, host);
      await listening;
      return urlOf(server);
    },
    endCalls: (reason) => calls.end(reason),
    renewCertificate: () => renewal?.renew(),
    close: async () => {
      renewal?.[Symbol.dispose]();
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
  const times = { ...requestTimes, keepAliveTimeout: keepAliveMs };
  return certificate === undefined
    ? createServer(times, answer)
    : createTlsServer(
        { ...times, handshakeTimeout: handshakeTimeoutMs, ...secureContext(certificate) },
        answer,
      );
}

function secureContext({ certificate, key }: CertificatePair) {
  return { cert: certificate, key, minVersion: "TLSv1.2" as const };
}

/** Serves a renewed certificate, and logs once for each certificate that is invalid or will expire soon. */
function watchCertificate(
  server: TlsServer,
  options: {
    readonly certificates: CertificateSource;
    readonly first: CertificatePair;
    readonly log: Logger;
  },
): Disposable & { readonly renew: () => void } {
  const { certificates, log } = options;
  let current = options.first;
  let told: string | undefined;
  const tell = (trouble: string | undefined): void => {
    if (trouble !== undefined && trouble !== told) {
      log.error(
        { reason: trouble },
        "the certificate is invalid or expires soon, and clients will reject it: renew it",
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
      tell(certificateProblem(current, new Date()));
    } catch (error) {
      tell(`the certificate could not be renewed, the old one stays: ${ConnectError.from(error).rawMessage}`);
    }
  };
  tell(certificateProblem(current, new Date()));
  const timer = setInterval(renew, certificates.renewalMs).unref();
  return { renew, [Symbol.dispose]: () => clearInterval(timer) };
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

function isRead({ method }: IncomingMessage): boolean {
  return method === "GET" || method === "HEAD";
}

async function readPage(options: ServerOptions, request: IncomingMessage, path: string): Promise<Page> {
  const metrics = isRead(request) && Object.hasOwn(options.metrics, path) ? options.metrics[path] : undefined;
  if (metrics !== undefined) {
    return await readMetrics(options, metrics, request.headers.authorization);
  }
  const error = millpondError(
    "MILLPOND_E_NOT_FOUND",
    `there is no method ${request.method} ${(request.url ?? "").slice(0, 200)}`,
    { remedy: "Call POST /millpond.v1.<Service>/<Method>." },
  );
  return json(404, { code: "not_found", message: error.rawMessage });
}

/** The answer to a request for another host, such as a browser sends after DNS rebinding. */
function misdirected(host = ""): Page {
  const error = millpondError(
    "MILLPOND_E_FORBIDDEN",
    `without TLS this controller answers for its addresses and localhost, and was addressed as ${quote(host)}`,
    { remedy: "Use its address, or start it with --advertise and that name." },
  );
  return json(421, { code: "permission_denied", message: error.rawMessage });
}

/**
 * The page that anybody may read. It queries the store at most once a second, and does not disclose where the store is.
 */
function makeHealthPage({ checkHealth, log }: ServerOptions): () => Promise<Page> {
  let askedMs = Number.NEGATIVE_INFINITY;
  let page: Promise<Page> | undefined;
  const ask = async (): Promise<Page> => {
    try {
      await checkHealth();
      return json(200, { status: "ok" });
    } catch (error) {
      log.error({ err: error }, "not healthy");
      return json(503, {
        status: "failing",
        message: "the controller cannot read its state: its log says why",
      });
    }
  };
  return async () => {
    const nowMs = performance.now();
    if (page === undefined || nowMs - askedMs >= healthMs) {
      askedMs = nowMs;
      page = ask();
    }
    return await page;
  };
}

async function readMetrics(
  { tokens }: ServerOptions,
  read: ReadMetrics,
  authorization: string | undefined,
): Promise<Page> {
  let caller: Caller;
  try {
    caller = requireToken(authorization, tokens);
    if (!mayCall(caller.role, "user") && caller.role !== "agent") {
      const message = `metrics need a token of the role user, this token has the role ${caller.role}`;
      return json(403, { code: "permission_denied", message: `${message}. [MILLPOND_E_FORBIDDEN]` });
    }
  } catch (error) {
    return json(401, { code: "unauthenticated", message: ConnectError.from(error).rawMessage });
  }
  return { status: 200, type: metricsContentType, text: await read(caller) };
}

function json(status: number, value: unknown): Page {
  return { status, type: "application/json; charset=utf-8", text: JSON.stringify(value) };
}

function send(response: ServerResponse, { status, type, text }: Page): void {
  response.writeHead(status, { "content-type": type, "content-length": Buffer.byteLength(text) });
  response.end(text);
}
