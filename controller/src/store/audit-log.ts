// SPDX-License-Identifier: Apache-2.0

// The audit in a file outside of the state: JSON lines, which other tools collect. Each line has a hash over itself and the line
// before it, as the records of the store have.

import { constants } from "node:fs";
import { type FileHandle, open } from "node:fs/promises";
import { type AuditLink, auditHash, millpondError } from "@millpond/api";
import type { Logger } from "pino";
import type { AuditEntry } from "../domain/records.ts";
import type { AuditSink } from "../state/audit.ts";

export interface AuditLogOptions {
  /** A file to append to, or a named pipe. The file is created with mode 0600. */
  readonly path: string;
  /** Whether changes are refused while the file cannot be written. */
  readonly isRequired: boolean;
  readonly log: Logger;
}

/** How many bytes at the end of a file are read to find its last line: every line is shorter. */
const tailBytes = 1 << 16;

/** Interval between log lines about a file that cannot be written. */
const tellAfterMs = 10_000;

export class AuditLog implements AuditSink, AsyncDisposable {
  readonly #options: AuditLogOptions;
  #file: FileHandle | undefined;
  /** Identity and hash of the last line; empty: there is none. */
  #last: Pick<AuditLink, "id" | "hash"> = { id: 0, hash: "" };
  /** A write was interrupted, so the file may end in the middle of a line. */
  #isTorn = false;
  #lost = 0;
  #toldMs = Number.NEGATIVE_INFINITY;
  /** Writes are sequential. */
  #work: Promise<void> = Promise.resolve();

  private constructor(options: AuditLogOptions) {
    this.#options = options;
  }

  /** @throws MILLPOND_E_AUDIT_LOG where the file is required and cannot be opened */
  static async open(options: AuditLogOptions): Promise<AuditLog> {
    const log = new AuditLog(options);
    try {
      await log.#reopen();
    } catch (error) {
      log.#fail(error, 0);
    }
    return log;
  }

  /** @throws MILLPOND_E_AUDIT_LOG */
  async write(entries: readonly AuditEntry[]): Promise<void> {
    const work = this.#work.then(() => this.#write(entries));
    this.#work = work.catch(() => undefined);
    await work;
  }

  /** Reopens the file, which may have been renamed for rotation. */
  reload(): void {
    this.#work = this.#work.then(() => this.#close());
  }

  async #write(entries: readonly AuditEntry[]): Promise<void> {
    try {
      const file = this.#file ?? (await this.#reopen());
      let { id, hash } = this.#last;
      const lines = entries.map((entry) => {
        const previousHash = hash;
        hash = auditHash(previousHash, entry);
        id = Number(id) + 1;
        const time = new Date(entry.at * 1000).toISOString();
        return `${JSON.stringify({ id, time, ...entry, previousHash, hash })}\n`;
      });
      const isTorn = this.#isTorn;
      this.#isTorn = true;
      await file.appendFile(`${isTorn ? "\n" : ""}${lines.join("")}`);
      if ((await file.stat()).isFile()) {
        await file.datasync();
      }
      this.#isTorn = false;
      this.#last = { id, hash };
    } catch (error) {
      await this.#close();
      this.#fail(error, entries.length);
    }
  }

  /** An earlier controller may have written the last line: the chain continues from it. */
  async #reopen(): Promise<FileHandle> {
    const { path } = this.#options;
    // Opening a pipe only for writing would block until it has a reader.
    const file = await open(path, constants.O_RDWR | constants.O_APPEND | constants.O_CREAT, 0o600);
    this.#file = file;
    const { size } = await file.stat();
    if (size > 0) {
      const start = Math.max(0, size - tailBytes);
      const { buffer, bytesRead } = await file.read(Buffer.alloc(size - start), 0, size - start, start);
      const text = buffer.subarray(0, bytesRead).toString("utf8");
      this.#isTorn = !text.endsWith("\n");
      this.#last =
        text
          .split("\n")
          .map(parseLink)
          .findLast((link) => link !== undefined) ?? this.#last;
    }
    return file;
  }

  async #close(): Promise<void> {
    const file = this.#file;
    this.#file = undefined;
    await file?.close();
  }

  #fail(error: unknown, records: number): void {
    const { path, isRequired, log } = this.#options;
    const message = error instanceof Error ? error.message : String(error);
    if (isRequired) {
      throw millpondError("MILLPOND_E_AUDIT_LOG", `the audit log ${path} cannot be written: ${message}`, {
        cause: error,
      });
    }
    this.#lost += records;
    const nowMs = performance.now();
    if (nowMs - this.#toldMs >= tellAfterMs) {
      this.#toldMs = nowMs;
      log.error({ err: error, records: this.#lost }, "audit records could not be written to the audit log");
      this.#lost = 0;
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#work;
    await this.#close();
  }
}

function parseLink(line: string): Pick<AuditLink, "id" | "hash"> | undefined {
  let value: unknown;
  try {
    value = JSON.parse(line);
  } catch {
    // The first line of the part that was read, or a line that was cut off.
    return undefined;
  }
  return typeof value === "object" &&
    value !== null &&
    "id" in value &&
    "hash" in value &&
    typeof value.id === "number" &&
    typeof value.hash === "string"
    ? { id: value.id, hash: value.hash }
    : undefined;
}
