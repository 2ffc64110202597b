// SPDX-License-Identifier: Apache-2.0

import { setTimeout as delay } from "node:timers/promises";
import { ConnectError } from "@connectrpc/connect";
import { millpondError } from "@millpond/api";
import { exitStatus } from "../../command-table/command-table.ts";
import type { Values } from "../../command-line/command-values.ts";
import { type Connection, openConnection } from "../../connection/connection.ts";
import { draw, fitted, roomFor } from "../../top/picture.ts";
import { type Key, orderOf, press, startState, type TopState } from "../../top/state.ts";
import { Terminal } from "../../top/terminal.ts";
import { describedAs, fetchRows, type Rows, viewNames } from "../../top/views.ts";
import { renderDescription } from "./describe.ts";

const defaultIntervalSeconds = 2;
const maxIntervalSeconds = 600;
/** The largest fraction of the time that is spent in calls, which limits the load on a pool that answers slowly. */
const askingPart = 0.25;
/** Width of the printed output if the terminal's width is unknown. */
const widthWithoutTerminal = 120;

export async function run(values: Values<"top">, [view = "devices"]: readonly string[]): Promise<number> {
  const connection = openConnection(values);
  const intervalMs = readInterval(values.delay) * 1000;
  const name = viewNames.find((known) => known === view) ?? "devices";
  const state = startState(name, values.filter ?? "");
  const rows = await fetchRows(connection, name);
  if (values.once || !process.stdout.isTTY || !process.stdin.isTTY) {
    const lines = draw(
      { rows, state, details: undefined, trouble: undefined, where: connection.controller },
      { columns: process.stdout.columns ?? widthWithoutTerminal, lines: orderOf(rows, state).length + 5 },
    );
    const printed = lines.slice(1, -2).map(({ text }) => text.trimEnd());
    process.stdout.write(`${printed.join("\n")}\n`);
    return exitStatus.ok;
  }
  await new Watching(connection, state, rows, intervalMs).run();
  return exitStatus.ok;
}

function readInterval(seconds: number | undefined): number {
  if (seconds === undefined) return defaultIntervalSeconds;
  if (seconds >= 1 && seconds <= maxIntervalSeconds) return seconds;
  throw millpondError("MILLPOND_E_INVALID", `--delay is ${seconds} s, and 1s to 10m are possible`);
}

/** The view of the pool on a terminal, until the user ends it. */
class Watching {
  readonly #connection: Connection;
  readonly #intervalMs: number;
  #state: TopState;
  #rows: Rows;
  #details: string | undefined;
  #trouble: string | undefined;
  #knownAt = performance.now();
  /** Ends the pause between two calls. */
  #hurry = new AbortController();
  readonly #done = new AbortController();
  #terminal: Terminal | undefined;

  constructor(connection: Connection, state: TopState, rows: Rows, intervalMs: number) {
    this.#connection = connection;
    this.#state = state;
    this.#rows = rows;
    this.#intervalMs = intervalMs;
  }

  async run(): Promise<void> {
    using terminal = new Terminal({
      input: process.stdin,
      output: process.stdout,
      onKey: (key) => this.#press(key),
      onSize: () => this.#draw(),
    });
    this.#terminal = terminal;
    const stop = (): void => this.#done.abort();
    for (const signal of ["SIGTERM", "SIGHUP"] as const) process.once(signal, stop);
    this.#draw();
    while (!this.#done.signal.aborted) {
      const began = performance.now();
      if (!this.#state.isPaused) await this.#ask();
      const tookMs = performance.now() - began;
      if (!this.#hurry.signal.aborted) {
        const pauseMs = Math.max(this.#intervalMs, tookMs / askingPart);
        await delay(pauseMs, undefined, {
          signal: AbortSignal.any([this.#hurry.signal, this.#done.signal]),
        }).catch(ignoreAbort);
      }
      this.#hurry = new AbortController();
    }
    for (const signal of ["SIGTERM", "SIGHUP"] as const) process.off(signal, stop);
  }

  #press(key: Key): void {
    const before = this.#state;
    this.#state = press(before, key, fitted(this.#rows, this.#size), roomFor(this.#size));
    if (this.#state.isDone) this.#done.abort();
    if (this.#state.view !== before.view)
      this.#rows = { ...this.#rows, columns: [], count: 0, summary: "asking ..." };
    const isOther = this.#state.view !== before.view || this.#state.page !== before.page;
    if (this.#state.page === "details" && before.page !== "details") this.#details = undefined;
    if (isOther || (before.isPaused && !this.#state.isPaused)) this.#hurry.abort();
    this.#draw();
  }

  get #size() {
    return this.#terminal?.size ?? { columns: 80, lines: 24 };
  }

  /** Refreshes the rows. When that fails, the last ones stay with their age: old data must not look like new. */
  async #ask(): Promise<void> {
    const { view, page, chosen } = this.#state;
    try {
      const rows = await fetchRows(this.#connection, view);
      // A key may have been pressed in the meantime.
      if (view !== this.#state.view) return;
      this.#rows = rows;
      if (page === "details" && chosen !== "") {
        const asked = { output: undefined };
        const text = await renderDescription(this.#connection, asked, describedAs[view], chosen);
        if (chosen === this.#state.chosen) this.#details = text.trimEnd();
      }
      this.#trouble = undefined;
      this.#knownAt = performance.now();
    } catch (error) {
      if (!(error instanceof ConnectError)) throw error;
      const ageSeconds = Math.round((performance.now() - this.#knownAt) / 1000);
      this.#trouble = `${ageSeconds} s old: ${error.rawMessage}`;
    }
    this.#draw();
  }

  #draw(): void {
    if (this.#terminal === undefined || this.#done.signal.aborted) return;
    const shown = {
      rows: this.#rows,
      state: this.#state,
      details: this.#details,
      trouble: this.#trouble,
      where: this.#connection.controller,
    };
    this.#terminal.draw(draw(shown, this.#size));
  }
}

function ignoreAbort(error: unknown): void {
  if (!(error instanceof Error && error.name === "AbortError")) throw error;
}
