// SPDX-License-Identifier: Apache-2.0

// The terminal of `millpond top`: the alternate screen, keys as they are pressed, and only changed lines written.

import { emitKeypressEvents } from "node:readline";
import type { ReadStream, WriteStream } from "node:tty";
import type { Line, Style } from "./picture.ts";
import type { Key, Size } from "./state.ts";

const enter = "\x1b[?1049h\x1b[?25l\x1b[2J";
const leave = "\x1b[?25h\x1b[?1049l";

/** Selected lines and titles stand out on any terminal; colours are used only if the terminal has them. */
const styles: Readonly<Record<Style, { readonly colour: string; readonly plain: string }>> = {
  title: { colour: "\x1b[1m", plain: "\x1b[1m" },
  chosen: { colour: "\x1b[7m", plain: "\x1b[7m" },
  alarm: { colour: "\x1b[33m", plain: "\x1b[1m" },
  good: { colour: "\x1b[32m", plain: "" },
  bad: { colour: "\x1b[31m", plain: "" },
  dim: { colour: "\x1b[2m", plain: "" },
  plain: { colour: "", plain: "" },
};

/** Disposing of it restores the terminal. */
export class Terminal implements Disposable {
  readonly #input: ReadStream;
  readonly #output: WriteStream;
  readonly #onKey: (key: Key) => void;
  readonly #onSize: () => void;
  #drawn: readonly string[] = [];

  constructor(options: {
    readonly input: ReadStream;
    readonly output: WriteStream;
    readonly onKey: (key: Key) => void;
    readonly onSize: () => void;
  }) {
    this.#input = options.input;
    this.#output = options.output;
    this.#onKey = options.onKey;
    this.#onSize = options.onSize;
    emitKeypressEvents(this.#input);
    this.#input.setRawMode(true);
    this.#input.on("keypress", this.#press);
    this.#input.resume();
    this.#output.on("resize", this.#resize);
    // Restores the terminal for the shell, however this process ends.
    process.on("exit", this.#restore);
    this.#output.write(enter);
  }

  get size(): Size {
    return { columns: this.#output.columns, lines: this.#output.rows };
  }

  draw(lines: readonly Line[]): void {
    const hasColours = this.#output.hasColors();
    const texts = lines.map(({ text, style }) => {
      const begin = styles[style][hasColours ? "colour" : "plain"];
      return begin === "" ? text : `${begin}${text}\x1b[0m`;
    });
    const changes = texts.flatMap((text, line) =>
      text === this.#drawn[line] ? [] : [`\x1b[${line + 1};1H${text}`],
    );
    // One write, so that a slow connection shows no half-drawn screens.
    if (changes.length > 0) this.#output.write(changes.join(""));
    this.#drawn = texts;
  }

  [Symbol.dispose](): void {
    this.#input.off("keypress", this.#press);
    this.#output.off("resize", this.#resize);
    process.off("exit", this.#restore);
    this.#restore();
    this.#input.pause();
  }

  readonly #press = (_text: string | undefined, key: Key): void => this.#onKey(key);
  readonly #resize = (): void => {
    this.#drawn = [];
    this.#output.write("\x1b[2J");
    this.#onSize();
  };
  readonly #restore = (): void => {
    this.#input.setRawMode(false);
    this.#output.write(leave);
  };
}
