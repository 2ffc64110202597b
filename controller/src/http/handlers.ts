// SPDX-License-Identifier: Apache-2.0

// The handlers of the services' methods: Connect's own, which support every protocol, and a direct path to the method
// for calls that need no more.

import { brotliDecompressSync, gunzipSync } from "node:zlib";
import {
  create,
  type DescMessage,
  type DescMethodUnary,
  type Message,
  type MessageInitShape,
} from "@bufbuild/protobuf";
import { type ConnectRouter, createConnectRouter, type Interceptor } from "@connectrpc/connect";
import type { UniversalHandlerFn } from "@connectrpc/connect/protocol";
import { errorToJson } from "@connectrpc/connect/protocol-connect";
import { compressionBrotli, compressionGzip } from "@connectrpc/connect-node";
import { errorCodeOf, millpondError } from "@millpond/api";
import type { CallContext, ServiceRegistry } from "../rpc/service-methods.ts";
import type { CallGuard } from "../auth/call-guard.ts";
import { turnsKey } from "../auth/fairness/fair-turns.ts";
import type { LeaderProxy } from "../rpc/leader-proxy.ts";
import { jsonOptions, serializeInTurns, serializedKey } from "./serialized-answers.ts";

/** The largest request, in bytes. */
export const maxRequestBytes = 1 << 20;

type Answer = (request: Message, context: CallContext) => Promise<MessageInitShape<DescMessage>>;

export interface Handler {
  readonly method: DescMethodUnary;
  readonly answer: Answer;
  readonly guard: CallGuard;
  /** Answers a call in any of Connect's protocols. */
  readonly connect: UniversalHandlerFn;
}

/** By path. */
export type Handlers = ReadonlyMap<string, Handler>;

/** Creates the handlers of the services' calls. */
export function makeHandlers(
  { guard, leader }: { readonly guard: CallGuard; readonly leader: LeaderProxy },
  register: (registry: ServiceRegistry) => void,
): Handlers {
  const router = createConnectRouter({
    acceptCompression: [compressionGzip, compressionBrotli],
    requestGate: (context) => guard.admit({ ...context, header: headerOf(context.requestHeader) }),
    interceptors: [guarding(guard)],
    readMaxBytes: maxRequestBytes,
    jsonOptions: { ...jsonOptions, ignoreUnknownFields: false },
    grpc: false,
  });
  const answers = new Map<string, Answer>();
  register({
    service: (service, own) => {
      const methods = leader.standInFor(service, own);
      router.service(service, methods);
      for (const { name, localName } of service.methods) {
        answers.set(`/${service.typeName}/${name}`, methods[localName] as unknown as Answer);
      }
    },
  });
  withErrorCodes(router);
  const handlers = new Map<string, Handler>();
  for (const connect of router.handlers) {
    const { requestPath, method } = connect;
    const answer = answers.get(requestPath);
    if (answer === undefined || method.methodKind !== "unary") {
      throw millpondError("MILLPOND_E_INTERNAL", `${requestPath} is not unary`);
    }
    handlers.set(requestPath, { method: method as DescMethodUnary, answer, guard, connect });
  }
  return handlers;
}

function headerOf(headers: Headers): (name: string) => string | null {
  return (name) => headers.get(name);
}

/** Routes Connect's handlers through the guard. */
function guarding(guard: CallGuard): Interceptor {
  return (next) => async (request) => {
    const { method, contextValues: values, signal, header } = request;
    const call = { method, values, signal, header: headerOf(header) };
    return await guard.run(call, request.message, async () => {
      const response = await next(request);
      const turns = values.get(turnsKey);
      if (turns === undefined || response.stream) return response;
      const format = /json/i.test(header.get("content-type") ?? "") ? "json" : "binary";
      values.set(serializedKey, await serializeInTurns(method.output, response.message, format, turns));
      return { ...response, message: create(method.output) };
    });
  };
}

/**
 * Connect itself refuses malformed requests before our code sees them. These refusals get their message and
 * code here, so that every error over plain HTTP names the problem and ends with a code.
 */
function withErrorCodes(router: ConnectRouter): void {
  for (const [position, handler] of router.handlers.entries()) {
    const call: UniversalHandlerFn = async (request) => {
      const response = await handler(request);
      const type = response.header?.get("content-type");
      if (response.status < 400 || (type !== undefined && type !== null && type !== "application/json")) {
        return response;
      }
      const header = new Headers(response.header);
      const written = decompress(await readAll(response.body), header.get("content-encoding"));
      const body = withErrorCode(response.status, written);
      header.delete("content-encoding");
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
  // Only messages that Connect could not parse arrive without a code.
  const refused = millpondError("MILLPOND_E_INVALID", error.message || error.code);
  return Buffer.from(JSON.stringify({ ...errorToJson(refused, undefined), code: error.code }));
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

/** Connect compresses bodies longer than 1 KiB, errors too. */
function decompress(bytes: Uint8Array, encoding: string | null): Uint8Array {
  switch (encoding) {
    case "gzip":
      return gunzipSync(bytes);
    case "br":
      return brotliDecompressSync(bytes);
    default:
      return bytes;
  }
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
