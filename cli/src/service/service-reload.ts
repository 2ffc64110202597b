// SPDX-License-Identifier: Apache-2.0

import { parseCommandLine } from "../command-line/command-line.ts";
import { commandSpecs } from "../command-table/command-table.ts";
import type { AnyValue, Values } from "../command-line/command-values.ts";
import { readOptions } from "../command-line/option-values.ts";
import { type ServiceName, withFile } from "./service-options.ts";

/**
 * Reads the options of this process's service again, from the command line it was started with and the file as it is now.
 *
 * @throws MILLPOND_E_INVALID
 */
export function readServiceAgain<N extends ServiceName>(service: N): Values<N> {
  const asked = parseCommandLine(process.argv.slice(2));
  const given = "text" in asked ? {} : asked.options;
  const options = withFile(service, given, process.env);
  const values: Readonly<Record<string, AnyValue>> = readOptions(
    commandSpecs[service].options,
    options,
    process.env,
  );
  // Read by the table that the type is made from.
  return values as Values<N>;
}
