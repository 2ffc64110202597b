// SPDX-License-Identifier: Apache-2.0

import { createHash, timingSafeEqual } from "node:crypto";
import { type AddressInfo, isIPv6 } from "node:net";
import type { MessageInitShape } from "@bufbuild/protobuf";
import { ConnectError, type ConnectRouter, type Interceptor } from "@connectrpc/connect";
import { fastifyConnectPlugin } from "@connectrpc/connect-fastify";
import { type GetNodeStatusResponseSchema, millpondError, NodeService, quote } from "@millpond/api";
import {
  agentUrl,
  type CertificatePair,
  type ConnectionLimits,
  defaultConnectionLimits,
  handshakeTimeoutMs,
  isOwnHost,
  limitConnections,
  metricsContentType,
  requestTimes,
} from "@millpond/platform";
import { fastify } from "fastify";
import type { Logger } from "pino";
import { type ClaimSources, describeClaim } from "./describe-claim.ts";
import { isDiskFull } from "../process/error-text.ts";
import { openSession, type SessionOpener } from "./open-session.ts";

export interface NodeServerOptions {
  readonly host: string;
  readonly port: number;
  /** Name or address by which others reach it. */
  readonly advertisedHost: string;
  /** Absent: plain HTTP. */
  readonly certificate: CertificatePair | undefined;
  /** The agent token, which GetNodeStatus requires. */
  readonly token: string;
  /** An additional token, for metrics only; undefined: there is none. */
  readonly metricsToken?: string | undefined;
  readonly opener: SessionOpener;
  readonly claims: ClaimSources;
  readonly status: () => MessageInitShape<typeof GetNodeStatusResponseSchema>;
  /** The metrics, in the Prometheus text format. */
  readonly metrics: () => string;
  readonly log: Logger;
  /** Default: limits that suit the process. */
  readonly connectionLimits?: ConnectionLimits;
}

export interface NodeServer {
  /** Base URL for others, with the certificate's fingerprint. */
  readonly url: string;
  /** Refuses every call from now on, because the agent is stopping. */
  refuse(): void;
  close(): Promise<void>;
}

/** How long a connection without calls is kept. A program opens one session, and rarely another. */
const keepAliveMs = 5_000;

/** Enough for the largest request: a ticket and its envelope. */
const maxRequestBytes = 32 * 1024;

/**
 * Serves NodeService.
 *
 * @throws MILLPOND_E_ADDRESS_IN_USE
 */
export async function serveNode(options: NodeServerOptions): Promise<NodeServer> {
  let isRefusing = false;
  const { certificate } = options;
  const server = fastify({
    logger: false,
    forceCloseConnections: true,
    requestTimeout: requestTimes.requestTimeout,
    keepAliveTimeout: keepAliveMs,
    ...(certificate === undefined
      ? { http: requestTimes }
      : {
          https: {
            ...requestTimes,
            cert: certificate.certificate,
            key: certificate.key,
            minVersion: "TLSv1.2",
            handshakeTimeout: handshakeTimeoutMs,
          },
        }),
  });
  limitConnections(server.server, options.connectionLimits ?? defaultConnectionLimits(), (refused) =>
    options.log.warn(refused, "connections are refused: the limit per address or in total is reached"),
  );
  const guard: Interceptor = (next) => async (request) => {
    if (isRefusing) throw millpondError("MILLPOND_E_SHUTTING_DOWN", "the agent is stopping");
    try {
      return await next(request);
    } catch (error) {
      if (error instanceof ConnectError) throw error;
      options.log.error({ err: error, method: request.method.name }, "a call failed");
      if (isDiskFull(error)) {
        throw millpondError("MILLPOND_E_STATE_FULL", "the disk of the agent's run directory has no room", {
          remedy: "Free space on it; the service recovers by itself.",
          cause: error,
        });
      }
      throw millpondError("MILLPOND_E_INTERNAL", `the agent failed in ${request.method.name}`, {
        cause: error,
      });
    }
  };
  server.addHook("onRequest", async (request, reply) => {
    if (certificate === undefined && !isOwnHost(request.headers.host, [options.advertisedHost])) {
      const error = millpondError(
        "MILLPOND_E_FORBIDDEN",
        `without TLS this agent answers for its address and localhost, and was addressed as ${quote(request.headers.host ?? "")}`,
        { remedy: "Use the address that `millpond get nodes -o wide` shows." },
      );
      await reply.code(421).send({ code: "permission_denied", message: error.rawMessage });
    }
  });
  server.get("/metrics", async (request, reply) => {
    try {
      const { token, metricsToken } = options;
      const tokens = metricsToken === undefined ? [token] : [token, metricsToken];
      authenticate(request.headers.authorization, tokens);
    } catch (error) {
      return await reply.code(401).send({ message: ConnectError.from(error).rawMessage });
    }
    return await reply.header("content-type", metricsContentType).send(options.metrics());
  });
  const routes = (router: ConnectRouter): void => {
    router.service(NodeService, {
      openSession: (request, { signal }) => openSession(options.opener, request, signal),
      describeClaim: (request) => describeClaim(options.claims, request),
      getNodeStatus: (_request, context) => {
        authenticate(context.requestHeader.get("authorization") ?? "", [options.token]);
        return options.status();
      },
    });
  };
  await server.register(fastifyConnectPlugin, {
    routes,
    interceptors: [guard],
    readMaxBytes: maxRequestBytes,
  });
  try {
    await server.listen({ host: options.host, port: options.port });
  } catch (cause) {
    await server.close();
    if (cause instanceof Error && "code" in cause && cause.code === "EADDRINUSE") {
      throw millpondError("MILLPOND_E_ADDRESS_IN_USE", `${options.host}:${options.port} is in use`, {
        cause,
      });
    }
    throw cause;
  }
  const { port } = server.server.address() as AddressInfo;
  const host = isIPv6(options.advertisedHost) ? `[${options.advertisedHost}]` : options.advertisedHost;
  return {
    url:
      certificate === undefined
        ? `http://${host}:${port}`
        : agentUrl(`https://${host}:${port}`, certificate.certificate),
    refuse: () => {
      isRefusing = true;
    },
    close: () => server.close(),
  };
}

function authenticate(authorization: string | undefined, tokens: readonly string[]): void {
  const presented = /^Bearer (.+)$/.exec(authorization ?? "")?.[1] ?? "";
  const digest = (text: string): Buffer => createHash("sha256").update(text).digest();
  const found = tokens.filter((token) => timingSafeEqual(digest(presented), digest(token)));
  if (found.length === 0) {
    throw millpondError(
      "MILLPOND_E_UNAUTHENTICATED",
      "the status and the metrics of a node need the agent token",
      {
        remedy: "Send the agent token of the controller's state directory.",
      },
    );
  }
}
