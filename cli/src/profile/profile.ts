// SPDX-License-Identifier: Apache-2.0

import { mkdtempSync, readdirSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { countOf, millpondError, quote } from "@millpond/api";
import { readTraceFile } from "../trace/read.ts";
import { ChromeTrace } from "./chrome-trace.ts";
import { type ProfileHeader, readProfile } from "./records.ts";

/** The profile of a program that is about to run: the files of its processes, and how they are merged when it has ended. */
export class Profile implements Disposable {
  readonly #file: string;
  readonly #folder: string;

  /** @throws MILLPOND_E_INVALID for a file that cannot be written */
  constructor(file: string) {
    this.#file = resolve(file);
    try {
      writeFileSync(this.#file, "");
    } catch (error) {
      const why = error instanceof Error ? error.message : String(error);
      throw millpondError("MILLPOND_E_INVALID", `--profile ${quote(file)} cannot be written: ${why}`);
    }
    this.#folder = mkdtempSync(join(tmpdir(), "millpond-profile-"));
  }

  /** Where the client library writes the calls of all processes. */
  get callsFile(): string {
    return join(this.#folder, "calls");
  }

  /** The value of MILLPOND_PROFILE: each process has a file. */
  get deviceFiles(): string {
    return join(this.#folder, "device.%p");
  }

  /** Merges the files of the processes. Returns a sentence for display. */
  async write(): Promise<string> {
    const trace = new ChromeTrace(this.#file);
    let lost = 0;
    try {
      if (statSync(this.callsFile, { throwIfNoEntry: false }) !== undefined) {
        for await (const entry of readTraceFile(this.callsFile)) {
          if (entry.kind === "header") trace.process(entry.header);
          else if (entry.kind === "call") trace.call(entry.call);
        }
      }
      for (const name of readdirSync(this.#folder).filter((each) => each.startsWith("device."))) {
        lost += await this.#addDevice(join(this.#folder, name), trace);
      }
    } finally {
      trace.close();
    }
    const { calls, kernels, copies, fills } = trace.counts;
    const dropped =
      lost > 0 ? `; ${lost} more were lost, for they came faster than they could be written` : "";
    const all = [
      countOf(calls, "call"),
      countOf(kernels, "kernel"),
      countOf(copies, "copy", "copies"),
      countOf(fills, "fill"),
    ];
    return `profile ${this.#file}: ${all.join(", ")}${dropped}`;
  }

  async #addDevice(path: string, trace: ChromeTrace): Promise<number> {
    let header: ProfileHeader | undefined;
    let lost = 0;
    for await (const entry of readProfile(path)) {
      if (entry.kind === "header") header = entry.header;
      else if (entry.kind === "lost") lost = entry.records;
      else if (header !== undefined) trace.record(header, entry);
    }
    return lost;
  }

  [Symbol.dispose](): void {
    rmSync(this.#folder, { recursive: true, force: true });
  }
}
