// SPDX-License-Identifier: Apache-2.0

import { createReadStream } from "node:fs";
import { millpondError, quote } from "@millpond/api";

/** No file that is read as a whole is larger than this. */
const mostBytes = 16 * 1024 * 1024;

/**
 * Reads a text, from standard input if the path is `-`. Asynchronously, because a pipe may be empty at first.
 *
 * @param what What it is, for messages: `file`, `token file`.
 * @throws MILLPOND_E_INVALID
 */
export async function readInputFile(path: string, what: string): Promise<string> {
  const name = path === "-" ? "standard input" : `the ${what} ${quote(path)}`;
  const chunks: Buffer[] = [];
  let size = 0;
  try {
    for await (const chunk of path === "-" ? process.stdin : createReadStream(path)) {
      const bytes = Buffer.from(chunk as Buffer | string);
      size += bytes.length;
      if (size > mostBytes) throw new Error("it is longer than 16 MiB");
      chunks.push(bytes);
    }
  } catch (cause) {
    const why = cause instanceof Error ? cause.message : String(cause);
    throw millpondError("MILLPOND_E_INVALID", `${name} cannot be read: ${why}`, { cause });
  }
  return Buffer.concat(chunks).toString("utf8");
}
