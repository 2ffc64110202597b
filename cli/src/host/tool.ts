// SPDX-License-Identifier: Apache-2.0

// The common frame of the project's other programs: each parses its own command line and does one thing.

/** An invalid command line. */
export class UsageError extends Error {}

export interface Tool<O> {
  readonly help: string;
  /** Returns undefined when the user only wants help. Throws UsageError, or the error of `parseArgs`. */
  readonly readOptions: (args: string[]) => O | undefined | Promise<O | undefined>;
  readonly run: (options: O) => Promise<void>;
}

/** Runs this process's program. The exit status is 2 for an invalid command line, and 1 for another failure. */
export async function runTool<O>({ help, readOptions, run }: Tool<O>): Promise<void> {
  try {
    const options = await readOptions(process.argv.slice(2));
    if (options === undefined) process.stdout.write(help);
    else await run(options);
  } catch (error) {
    const code = error instanceof Error && "code" in error ? String(error.code) : "";
    const isUsage = error instanceof UsageError || code.startsWith("ERR_PARSE_ARGS_");
    console.error(`error: ${error instanceof Error ? error.message : String(error)}`);
    process.exitCode = isUsage ? 2 : 1;
  }
}

/** @throws UsageError unless the text of an option is a whole number within the bounds */
export function toCount(option: string, text: string, least: number, most: number): number {
  const value = Number(text);
  if (!Number.isInteger(value) || value < least || value > most)
    throw new UsageError(`--${option}: ${text} is not a number from ${least} to ${most}`);
  return value;
}
