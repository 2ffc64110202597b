// SPDX-License-Identifier: Apache-2.0

import { parseCommandLine } from "../command-line/command-line.ts";
import { commandSpecs } from "../command-table/command-table.ts";
import type { AnyValue, Values } from "../command-line/command-values.ts";
import { readOptions } from "../command-line/option-values.ts";
import { type ServiceName, withFile } from "./service-options.ts";

/**
 * Reads the options of this process's service again, from its command line and the present file.
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
  // The type follows from the table with which the options are read.
  return values as Values<N>;
}
