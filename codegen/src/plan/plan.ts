// SPDX-License-Identifier: Apache-2.0
/**
 * The plan that codegen derives from a description: the behaviour of each exported symbol, and the wire
 * format of each remoted call.
 */
import type {
  Abi,
  Argument,
  Command,
  FunctionVariant,
  Group,
  Left,
  Parameter,
  Remoted,
  Remoting,
  TailMeaning,
} from "@millpond/cuda";
import type { StructMeanings } from "../crossing.ts";
import type { Layouts } from "../layout.ts";
import { stemOf } from "../names.ts";

/** Command → tail → its content. */
export type TailMeanings = Readonly<Record<string, Readonly<Record<string, TailMeaning>>>>;

/** The symbols of one entry point: the plain one and its per-thread twin. */
export interface Entry {
  readonly stem: string;
  readonly base: string;
  readonly variants: readonly FunctionVariant[];
  readonly parameters: readonly Parameter[];
  /** Has a per-thread twin: its implementation receives the flavour. */
  readonly isFlavoured: boolean;
  /** Group of the description; absent for an undescribed entry. */
  readonly group?: string;
  readonly remoting?: Remoting;
}

export interface PlannedArgument {
  readonly parameter: Parameter;
  readonly argument: Argument;
}

export interface PlannedCommand extends Command {
  readonly left: Left;
}

/** A call whose client and worker sides are both generated. */
export interface PlannedCall {
  readonly entry: Entry;
  readonly remoting: Remoted;
  readonly arguments: readonly PlannedArgument[];
  /** The wire command; its fields are the arguments in order, and `implicitStream` at the end. */
  readonly command: Command;
  /** The worker's side is written by hand: `command` is one of the hand-written ones. */
  readonly isWorkerByHand: boolean;
  readonly driverSymbol: string;
  /** It has no stream parameter, but a per-thread twin: the stream of the variant is sent as a last field. */
  readonly hasImplicitStream: boolean;
  /** The field with the function or kernel to which cached answers refer. */
  readonly subject?: string;
  /** It invalidates cached answers about its subject. */
  readonly forgets: boolean;
}

export interface Plan {
  readonly abi: Abi;
  readonly layouts: Layouts;
  readonly groupNames: readonly string[];
  readonly entries: readonly Entry[];
  readonly calls: readonly PlannedCall[];
  /**
   * Hand-written commands and those of generated calls, by name. The number of a command is its position here, from 1, so the
   * file and the order of its description make no difference.
   */
  readonly commands: readonly PlannedCommand[];
  /** The hand-written ones among them. */
  readonly handCommands: ReadonlySet<Command>;
  /** The meaning of the members of structs that clients send. */
  readonly structs: StructMeanings;
  /** The contents of the tails of hand-written commands. */
  readonly tails: TailMeanings;
}

export interface Description {
  readonly abi: Abi;
  readonly driver: { readonly [group: string]: Group };
  readonly commands: readonly Command[];
  readonly structs?: StructMeanings;
  /** Absent: tails contain nothing that is dereferenced. */
  readonly tails?: TailMeanings;
}

/** All errors of a description. */
export class DescriptionError extends Error {
  readonly problems: readonly string[];
  constructor(problems: readonly string[]) {
    super(`the description cannot work:\n${problems.map((p) => `  ${p}`).join("\n")}`);
    this.problems = problems;
  }
}

export function collectEntries(abi: Abi): Entry[] {
  const byStem = new Map<string, FunctionVariant[]>();
  for (const variant of abi.functions) {
    const stem = stemOf(variant.symbol);
    byStem.set(stem, [...(byStem.get(stem) ?? []), variant]);
  }
  return [...byStem].map(([stem, variants]) => ({
    stem,
    base: variants[0]?.base ?? "",
    variants,
    parameters: variants[0]?.parameters ?? [],
    isFlavoured: variants.some((v) => v.flavour !== "none"),
  }));
}

/** An argument that the call writes and that is returned in the reply. */
export const isOutput = (argument: Argument): boolean => argument.kind === "out" || argument.kind === "finds";
