// SPDX-License-Identifier: Apache-2.0

import { styleText } from "node:util";
import { formatAge, formatDuration } from "@millpond/api";

const frames = ["⠋", "⠙", "⠹", "⠸", "⠼", "⠴", "⠦", "⠧", "⠇", "⠏"] as const;
const frameMs = 100;

/** A stream like standard error, which may be a terminal. */
export interface DisplayStream {
  readonly isTTY?: boolean;
  readonly columns?: number;
  write(text: string): unknown;
}

/** The state of a waiting claim; the head fits on a narrow terminal. */
export interface Standing {
  /** Its name and its position. */
  readonly head: string;
  /** The reason of the wait. */
  readonly rest: string;
  /** Latest time at which room is expected, Unix seconds; 0: unknown. */
  readonly expectedAt: number;
}

/** Time after which the same line is written to a log again. */
const repeatMs = 300_000;

/**
 * Shows why the command waits: on a terminal in one line with a spinner, otherwise one line for each change. When a wait
 * alternates between reasons, as while a controller is unavailable, a log gets each line once in five minutes.
 */
export class WaitingDisplay implements Disposable {
  readonly #stream: DisplayStream;
  readonly #startedAt = Date.now();
  readonly #saidAt = new Map<string, number>();
  #text = "";
  #standing: Standing | undefined;
  #frame = 0;
  #timer: NodeJS.Timeout | undefined;

  constructor(stream: DisplayStream = process.stderr) {
    this.#stream = stream;
  }

  /** Whether anything has been shown yet. */
  get isShown(): boolean {
    return this.#text !== "";
  }

  show(text: string, standing?: Standing): void {
    this.#standing = standing;
    if (text === this.#text) return;
    this.#text = text;
    if (!this.#stream.isTTY) {
      const now = Date.now();
      if (now - (this.#saidAt.get(text) ?? Number.NEGATIVE_INFINITY) < repeatMs) return;
      this.#saidAt.set(text, now);
      this.#stream.write(`millpond: ${text}${standing === undefined ? "" : expectation(standing)}\n`);
      return;
    }
    this.#timer ??= setInterval(() => this.#draw(), frameMs);
    this.#draw();
  }

  /** Removes the line with the spinner. If a line was shown, leaves one that says how the wait ended. */
  end(text: string): void {
    const wasShown = this.isShown;
    this[Symbol.dispose]();
    if (wasShown) this.#stream.write(`millpond: ${text} after ${this.#elapsed()}\n`);
  }

  [Symbol.dispose](): void {
    clearInterval(this.#timer);
    if (this.#timer !== undefined) this.#stream.write("\r\x1b[K");
    this.#timer = undefined;
    this.#text = "";
  }

  #elapsed(): string {
    return formatDuration((Date.now() - this.#startedAt) / 1000);
  }

  #draw(): void {
    const frame = frames[this.#frame % frames.length] ?? "";
    this.#frame += 1;
    // A line longer than the terminal's width would wrap, and could not be erased. In ASCII, `…` has three characters.
    const room = (this.#stream.columns ?? 80) - 4;
    const standing = this.#standing;
    const line =
      standing === undefined
        ? `${this.#text}  ${this.#elapsed()}`
        : `${standing.head}, waiting ${this.#elapsed()}${expectation(standing)}: ${standing.rest}`;
    const shown = line.length > room ? `${line.slice(0, room - 1)}…` : line;
    this.#stream.write(`\r${styleText("cyan", frame, { validateStream: false })} ${shown}\x1b[K`);
  }
}

/** `, room expected within 4m`; empty if unknown. */
function expectation({ expectedAt }: Standing): string {
  const seconds = expectedAt - Date.now() / 1000;
  if (expectedAt === 0) return "";
  return seconds < 1 ? ", room expected now" : `, room expected within ${formatAge(Math.ceil(seconds))}`;
}
