// SPDX-License-Identifier: Apache-2.0

// The types of the table of commands.

/** The type of an option's value, which decides how it is read: see option-values.ts. */
export type ValueType =
  | "flag"
  | "text"
  /** A whole number, 1 to 64. */
  | "count"
  /** A whole number, 0 to 64. */
  | "number"
  /** Memory of a vGPU: a size or a share. */
  | "memory"
  /** A size in bytes. */
  | "size"
  /** A share of a device. */
  | "percent"
  /** A share of a device with a decimal point or a percent sign. */
  | "fraction"
  /** Seconds. */
  | "duration"
  /** Seconds, 1 or more. */
  | "period"
  /** A DNS label. */
  | "name"
  /** A host name. */
  | "node-name"
  /** A whole number, -1000 to 1000. */
  | "integer"
  /** A whole number, 2 to 256. */
  | "members"
  /** Texts separated by commas. */
  | "list"
  /** `major.minor`. */
  | "version"
  /** `key=value`, separated by commas. */
  | "labels"
  /** Bounds: `gpus=8,memory=1Ti`. */
  | "quota"
  /** A whole number, 1 to 10000. */
  | "weight"
  /** A whole number, 0 to 1000000. */
  | "lines"
  | "choice";

export interface OptionSpec {
  /** As in commander: `-n, --gpus <count>`. The long name in camel case is the option's key in the table. */
  readonly flags: string;
  readonly type: ValueType;
  readonly description: string;
  /** For the type `choice`. A choice that ends with `=<word>` accepts any text in place of the word. */
  readonly choices?: readonly string[];
  /** The default, in words or as a value. Only for display. */
  readonly defaultText?: string;
  /** Environment variable that is read when the option is not given. */
  readonly env?: string;
  /** The option of which this one is another spelling, for users of other tools. */
  readonly aliasOf?: string;
}

export interface ArgumentSpec {
  readonly name: string;
  readonly description: string;
  readonly choices?: readonly string[];
  readonly isOptional?: boolean;
  /** Takes all arguments that follow, including the program's own options. */
  readonly isProgram?: boolean;
  /** The kind of names that completion suggests. */
  readonly names?: "contexts" | "jobs" | "claims" | "nodes" | "queues" | "tenants" | "tokens" | "of-kind";
  /** One or more files. */
  readonly isFiles?: boolean;
}

export interface CommandSpec {
  readonly summary: string;
  /** Further paragraphs. */
  readonly description?: string;
  readonly examples: readonly { readonly command: string; readonly what: string }[];
  readonly arguments: readonly ArgumentSpec[];
  readonly options: Readonly<Record<string, OptionSpec>>;
  /** Heading under which it appears in the list of commands. */
  readonly group: "Run programs" | "View the pool" | "Your pools" | "Operate" | "Serve";
}
