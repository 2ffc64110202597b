// SPDX-License-Identifier: Apache-2.0

// Connect's unary protocol in its simplest form: binary messages over POST, without compression or timeout. Agents and
// our command line call this way, thousands of times a second.

import type { IncomingMessage, ServerResponse } from "node:http";
import { create, type DescMessage, fromBinary, type Message, toBinary } from "@bufbuild/protobuf";
import { ConnectError, createContextValues } from "@connectrpc/connect";
import {
  codeToHttpStatus,
  contentTypeUnaryJson,
  contentTypeUnaryProto,
  errorToJsonBytes,
} from "@connectrpc/connect/protocol-connect";
import { millpondError } from "@millpond/api";
import { admissionKey, type GuardedCall } from "../auth/call-guard.ts";
import type { Caller } from "../domain/caller.ts";
import { turnsKey } from "../auth/fairness/fair-turns.ts";
import { callerKey } from "../auth/visibility.ts";
import { type Handler, maxRequestBytes } from "./handlers.ts";
import { drainBody, readBody } from "./request-body.ts";
import { serializeInTurns } from "./serialized-answers.ts";

/** Whether a request can be answered here. */
export function isDirect({ method, headers }: IncomingMessage): boolean {
  return (
    method === "POST" &&
    headers["content-type"] === contentTypeUnaryProto &&
    Number(headers["content-length"]) <= maxRequestBytes &&
    headers["content-encoding"] === undefined &&
    headers["connect-timeout-ms"] === undefined
  );
}

/** A call in progress. */
export class DirectCall implements GuardedCall {
  readonly values = createContextValues();
  readonly header: GuardedCall["header"];
  readonly #handler: Handler;
  readonly #request: IncomingMessage;
  readonly #keep: (caller: Caller | undefined) => void;
  /** Created on demand: most methods do not read it. */
  #abort: AbortController | undefined;
  #ended: { readonly reason: unknown } | undefined;

  /**
   * @param keep Decides whether a caller's connection is kept after the answer; undefined: no caller was authenticated.
   */
  constructor(handler: Handler, request: IncomingMessage, keep: (caller: Caller | undefined) => void) {
    this.#handler = handler;
    this.#request = request;
    this.#keep = keep;
    this.header = (name) => {
      const value = request.headers[name];
      return typeof value === "string" ? value : null;
    };
  }

  get method() {
    return this.#handler.method;
  }

  get signal(): AbortSignal {
    if (this.#abort === undefined) {
      this.#abort = new AbortController();
      if (this.#ended !== undefined) {
        this.#abort.abort(this.#ended.reason);
      }
    }
    return this.#abort.signal;
  }

  /** Ends the call with this error. */
  abort(reason: unknown): void {
    this.#ended ??= { reason };
    this.#abort?.abort(reason);
  }

  async answer(response: ServerResponse): Promise<void> {
    try {
      await this.#answer(response);
    } finally {
      this.values.get(admissionKey)?.[Symbol.dispose]();
    }
  }

  async #answer(response: ServerResponse): Promise<void> {
    let bytes: Uint8Array;
    try {
      bytes = await this.#run();
    } catch (error) {
      await drainBody(this.#request, maxRequestBytes);
      this.#keep(this.values.get(callerKey));
      refuse(response, error);
      return;
    }
    this.#keep(this.values.get(callerKey));
    response.writeHead(200, { "content-type": contentTypeUnaryProto, "content-length": bytes.byteLength });
    response.end(bytes);
  }

  async #run(): Promise<Uint8Array> {
    const { guard, method, answer } = this.#handler;
    await guard.admit(this);
    const message = parse(method.input, await readBody(this.#request, maxRequestBytes));
    let written: Uint8Array | undefined;
    const output = await guard.run(this, message, async () => {
      const made = await answer(message, this);
      const turns = this.values.get(turnsKey);
      if (turns !== undefined) {
        written = await serializeInTurns(method.output, create(method.output, made), "binary", turns);
      }
      return made;
    });
    return written ?? toBinary(method.output, create(method.output, output));
  }
}

/** @throws MILLPOND_E_INVALID */
function parse(schema: DescMessage, bytes: Uint8Array): Message {
  try {
    return fromBinary(schema, bytes);
  } catch (cause) {
    const message = cause instanceof Error ? cause.message : String(cause);
    throw millpondError("MILLPOND_E_INVALID", `cannot decode message ${schema.typeName}: ${message}`, {
      cause,
    });
  }
}

function refuse(response: ServerResponse, error: unknown): void {
  const failure =
    error instanceof ConnectError
      ? error
      : millpondError("MILLPOND_E_INTERNAL", "the call failed inside the controller", { cause: error });
  const bytes = errorToJsonBytes(failure, undefined);
  response.writeHead(codeToHttpStatus(failure.code), {
    ...Object.fromEntries(failure.metadata),
    "content-type": contentTypeUnaryJson,
    "content-length": bytes.byteLength,
  });
  response.end(bytes);
}
