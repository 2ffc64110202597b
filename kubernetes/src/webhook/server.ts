// SPDX-License-Identifier: Apache-2.0

// The HTTPS server of the webhooks, the scheduler extender and the health endpoints.

import { createServer, type Server } from "node:https";
import type { IncomingMessage, ServerResponse } from "node:http";
import { createSecureContext, type SecureContext } from "node:tls";
import { ConnectError } from "@connectrpc/connect";
import { errorCodeOf } from "@millpond/api";
import type { CertificatePair } from "@millpond/platform";
import type { Logger } from "pino";
import { filterNodes, preemptOnNodes, prioritizeNodes } from "../extender/scheduler-extender.ts";
import {
  type AdmissionPolicy,
  reviewAgain,
  reviewMutation,
  reviewUserClaims,
  reviewValidation,
} from "./admission.ts";

/** A pod has at most 1.5 MiB in etcd, and a review of a change contains it twice. */
const maxBodyBytes = 8 << 20;

const reviewers = {
  "/mutate": reviewMutation,
  "/mutate-again": reviewAgain,
  "/mutate-claims": reviewUserClaims,
  "/validate": reviewValidation,
} as const;

const extenders = {
  "/scheduler/filter": filterNodes,
  "/scheduler/prioritize": prioritizeNodes,
  "/scheduler/preempt": preemptOnNodes,
} as const;

export interface WebhookServerOptions {
  readonly policy: AdmissionPolicy;
  readonly certificate: CertificatePair;
  readonly host: string;
  /** 0: a free one. */
  readonly port: number;
  readonly isReady: () => boolean;
  /** The metrics, in the Prometheus text format. */
  readonly metrics: () => string;
  readonly log: Logger;
}

export class WebhookServer {
  readonly #server: Server;
  readonly #options: WebhookServerOptions;
  #context: SecureContext;
  /** The number of reviews received. */
  reviews = 0;

  private constructor(options: WebhookServerOptions) {
    this.#options = options;
    this.#context = contextOf(options.certificate);
    this.#server = createServer(
      {
        minVersion: "TLSv1.2",
        cert: options.certificate.certificate,
        key: options.certificate.key,
        SNICallback: (_name, done) => done(null, this.#context),
        headersTimeout: 10_000,
        requestTimeout: 10_000,
      },
      (request, response) => void this.#answer(request, response),
    );
    this.#server.maxConnections = 1000;
    // API servers keep idle connections for 90 s. If the server closed one earlier, a review in transit would be reset.
    this.#server.keepAliveTimeout = 120_000;
  }

  static async start(options: WebhookServerOptions): Promise<WebhookServer> {
    const webhook = new WebhookServer(options);
    await new Promise<void>((resolve, reject) => {
      webhook.#server.once("error", reject).listen(options.port, options.host, () => resolve());
    });
    return webhook;
  }

  get port(): number {
    const address = this.#server.address();
    return typeof address === "object" && address !== null ? address.port : 0;
  }

  /** For new connections; open ones keep theirs. */
  use(certificate: CertificatePair): void {
    this.#context = contextOf(certificate);
    this.#server.setSecureContext({ cert: certificate.certificate, key: certificate.key });
  }

  async close(): Promise<void> {
    const closed = new Promise<void>((resolve) => this.#server.close(() => resolve()));
    this.#server.closeAllConnections();
    await closed;
  }

  async #answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const { policy, log, isReady, metrics } = this.#options;
    const send = (status: number, value: unknown): void => {
      response.writeHead(status, { "content-type": "application/json" }).end(JSON.stringify(value));
    };
    try {
      const path = (request.url ?? "").split("?")[0];
      if (request.method === "GET" && path === "/healthz") send(200, { status: "ok" });
      else if (request.method === "GET" && path === "/readyz") {
        send(isReady() ? 200 : 503, { status: isReady() ? "ok" : "not ready" });
      } else if (request.method === "GET" && path === "/metrics") {
        response.writeHead(200, { "content-type": "text/plain; version=0.0.4" }).end(metrics());
      } else if (request.method === "POST" && Object.hasOwn(extenders, path ?? "")) {
        const body = await readJson(request);
        send(200, extenders[path as keyof typeof extenders](policy.names, body));
      } else if (request.method !== "POST" || !Object.hasOwn(reviewers, path ?? "")) {
        send(404, { message: "there is nothing here" });
      } else {
        this.reviews += 1;
        const body = await readJson(request);
        send(200, await reviewers[path as keyof typeof reviewers](policy, body));
      }
    } catch (error) {
      const isTheirs =
        errorCodeOf(error) !== undefined || error instanceof SyntaxError || error instanceof TooLarge;
      if (!isTheirs) log.error({ err: error, path: request.url }, "a review failed");
      if (!response.headersSent) send(isTheirs ? 400 : 500, { message: ConnectError.from(error).rawMessage });
    }
  }
}

class TooLarge extends Error {}

async function readJson(request: IncomingMessage): Promise<unknown> {
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const chunk of request as AsyncIterable<Buffer>) {
    size += chunk.length;
    if (size > maxBodyBytes) throw new TooLarge(`the body has more than ${maxBodyBytes} bytes`);
    chunks.push(chunk);
  }
  return JSON.parse(Buffer.concat(chunks).toString("utf8")) as unknown;
}

function contextOf({ certificate, key }: CertificatePair): SecureContext {
  return createSecureContext({ minVersion: "TLSv1.2", cert: certificate, key });
}
