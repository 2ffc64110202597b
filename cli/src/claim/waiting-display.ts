// SPDX-License-Identifier: Apache-2.0

import { styleText } from "node:util";
import { formatDuration } from "@millpond/api";

const frames = ["⠋", "⠙", "⠹", "⠸", "⠼", "⠴", "⠦", "⠧", "⠇", "⠏"] as const;
const frameMs = 100;

/** A stream like standard error: written to, and perhaps a terminal. */
export interface DisplayStream {
  readonly isTTY?: boolean;
  readonly columns?: number;
  write(text: string): unknown;
}

/** In a log the same is not said again before so long. */
const repeatMs = 300_000;

/**
 * Says why something is waited for: one line that turns on a terminal, else one line for each change. Of a wait that goes to
 * and fro, as while a controller is away, a log gets each line once in five minutes.
 */
export class WaitingDisplay implements Disposable {
  readonly #stream: DisplayStream;
  readonly #startedAt = Date.now();
  readonly #saidAt = new Map<string, number>();
  #text = "";
  #frame = 0;
  #timer: NodeJS.Timeout | undefined;

  constructor(stream: DisplayStream = process.stderr) {
    this.#stream = stream;
  }

  /** Whether anything was shown yet. */
  get isShown(): boolean {
    return this.#text !== "";
  }

  show(text: string): void {
    if (text === this.#text) return;
    this.#text = text;
    if (!this.#stream.isTTY) {
      const now = Date.now();
      if (now - (this.#saidAt.get(text) ?? Number.NEGATIVE_INFINITY) < repeatMs) return;
      this.#saidAt.set(text, now);
      this.#stream.write(`millpond: ${text}\n`);
      return;
    }
    this.#timer ??= setInterval(() => this.#draw(), frameMs);
    this.#draw();
  }

  /** Takes the turning line away and, when something was shown, leaves one that says how it ended. */
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
    // A line longer than the terminal would wrap, and could not be taken back.
    const room = (this.#stream.columns ?? 80) - 2;
    const line = `${this.#text}  ${this.#elapsed()}`;
    const shown = line.length > room ? `${line.slice(0, room - 1)}…` : line;
    this.#stream.write(`\r${styleText("cyan", frame, { validateStream: false })} ${shown}\x1b[K`);
  }
}
