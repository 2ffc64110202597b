// SPDX-License-Identifier: Apache-2.0

// HTTP in front of the services.

import {
  ConnectError,
  type ConnectRouter,
  createConnectRouter,
  type HandlerContext,
  type Interceptor,
} from "@connectrpc/connect";
import type { UniversalHandlerFn } from "@connectrpc/connect/protocol";
import { compressionBrotli, compressionGzip } from "@connectrpc/connect-node";
import { type CertificatePair, errorCodeOf, metricsContentType, millpondError } from "@millpond/api";
import { Server as TlsServer } from "node:tls";
import { fastify } from "fastify";
import type { Logger } from "pino";
import { mayCall, methodName, type RequiredRole, ruleOf } from "./access.ts";
import { audited, AuditedCall, parseReason, reasonHeader } from "./audit.ts";
import { type Caller, callerKey } from "./callers.ts";
import { CallsUnderWay } from "./http-handlers.ts";
import { renewalMs } from "./tls.ts";
import { parseBearer, type TokenVerifier } from "./tokens.ts";

/** The largest request, in bytes. */
const maxRequestBytes = 1 << 20;

/** A name that is refused can be of any length. */
const maxSubjectLength = 256;

/** Whoever takes longer to say what he wants is cut off. */
const requestTimeoutMs = 30_000;

/** What answers calls. */
export type Handlers = ReadonlyMap<string, UniversalHandlerFn>;

export interface HandlerOptions {
  readonly tokens: TokenVerifier;
  readonly log: Logger;
  readonly registerServices: (router: ConnectRouter) => void;
  /** Throws where only the controller that leads can answer, and this one does not. */
  readonly requireLead: (what: string) => void;
  /** Records a call that changed nothing, or was refused. */
  readonly writeAudit: (call: AuditedCall, result: string) => Promise<void>;
}

export interface ServerOptions {
  /** Reads the certificate to serve with, now and from time to time; absent: plain HTTP. */
  readonly readCertificate?: (() => CertificatePair) | undefined;
  readonly tokens: TokenVerifier;
  readonly log: Logger;
  /** Aborted with the error that calls under way are to end with. */
  readonly shutdown: AbortSignal;
  /** Those of this moment, by path; the paths are always the same. */
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

/** Makes what answers the calls of the services. */
export function makeHandlers(options: HandlerOptions): Handlers {
  const { log, registerServices, writeAudit } = options;
  const router = createConnectRouter({
    acceptCompression: [compressionGzip, compressionBrotli],
    requestGate: (context) => admit(context, options),
    interceptors: [makeErrorInterceptor(log), makeAuditInterceptor(writeAudit)],
    readMaxBytes: maxRequestBytes,
    jsonOptions: { alwaysEmitImplicit: true, ignoreUnknownFields: false },
    grpc: false,
  });
  registerServices(router);
  withErrorCodes(router);
  return new Map(router.handlers.map((handler) => [handler.requestPath, handler]));
}

/** Connect and gRPC-web over HTTP/1.1, JSON and binary, and `/healthz`. */
export async function makeServer(options: ServerOptions): Promise<HttpServer> {
  const { log, shutdown, tokens, handlers, checkHealth, readMetrics } = options;
  const pair = options.readCertificate?.();
  const server = fastify({
    ...(pair === undefined
      ? {}
      : { https: { cert: pair.certificate, key: pair.key, minVersion: "TLSv1.2" as const } }),
    // Calls are logged below; of what Fastify says, only warnings are news.
    loggerInstance: log.child({}, { level: log.level === "silent" ? "silent" : "warn" }),
    forceCloseConnections: "idle",
    requestTimeout: requestTimeoutMs,
    bodyLimit: maxRequestBytes,
  });
  server.setNotFoundHandler(async (request, reply) => {
    const error = millpondError(
      "MILLPOND_E_NOT_FOUND",
      `there is no method ${request.method} ${request.url.slice(0, 200)}`,
      {
        remedy: "Call POST /millpond.v1.<Service>/<Method>.",
      },
    );
    return await reply.code(404).send({ code: "not_found", message: error.rawMessage });
  });
  server.get("/healthz", async (_request, reply) => {
    try {
      await checkHealth();
      return { status: "ok" };
    } catch (error) {
      log.error({ err: error }, "not healthy");
      return await reply.code(503).send({ status: "failing", message: ConnectError.from(error).rawMessage });
    }
  });
  server.get("/metrics", async (request, reply) => {
    try {
      requireToken(request.headers.authorization, tokens);
    } catch (error) {
      return await reply
        .code(401)
        .send({ code: "unauthenticated", message: ConnectError.from(error).rawMessage });
    }
    return await reply.header("content-type", metricsContentType).send(await readMetrics());
  });
  const calls = new CallsUnderWay({ maxRequestBytes, shutdown });
  await server.register(async (scope) => {
    // Handlers read for themselves, after they have seen who calls.
    scope.removeAllContentTypeParsers();
    scope.addContentTypeParser("*", (_request, _payload, done) => done(null));
    for (const path of handlers().keys()) {
      scope.all(path, async (request, reply) => {
        reply.hijack();
        try {
          await calls.answer(handlers().get(path) ?? unknownMethod(path), request.raw, reply.raw);
        } catch (error) {
          log.debug({ err: error, method: path }, "could not be answered");
          reply.raw.destroy();
        }
      });
    }
  });
  const renewal = setInterval(() => {
    try {
      const renewed = options.readCertificate?.();
      if (renewed !== undefined && server.server instanceof TlsServer) {
        server.server.setSecureContext({
          cert: renewed.certificate,
          key: renewed.key,
          minVersion: "TLSv1.2",
        });
      }
    } catch (error) {
      log.error({ err: error }, "the certificate could not be renewed, the old one stays");
    }
  }, renewalMs);
  renewal.unref();
  return {
    listen: (address) => server.listen(address),
    endCalls: (reason) => calls.end(reason),
    close: async () => {
      clearInterval(renewal);
      await server.close();
    },
  };
}

/** @throws MILLPOND_E_INTERNAL */
function unknownMethod(path: string): never {
  throw millpondError("MILLPOND_E_INTERNAL", `nothing answers ${path}`);
}

/** Lets a call in, before anything of its body is read. */
async function admit(
  context: HandlerContext,
  { tokens, requireLead, writeAudit }: HandlerOptions,
): Promise<void> {
  const caller = requireToken(context.requestHeader.get("authorization"), tokens);
  const { role, changes, isDurable = false } = ruleOf(context.method);
  if (!isDurable) {
    requireLead(methodName(context.method));
  }
  try {
    requireRole(caller, role, methodName(context.method));
  } catch (error) {
    if (changes !== undefined) {
      const what = methodName(context.method);
      await writeAudit(new AuditedCall(caller, { what, subject: "", why: "" }), "MILLPOND_E_FORBIDDEN");
    }
    throw error;
  }
  context.values.set(callerKey, caller);
}

/** @throws MILLPOND_E_FORBIDDEN, which says what is missing and nothing of what is there */
function requireRole(caller: Caller, required: RequiredRole, what: string): void {
  if (!mayCall(caller.role, required)) {
    throw millpondError(
      "MILLPOND_E_FORBIDDEN",
      `${what} needs a token of the role ${required}, this is one of the role ${caller.role}`,
    );
  }
}

/** @throws MILLPOND_E_UNAUTHENTICATED */
function requireToken(authorization: string | null | undefined, tokens: TokenVerifier): Caller {
  const token = parseBearer(authorization);
  if (token === undefined) {
    throw millpondError("MILLPOND_E_UNAUTHENTICATED", "the request carries no bearer token");
  }
  const caller = tokens.verify(token);
  if (caller === "unknown") {
    throw millpondError("MILLPOND_E_UNAUTHENTICATED", "the controller does not know the request's token");
  }
  if (caller === "expired") {
    throw millpondError("MILLPOND_E_UNAUTHENTICATED", "the request's token has expired", {
      remedy: "Ask an administrator for a new one: `millpond token create`.",
    });
  }
  return caller;
}

/** Records what is to change something. */
function makeAuditInterceptor(writeAudit: HandlerOptions["writeAudit"]): Interceptor {
  return (next) => async (request) => {
    const { changes } = ruleOf(request.method);
    const caller = request.contextValues.get(callerKey);
    if (changes === undefined || request.stream || caller === undefined) {
      return await next(request);
    }
    const call = new AuditedCall(caller, {
      what: methodName(request.method),
      // The rule is of this very method.
      subject: changes(request.message as never).slice(0, maxSubjectLength),
      why: parseReason(request.header.get(reasonHeader)),
    });
    return await audited(
      call,
      () => next(request),
      (result) => writeAudit(call, result),
    );
  };
}

/** Gives every failure the house form, and logs those that should not happen. */
function makeErrorInterceptor(log: Logger): Interceptor {
  return (next) => async (request) => {
    const startMs = performance.now();
    const method = `${request.service.typeName}/${request.method.name}`;
    try {
      const response = await next(request);
      log.debug({ method, ms: Math.round(performance.now() - startMs) }, "call");
      return response;
    } catch (error) {
      if (error instanceof ConnectError || request.signal.aborted) {
        log.debug({ method, err: error }, "refused");
        throw error;
      }
      log.error({ method, err: error }, "failed");
      throw millpondError("MILLPOND_E_INTERNAL", `${method} failed inside the controller`, { cause: error });
    }
  };
}

/**
 * Connect itself refuses what it cannot read, before our code sees it. These refusals get their message and code here,
 * so that every error over plain HTTP says what is wrong and ends with a code.
 */
function withErrorCodes(router: ConnectRouter): void {
  for (const [position, handler] of router.handlers.entries()) {
    const call: UniversalHandlerFn = async (request) => {
      const response = await handler(request);
      const type = response.header?.get("content-type");
      if (response.status < 400 || (type !== undefined && type !== null && type !== "application/json")) {
        return response;
      }
      const body = withErrorCode(response.status, await readAll(response.body));
      const header = new Headers(response.header);
      header.set("content-type", "application/json");
      header.set("content-length", String(body.byteLength));
      return { ...response, header, body: toIterable(body) };
    };
    router.handlers[position] = Object.assign(call, handler);
  }
}

function withErrorCode(status: number, body: Uint8Array): Uint8Array {
  const error: unknown =
    body.byteLength === 0 ? describeStatus(status) : JSON.parse(Buffer.from(body).toString("utf8"));
  if (!isWireError(error) || errorCodeOf(new Error(error.message)) !== undefined) {
    return body;
  }
  // Only what Connect could not read comes without a code.
  const { rawMessage } = millpondError("MILLPOND_E_INVALID", error.message || error.code);
  return Buffer.from(JSON.stringify({ ...error, message: rawMessage }));
}

function describeStatus(status: number): { readonly code: string; readonly message: string } {
  switch (status) {
    case 405:
      return { code: "unimplemented", message: "the HTTP method is not POST" };
    case 415:
      return {
        code: "unimplemented",
        message: "the content type is not application/json or another of Connect's",
      };
    default:
      return { code: "invalid_argument", message: `the request was refused with the HTTP status ${status}` };
  }
}

function isWireError(value: unknown): value is { readonly code: string; readonly message: string } {
  return (
    typeof value === "object" &&
    value !== null &&
    "code" in value &&
    typeof value.code === "string" &&
    "message" in value &&
    typeof value.message === "string"
  );
}

async function readAll(body: AsyncIterable<Uint8Array> | undefined): Promise<Uint8Array> {
  const chunks: Uint8Array[] = [];
  for await (const chunk of body ?? []) {
    chunks.push(chunk);
  }
  return Buffer.concat(chunks);
}

async function* toIterable(body: Uint8Array): AsyncIterable<Uint8Array> {
  yield body;
}
