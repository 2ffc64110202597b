// SPDX-License-Identifier: Apache-2.0

import { gzipSync } from "node:zlib";

const blockBytes = 512;
/** Longest path in the header of a file. */
const mostNameBytes = 100;

/** A file of an archive. */
export interface ArchivedFile {
  readonly path: string;
  readonly content: string;
}

/**
 * Packs files as a compressed tar archive (ustar), readable by their owner only.
 *
 * @param seconds the time of all files, Unix seconds
 */
export function packArchive(files: readonly ArchivedFile[], seconds: number): Buffer {
  const blocks = files.flatMap(({ path, content }) => {
    const bytes = Buffer.from(content);
    const padding = Buffer.alloc((blockBytes - (bytes.length % blockBytes)) % blockBytes);
    return [headerOf(path, bytes.length, seconds), bytes, padding];
  });
  return gzipSync(Buffer.concat([...blocks, Buffer.alloc(2 * blockBytes)]));
}

function headerOf(path: string, size: number, seconds: number): Buffer {
  if (Buffer.byteLength(path) > mostNameBytes) throw new Error(`${path} is too long for an archive`);
  const header = Buffer.alloc(blockBytes);
  const octal = (value: number, digits: number): string => `${value.toString(8).padStart(digits, "0")}\0`;
  header.write(path, 0);
  header.write(octal(0o600, 7), 100);
  header.write(octal(0, 7), 108);
  header.write(octal(0, 7), 116);
  header.write(octal(size, 11), 124);
  header.write(octal(seconds, 11), 136);
  // The checksum of the header is computed with spaces in its own place.
  header.write("        ", 148);
  header.write("0", 156);
  header.write("ustar\x0000", 257);
  const sum = header.reduce((total, byte) => total + byte, 0);
  header.write(`${sum.toString(8).padStart(6, "0")}\0 `, 148);
  return header;
}
