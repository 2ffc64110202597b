// SPDX-License-Identifier: Apache-2.0

import { type Invocation, parseCommandLine, UsageError } from "./command-line/command-line.ts";
import { commandSpecs, exitStatus } from "./command-table/command-table.ts";
import type { AnyValue } from "./command-line/command-values.ts";
import { writeInLocale } from "./output/marks.ts";

/** Runs one command line, `argv` without the program's name. Resolves with the exit status; never rejects. */
export async function main(argv: readonly string[]): Promise<number> {
  process.stdout.on("error", endQuietly);
  // A failure to write to standard error, as on a full disk, cannot be reported anywhere; a running program continues.
  process.stderr.on("error", () => undefined);
  // Node's own warnings, such as one about colours of terminals, are for its developers.
  if (process.env["MILLPOND_DEBUG"] !== "1") process.removeAllListeners("warning");
  writeInLocale(process.stderr, process.env);
  try {
    const stopped = process.env["MILLPOND_LEASES"];
    if (stopped !== undefined) {
      const { keepLeases } = await import("./claim/stopped-leases.ts");
      return await keepLeases(argv, Number(stopped));
    }
    const asked = parseCommandLine(argv);
    if ("text" in asked) {
      writeInLocale(process.stdout, process.env);
      process.stdout.write(asked.text);
      return exitStatus.ok;
    }
    return await runCommand(asked);
  } catch (error) {
    // Loaded on demand, so that help and completion do not wait for it.
    const { reportError } = await import("./command-line/errors.ts");
    if (!(error instanceof UsageError)) return reportError(error);
    const { millpondError } = await import("@millpond/api");
    return reportError(millpondError("MILLPOND_E_INVALID", error.message, { remedy: error.remedy }));
  }
}

/** Ends the process as SIGPIPE would when the reader of its output, such as `head`, has exited. */
function endQuietly(error: NodeJS.ErrnoException): void {
  if (error.code === "EPIPE") process.exit(141);
  // Without errors.ts, because this handler is synchronous and ends the process.
  process.stderr.write(
    `error: standard output cannot be written: ${error.message}\n  Free space there, or redirect it elsewhere.\n  [MILLPOND_E_INVALID]\n`,
  );
  process.exit(exitStatus.failed);
}

/** Ends the process after an exception that no code expected, with an error of the usual form. */
async function endByFault(error: Error): Promise<never> {
  const { reportError } = await import("./command-line/errors.ts");
  process.exit(reportError(error));
}

async function runCommand({ command, options, args }: Invocation): Promise<number> {
  const { readOptions } = await import("./command-line/option-values.ts");
  const { commandModules } = await import("./command-modules.ts");
  const { withFile } = await import("./service/service-options.ts");
  const { unknownVariables } = await import("./command-line/known-variables.ts");
  // The doctor includes this in its report.
  for (const name of command === "doctor" ? [] : unknownVariables(process.env)) {
    process.stderr.write(`millpond: ${name} is set, and nothing reads it: check its spelling\n`);
  }
  const isService = command === "controller" || command === "agent";
  // In the log of a service the stack is of use; Node adds it.
  if (!isService) process.on("uncaughtException", (error) => void endByFault(error));
  const given = isService ? withFile(command, options, process.env) : options;
  const values = readOptions(commandSpecs[command].options, given, process.env);
  // Formats for programs are the same in every locale.
  if (
    values["output"] === undefined ||
    values["output"] === "text" ||
    values["output"] === "table" ||
    values["output"] === "wide"
  ) {
    writeInLocale(process.stdout, process.env);
  }
  // Table entry and module have the same name and therefore the same options; the type in command-modules.ts guarantees that.
  const module: UntypedModule = await commandModules[command]();
  return module.run(values, args);
}

interface UntypedModule {
  run(values: Readonly<Record<string, AnyValue>>, args: readonly string[]): Promise<number>;
}
