// SPDX-License-Identifier: Apache-2.0
// Reports the progress of a script: one line a step, which on a terminal shows the progress of the step.
import { styleText } from "node:util";

/** Progress reports of a running step. */
export interface Progress {
  /** A short note on the current activity: shown on a terminal only. */
  note(text: string): void;
  /** Progress of the step, 0 to 1: a percentage on a terminal, otherwise a line every quarter. */
  fraction(done: number): void;
}

const out = process.stderr;

function seconds(since: number): string {
  return `${((performance.now() - since) / 1000).toFixed(1)} s`;
}

/** Runs one step and returns its result; a failure ends the line and is rethrown. */
export async function step<T>(title: string, body: (progress: Progress) => Promise<T>): Promise<T> {
  const start = performance.now();
  const live = out.isTTY;
  let percent = "";
  let note = "";
  let quarter = 0;
  const draw = (): void => {
    const line = `◦ ${title}${percent === "" ? "" : ` ${percent}`}${note === "" ? "" : `: ${note}`}`;
    out.write(`\r\x1b[K${line.slice(0, Math.max(20, (out.columns ?? 80) - 1))}`);
  };
  const end = (mark: string): void => {
    out.write(`${live ? "\r\x1b[K" : ""}${mark} ${title} (${seconds(start)})\n`);
  };

  if (live) draw();
  else out.write(`◦ ${title}\n`);
  try {
    const result = await body({
      note(text) {
        note = text;
        if (live) draw();
      },
      fraction(done) {
        percent = `${Math.floor(done * 100)} %`;
        if (live) draw();
        else if (Math.floor(done * 4) > quarter && done < 1) {
          quarter = Math.floor(done * 4);
          out.write(`  ${title}: ${quarter * 25} %\n`);
        }
      },
    });
    end(styleText("green", "✓", { stream: out }));
    return result;
  } catch (error) {
    end(styleText("red", "✗", { stream: out }));
    throw error;
  }
}
