// SPDX-License-Identifier: Apache-2.0

// Calls on Node's HTTP/1.1. All our methods are unary: a request is read whole when its handler wants it, and an answer is
// one write.

import type { IncomingMessage, ServerResponse } from "node:http";
import { admissionKey } from "../auth/call-guard.ts";
import { callerKey } from "../auth/visibility.ts";
import { Code, ConnectError, createContextValues } from "@connectrpc/connect";
import type { UniversalHandlerFn, UniversalServerRequest } from "@connectrpc/connect/protocol";
import { DirectCall, isDirect } from "./unary-fast-path.ts";
import { type Handler, maxRequestBytes } from "./handlers.ts";
import { drainBody, readBody } from "./request-body.ts";
import type { KeptConnections } from "./kept-connections.ts";
import { withSerialized, serializedKey } from "./serialized-answers.ts";

/** Handlers need complete URLs; the part before the path is arbitrary. */
const baseUrl = "http://controller";

/** Calls in flight, each with the function that ends it. */
export class InFlightCalls {
  readonly #calls = new Set<Pick<AbortController, "abort">>();
  readonly #shutdown: AbortSignal;
  readonly #connections: KeptConnections;

  /** @param shutdown Ends all calls with its reason. */
  constructor(shutdown: AbortSignal, connections: KeptConnections) {
    this.#shutdown = shutdown;
    this.#connections = connections;
    shutdown.addEventListener("abort", () => this.end(shutdown.reason));
  }

  /** Ends the calls in flight with this error. */
  end(reason: unknown): void {
    for (const call of this.#calls) {
      call.abort(reason);
    }
  }

  /** Answers one request. A client that hangs up aborts its call. */
  async answer(handler: Handler, request: IncomingMessage, response: ServerResponse): Promise<void> {
    if (isDirect(request)) {
      const call = new DirectCall(handler, request, (caller) => this.#connections.keep(response, caller));
      await this.#follow(call, response, () => call.answer(response));
    } else {
      const call = new AbortController();
      await this.#follow(call, response, () =>
        answerUniversal(handler.connect, { request, signal: call.signal }, response, this.#connections),
      );
    }
  }

  async #follow(
    call: Pick<AbortController, "abort">,
    response: ServerResponse,
    answer: () => Promise<void>,
  ): Promise<void> {
    if (this.#shutdown.aborted) {
      call.abort(this.#shutdown.reason);
    }
    this.#calls.add(call);
    response.once("close", () => {
      if (!response.writableFinished) {
        call.abort(new ConnectError("the client has hung up", Code.Canceled));
      }
    });
    try {
      await answer();
    } finally {
      this.#calls.delete(call);
    }
  }
}

async function answerUniversal(
  handler: UniversalHandlerFn,
  { request, signal }: { readonly request: IncomingMessage; readonly signal: AbortSignal },
  response: ServerResponse,
  connections: KeptConnections,
): Promise<void> {
  const contextValues = createContextValues();
  try {
    const answer = await handler({ ...toUniversal(request, signal), contextValues });
    const empty = await gather(answer.body);
    const written = contextValues.get(serializedKey);
    const accepts = request.headers["accept-encoding"] ?? "";
    const { header, body } =
      written === undefined
        ? { header: answer.header ?? [], body: empty }
        : await withSerialized(answer, empty, { written, accepts });
    await drainBody(request, maxRequestBytes);
    connections.keep(response, contextValues.get(callerKey));
    response.writeHead(answer.status, Object.fromEntries(header));
    response.end(body);
  } finally {
    contextValues.get(admissionKey)?.[Symbol.dispose]();
  }
}

function toUniversal(request: IncomingMessage, signal: AbortSignal): UniversalServerRequest {
  const header = new Headers();
  for (const [name, values] of Object.entries(request.headersDistinct)) {
    for (const value of values ?? []) {
      header.append(name, value);
    }
  }
  return {
    httpVersion: request.httpVersion,
    method: request.method ?? "",
    url: `${baseUrl}${request.url ?? ""}`,
    header,
    body: {
      [Symbol.asyncIterator]: async function* () {
        yield await readBody(request, maxRequestBytes);
      },
    },
    signal,
  };
}

async function gather(body: AsyncIterable<Uint8Array> | undefined): Promise<Uint8Array> {
  const chunks: Uint8Array[] = [];
  for await (const chunk of body ?? []) {
    chunks.push(chunk);
  }
  const [first] = chunks;
  return chunks.length === 1 && first !== undefined ? first : Buffer.concat(chunks);
}
