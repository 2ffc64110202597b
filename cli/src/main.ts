// SPDX-License-Identifier: Apache-2.0

import { type Invocation, parseCommandLine, UsageError } from "./command-line.ts";
import { commandSpecs, exitStatus } from "./command-table.ts";
import type { AnyValue } from "./command-values.ts";

/** Runs one command line, `argv` without the program's name. Resolves with the exit status; never rejects. */
export async function main(argv: readonly string[]): Promise<number> {
  process.stdout.on("error", endQuietly);
  try {
    const asked = parseCommandLine(argv);
    if ("text" in asked) {
      process.stdout.write(asked.text);
      return exitStatus.ok;
    }
    return await runCommand(asked);
  } catch (error) {
    // Loaded here, not above: help and completion shall not wait for it.
    const { reportError } = await import("./errors.ts");
    if (!(error instanceof UsageError)) return reportError(error);
    const { millpondError } = await import("@millpond/api");
    return reportError(millpondError("MILLPOND_E_INVALID", error.message, { remedy: error.remedy }));
  }
}

/** Who reads our output has gone, as `head` does: nobody is left to tell. As if SIGPIPE had ended us. */
function endQuietly(error: NodeJS.ErrnoException): void {
  if (error.code !== "EPIPE") throw error;
  process.exit(141);
}

async function runCommand({ command, options, args }: Invocation): Promise<number> {
  const { readOptions } = await import("./option-values.ts");
  const { commandModules } = await import("./command-modules.ts");
  const values = readOptions(commandSpecs[command].options, options, process.env);
  // Table and module have the same name, and so the same options: command-modules.ts is checked for that.
  const module = (await commandModules[command]()) as UntypedModule;
  return module.run(values, args);
}

interface UntypedModule {
  run(values: Readonly<Record<string, AnyValue>>, args: readonly string[]): Promise<number>;
}
