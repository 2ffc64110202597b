// SPDX-License-Identifier: Apache-2.0

import type { IncomingMessage } from "node:http";
import { Code, ConnectError } from "@connectrpc/connect";

/** Reads a little more than the most, when there is more: whoever counts shall see it. */
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
 * Waits for the end of a request of which nobody needs more. To be done before it is refused: a client that is answered
 * before it has said all may forget to end what it was saying, and waits with that connection for ever.
 */
export async function outwait(request: IncomingMessage, most: number): Promise<void> {
  if (request.complete) {
    return;
  }
  const { promise, resolve } = Promise.withResolvers<undefined>();
  let size = 0;
  // Nothing of it is kept: whoever says it may be anybody.
  request.on("data", (chunk: Buffer) => {
    size += chunk.byteLength;
    if (size > most) {
      resolve(undefined);
    }
  });
  // One that breaks off gets no answer anyway.
  for (const event of ["end", "error", "close"]) {
    request.once(event, () => resolve(undefined));
  }
  await promise;
}
