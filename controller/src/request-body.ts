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
