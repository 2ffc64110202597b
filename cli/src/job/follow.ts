// SPDX-License-Identifier: Apache-2.0

import { open } from "node:fs/promises";
import { setTimeout as delay } from "node:timers/promises";

const chunkBytes = 65_536;
const pollMs = 100;

/** Returns the offset at which the last `lines` lines of a file begin. */
export async function startOfLastLines(path: string, lines: number): Promise<number> {
  await using file = await open(path, "r");
  const { size } = await file.stat();
  if (lines === 0) return size;
  const buffer = Buffer.alloc(chunkBytes);
  let found = 0;
  for (let end = size; end > 0; ) {
    const start = Math.max(0, end - chunkBytes);
    const { bytesRead } = await file.read(buffer, 0, end - start, start);
    for (let index = bytesRead - 1; index >= 0; index -= 1) {
      // A line feed at the end of the file ends the last line and does not begin another.
      if (buffer[index] !== 10 || start + index === size - 1) continue;
      found += 1;
      if (found === lines) return start + index + 1;
    }
    end = start;
  }
  return 0;
}

export interface FollowOptions {
  readonly from: number;
  readonly signal: AbortSignal;
  /** Whether writing has ended; called before the last read. */
  readonly isOver: () => boolean;
  /** Accepts output; resolves when there is room for more. */
  readonly write: (chunk: Buffer) => Promise<void>;
}

/** Writes the contents of a file from an offset on, and whatever is appended until `isOver` holds. */
export async function follow(path: string, { from, signal, isOver, write }: FollowOptions): Promise<void> {
  await using file = await open(path, "r");
  let position = from;
  while (!signal.aborted) {
    const isLast = isOver();
    for (;;) {
      const buffer = Buffer.alloc(chunkBytes);
      const { bytesRead } = await file.read(buffer, 0, chunkBytes, position);
      if (bytesRead === 0) break;
      position += bytesRead;
      await write(buffer.subarray(0, bytesRead));
      if (signal.aborted) return;
    }
    if (isLast) return;
    // A log that was truncated is read from the beginning.
    if ((await file.stat()).size < position) position = 0;
    await delay(pollMs, undefined, { signal }).catch((error: unknown) => {
      if (!signal.aborted) throw error;
    });
  }
}

/** Writes to standard output, and waits for a slow reader (backpressure). */
export function toStandardOutput(chunk: Buffer): Promise<void> {
  return new Promise((resolve) => {
    process.stdout.write(chunk, () => resolve());
  });
}
