// SPDX-License-Identifier: Apache-2.0

import type { IncomingMessage } from "node:http";
import { Code, ConnectError } from "@connectrpc/connect";

/** Reads slightly beyond the limit if there is more, so that the caller detects the excess. */
export async function readBody(request: IncomingMessage, most: number): Promise<Uint8Array> {
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

/**
 * Waits for the end of a request whose rest is discarded. Called before a refusal: a client that is answered before it
 * has sent its whole request may never finish sending it, and would keep its connection forever.
 */
export async function drainBody(request: IncomingMessage, most: number): Promise<void> {
  if (request.complete) {
    return;
  }
  const { promise, resolve } = Promise.withResolvers<undefined>();
  let size = 0;
  // The data is discarded: the sender is not authenticated.
  request.on("data", (chunk: Buffer) => {
    size += chunk.byteLength;
    if (size > most) {
      resolve(undefined);
    }
  });
  // A client that breaks off gets no answer anyway.
  for (const event of ["end", "error", "close"]) {
    request.once(event, () => resolve(undefined));
  }
  await promise;
}
