// SPDX-License-Identifier: Apache-2.0

import type { ClaimValueOfType, parseQuota } from "@millpond/api";
import type { CommandName, commandTable, OptionSpec, ValueType } from "../command-table/command-table.ts";

interface ValueOfType extends Omit<ClaimValueOfType, "choice"> {
  readonly text: string;
  readonly number: number;
  readonly size: bigint;
  readonly fraction: number;
  readonly quota: ReturnType<typeof parseQuota>;
  readonly weight: number;
  readonly lines: number;
  readonly "node-name": string;
}

/** `jsonpath=<path>` stands for any text that begins with `jsonpath=`. */
type TextOfChoice<C> = C extends `${infer Name}=<${string}>` ? `${Name}=${string}` : C;

type ValueOf<O extends OptionSpec> = O extends { readonly choices: readonly (infer C)[] }
  ? TextOfChoice<C> | undefined
  : O["type"] extends "flag"
    ? boolean
    : O["type"] extends keyof ValueOfType
      ? ValueOfType[O["type"]] | undefined
      : never;

type OptionsOf<N extends CommandName> = (typeof commandTable)[N]["options"];

/**
 * The options of a command as its code gets them: parsed and checked; absent ones are `undefined`, and flags are always
 * present.
 */
export type Values<N extends CommandName> = {
  readonly [K in keyof OptionsOf<N>]: OptionsOf<N>[K] extends OptionSpec ? ValueOf<OptionsOf<N>[K]> : never;
};

/** Any value of any option. */
export type AnyValue = ValueOfType[Exclude<ValueType, "choice">] | undefined;

/** The export of a command's module. Resolves with the exit status; throws errors with MILLPOND_E_… codes. */
export interface CommandModule<N extends CommandName> {
  run(values: Values<N>, args: readonly string[]): Promise<number>;
}
