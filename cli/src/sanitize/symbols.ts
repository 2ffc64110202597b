// SPDX-License-Identifier: Apache-2.0

// Names and lines for stack frames, by addr2line of GNU binutils or LLVM if one is installed.

import { execFileSync } from "node:child_process";
import { basename } from "node:path";
import type { Frame } from "../trace/line.ts";

/** Time limit for naming the frames of one file. */
const limitMs = 20_000;

/** The number of frames of a stack that a report shows. */
const mostFrames = 12;

/** Returns a text for each requested frame: `function at file:line`, or less without debug information. */
export class Symbols {
  readonly #named = new Map<string, string>();
  readonly #commands: readonly string[];

  constructor(commands: readonly string[] = ["addr2line", "llvm-addr2line"]) {
    this.#commands = commands;
  }

  /** Texts of the frames of a stack, innermost first; the outermost ones are omitted if there are many. */
  describe(stack: readonly Frame[]): readonly string[] {
    const shown = stack.slice(0, mostFrames);
    const missing = shown.filter((frame) => !this.#named.has(keyOf(frame)));
    for (const [file, frames] of Map.groupBy(missing, (frame) => frame.file)) this.#name(file, frames);
    const rest = stack.length - shown.length;
    return [
      ...shown.map((frame) => this.#named.get(keyOf(frame)) ?? ""),
      ...(rest > 0 ? [`${rest} more`] : []),
    ];
  }

  #name(file: string, frames: readonly Frame[]): void {
    const lines = file === "" ? [] : this.#lookUp(file, frames);
    for (const [index, frame] of frames.entries()) {
      const name = lines[2 * index] ?? "??";
      const place = (lines[2 * index + 1] ?? "??").replace(/ \(discriminator \d+\)$/, "");
      const where = `${file === "" ? "code made at run time" : basename(file)}+${frame.offset}`;
      const known = name === "??" || name === "" ? frame.symbol : name;
      const text = known === undefined ? where : `${known} in ${where}`;
      this.#named.set(keyOf(frame), place.startsWith("??") ? text : `${known ?? where} at ${place}`);
    }
  }

  /** Two lines for each frame: its function, and its place in the source. */
  #lookUp(file: string, frames: readonly Frame[]): readonly string[] {
    const args = ["-C", "-f", "-e", file, ...frames.map(({ offset }) => offset)];
    for (const command of this.#commands) {
      try {
        return execFileSync(command, args, {
          encoding: "utf8",
          timeout: limitMs,
          stdio: ["ignore", "pipe", "ignore"],
        }).split("\n");
      } catch {
        // addr2line is not installed or cannot read the file: the names of the dynamic symbols remain.
      }
    }
    return [];
  }
}

const keyOf = ({ file, offset }: Frame): string => `${file}+${offset}`;
