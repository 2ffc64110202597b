// SPDX-License-Identifier: Apache-2.0

// Connect's handlers on Node's HTTP/1.1. All our methods are unary: a request is read whole when its handler wants it, and
// an answer is one write.

import type { IncomingMessage, ServerResponse } from "node:http";
import { Code, ConnectError } from "@connectrpc/connect";
import type { UniversalHandlerFn, UniversalServerRequest } from "@connectrpc/connect/protocol";

/** Handlers want URLs that are whole; what comes before the path says nothing. */
const baseUrl = "http://controller";

/** Calls under way, each with what ends it. */
export class CallsUnderWay {
  readonly #calls = new Set<AbortController>();
  readonly #shutdown: AbortSignal;
  readonly #maxRequestBytes: number;

  /**
   * @param options `maxRequestBytes`: handlers refuse what is longer, so little more is read; `shutdown`: ends all calls
   *   with its reason
   */
  constructor({
    maxRequestBytes,
    shutdown,
  }: {
    readonly maxRequestBytes: number;
    readonly shutdown: AbortSignal;
  }) {
    this.#shutdown = shutdown;
    this.#maxRequestBytes = maxRequestBytes;
    shutdown.addEventListener("abort", () => this.end(shutdown.reason));
  }

  /** Ends those under way with this error. */
  end(reason: unknown): void {
    for (const call of this.#calls) {
      call.abort(reason);
    }
  }

  /** Answers one request. A client that hangs up aborts its call. */
  async answer(
    handler: UniversalHandlerFn,
    request: IncomingMessage,
    response: ServerResponse,
  ): Promise<void> {
    const call = new AbortController();
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
      const { status, header, body } = await handler(this.#toUniversal(request, call.signal));
      const bytes = await gather(body);
      response.writeHead(status, Object.fromEntries(header ?? []));
      response.end(bytes);
    } finally {
      this.#calls.delete(call);
    }
  }

  #toUniversal(request: IncomingMessage, signal: AbortSignal): UniversalServerRequest {
    const header = new Headers();
    for (const [name, values] of Object.entries(request.headersDistinct)) {
      for (const value of values ?? []) {
        header.append(name, value);
      }
    }
    const most = this.#maxRequestBytes;
    return {
      httpVersion: request.httpVersion,
      method: request.method ?? "",
      url: `${baseUrl}${request.url ?? ""}`,
      header,
      body: {
        [Symbol.asyncIterator]: async function* () {
          yield await readBody(request, most);
        },
      },
      signal,
    };
  }
}

/** Reads a little more than the most, when there is more: whoever counts shall see it. */
async function readBody(request: IncomingMessage, most: number): Promise<Uint8Array> {
  const { promise, resolve, reject } = Promise.withResolvers<Uint8Array>();
  const chunks: Buffer[] = [];
  let size = 0;
  request.on("data", (chunk: Buffer) => {
    if (size <= most) {
      chunks.push(chunk);
      size += chunk.byteLength;
    }
    if (size > most) {
      resolve(Buffer.concat(chunks));
    }
  });
  request.once("end", () => {
    const [first] = chunks;
    resolve(chunks.length === 1 && first !== undefined ? first : Buffer.concat(chunks));
  });
  request.once("error", (error) => reject(ConnectError.from(error, Code.Aborted)));
  return await promise;
}

async function gather(body: AsyncIterable<Uint8Array> | undefined): Promise<Uint8Array> {
  const chunks: Uint8Array[] = [];
  for await (const chunk of body ?? []) {
    chunks.push(chunk);
  }
  const [first] = chunks;
  return chunks.length === 1 && first !== undefined ? first : Buffer.concat(chunks);
}
