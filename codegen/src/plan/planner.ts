// SPDX-License-Identifier: Apache-2.0
/** From description to plan. Rejects an inconsistent description, with all problems listed together. */
import type {
  Abi,
  Argument,
  Command,
  Field,
  FieldType,
  Group,
  Left,
  Parameter,
  Remoted,
  RequestField,
} from "@millpond/cuda";
import { strangeMembers, undescribed } from "../crossing.ts";
import { fieldTypeOf, Layouts, pointee } from "../layout.ts";
import { commandName, handleTypes, presenceField, stemOf } from "../names.ts";
import {
  type Entry,
  type PlannedArgument,
  type PlannedCommand,
  type PlannedCall,
  type Plan,
  type Description,
  DescriptionError,
  collectEntries,
  isOutput,
} from "./plan.ts";
import { tailProblems } from "./tails.ts";

/** Names that generated functions use themselves. */
const reservedNames = new Set(["call", "wire", "reply", "r", "in", "executor", "result", "flavour"]);

const sameTypes = (a: readonly Parameter[], b: readonly Parameter[], layouts: Layouts): boolean =>
  a.length === b.length && a.every((p, i) => layouts.spell(p.type) === layouts.spell(b[i]?.type ?? ""));

/** Why a command cannot leave the described state; undefined if it can. */
function leftMisfit({ fields }: Command, left: Left): string | undefined {
  if (typeof left === "string") return undefined;
  const types = new Map<string, FieldType>(fields);
  const expects = (name: string, wanted: "u32" | "place" | "handle"): string | undefined =>
    types.get(name) === wanted
      ? undefined
      : `what is left is said to be by ${name}, which is no field of type ${wanted}`;
  const byKind = { context: "u32", hostMemory: "place", handle: "handle" } as const;
  if ("makes" in left) return expects(left.makes, byKind[left.kind ?? "handle"]);
  if ("tells" in left) return expects(left.tells, "handle");
  if (!types.has(left.sets)) return `what is left is said to be ${left.sets}, which is no field`;
  return left.of === undefined ? undefined : expects(left.of, "handle");
}

/**
 * The field type of a number or enum passed by value; 64 bits are a number, because addresses and handles are described as
 * such.
 */
function numberType(layouts: Layouts, type: string): RequestField[1] {
  const field = fieldTypeOf(layouts, type);
  return field === undefined || field === "u64" || typeof field === "object" ? "number" : field;
}

/** The struct name by which a field of that type describes itself. */
function structName(layouts: Layouts, type: string): string {
  const kind = layouts.declaration(layouts.resolve(type))?.kind;
  return kind === "struct" || kind === "union" ? type : "numbers";
}

class Planner {
  readonly problems: string[] = [];
  readonly #abi: Abi;
  readonly #description: Description;
  readonly #layouts: Layouts;
  readonly #entries = new Map<string, Entry>();
  /** Symbols that a call names in `cached.invalidatedBy`. */
  readonly #invalidators = new Set<string>();

  constructor(description: Description) {
    this.#description = description;
    this.#abi = description.abi;
    this.#layouts = new Layouts(description.abi);
  }

  plan(): Plan {
    const { driver, commands } = this.#description;
    this.#checkCommands(commands);
    this.#checkStructs(commands);
    this.problems.push(...tailProblems(commands, this.#description.tails));
    for (const entry of collectEntries(this.#abi)) this.#entries.set(entry.stem, entry);
    for (const [group, members] of Object.entries(driver)) this.#describe(group, members);
    for (const entry of this.#entries.values()) this.#checkSame(entry);
    const calls: PlannedCall[] = [];
    for (const entry of this.#described()) {
      if (entry.remoting?.style !== "async" && entry.remoting?.style !== "wait") continue;
      for (const name of entry.remoting.cached?.invalidatedBy ?? []) this.#invalidators.add(name);
    }
    for (const entry of this.#described()) {
      if (entry.remoting?.style !== "async" && entry.remoting?.style !== "wait") continue;
      const call = this.#call(entry, entry.remoting);
      if (call) calls.push(call);
    }
    this.#checkInvalidators(calls);
    const derived = calls.filter((call) => !call.isWorkerByHand).map((call) => call.command);
    const taken = new Set(commands.map((c) => c.name));
    for (const { name } of derived) {
      if (taken.has(name)) this.problems.push(`command ${name}: derived for a call, but the name is taken`);
      taken.add(name);
    }
    const planned = [...commands, ...derived].filter((command) => this.#saysWhatIsLeft(command));
    if (this.problems.length > 0) throw new DescriptionError(this.problems);
    return {
      abi: this.#abi,
      layouts: this.#layouts,
      groupNames: Object.keys(driver),
      entries: [...this.#entries.values()],
      calls,
      commands: planned.sort((a, b) => (a.name < b.name ? -1 : 1)),
      handCommands: new Set(commands),
      structs: this.#description.structs ?? {},
      tails: this.#description.tails ?? {},
    };
  }

  /** Checks that the members of every struct in a command have a described meaning. */
  #checkStructs(commands: readonly Command[]): void {
    this.problems.push(...strangeMembers(this.#layouts, this.#description.structs ?? {}));
    for (const { name, fields } of commands) {
      for (const [field, type] of fields) {
        if (typeof type === "string" || type.of === "numbers") continue;
        const problem = (text: string): number => this.problems.push(`command ${name}: ${field}: ${text}`);
        const kind = this.#layouts.declaration(this.#layouts.resolve(type.of))?.kind;
        if (kind !== "struct" && kind !== "union") problem(`there is no struct ${type.of}`);
        else if (this.#layouts.of(type.of).size !== type.bytes)
          problem(`a ${type.of} has ${this.#layouts.of(type.of).size} bytes`);
        else {
          const reason = this.#undescribed(type.of);
          if (reason !== undefined) problem(reason);
        }
      }
    }
  }

  /** Described entries in the order of the description. */
  *#described(): Generator<Entry> {
    for (const members of Object.values(this.#description.driver)) {
      for (const stem of Object.keys(members)) {
        const entry = this.#entries.get(stem);
        if (entry) yield entry;
      }
    }
  }

  #checkCommands(commands: readonly Command[]): void {
    const names = new Set<string>();
    for (const command of commands) {
      if (names.has(command.name)) this.problems.push(`command ${command.name}: described twice`);
      if (!/^[A-Z][A-Za-z0-9]*$/.test(command.name))
        this.problems.push(`command ${command.name}: not UpperCamel`);
      names.add(command.name);
      for (const [part, { fields, tails }] of [
        ["", command] as const,
        [" reply", command.reply] as const,
      ].flatMap(([where, shape]) => (shape ? [[where, shape] as const] : []))) {
        const all = [
          ...fields.map(([name]) => name),
          ...(tails ?? []).flatMap((tail) => [tail, `${tail}Bytes`]),
        ];
        const twice = all.find((name, index) => all.indexOf(name) !== index);
        if (twice !== undefined)
          this.problems.push(`command ${command.name}${part}: two fields are called ${twice}`);
      }
    }
  }

  #saysWhatIsLeft(command: Command): command is PlannedCommand {
    const { name, left } = command;
    if (left === undefined) {
      this.problems.push(`command ${name}: what is left of it in the worker is not said`);
      return false;
    }
    const problem = leftMisfit(command, left);
    if (problem !== undefined) this.problems.push(`command ${name}: ${problem}`);
    return true;
  }

  #describe(group: string, members: Group): void {
    for (const [stem, remoting] of Object.entries(members)) {
      const entry = this.#entries.get(stem);
      if (!entry) {
        const hint = stemOf(stem) === stem ? "" : "; describe it without its flavour";
        this.problems.push(`${stem}: no symbol of CUDA ${this.#abi.cudaVersion} is called so${hint}`);
      } else if (entry.remoting) {
        this.problems.push(`${stem}: described in ${entry.group} and in ${group}`);
      } else {
        this.#entries.set(stem, { ...entry, group, remoting });
      }
    }
  }

  #checkSame(entry: Entry): void {
    if (entry.remoting?.style !== "same") return;
    const other = this.#entries.get(entry.remoting.as);
    if (!other?.remoting)
      this.problems.push(`${entry.stem}: same as ${entry.remoting.as}, which is not described`);
    else if (other.remoting.style === "same")
      this.problems.push(`${entry.stem}: same as ${other.stem}, which is itself the same as another`);
    else if (
      !sameTypes(entry.parameters, other.parameters, this.#layouts) ||
      entry.isFlavoured !== other.isFlavoured
    ) {
      this.problems.push(`${entry.stem}: same as ${other.stem}, but their parameters differ`);
    }
  }

  #call(entry: Entry, remoting: Remoted): PlannedCall | undefined {
    const before = this.problems.length;
    const problem = (text: string): void => {
      this.problems.push(`${entry.stem}: ${text}`);
    };
    const known = new Set(entry.parameters.map((p) => p.name));
    for (const name of Object.keys(remoting.arguments)) {
      if (!known.has(name)) problem(`there is no parameter ${name}`);
    }
    const planned: PlannedArgument[] = [];
    for (const parameter of entry.parameters) {
      const argument = remoting.arguments[parameter.name];
      if (argument) planned.push({ parameter, argument });
      else problem(`parameter ${parameter.name} is not described`);
    }
    for (const { name } of entry.parameters) {
      if (reservedNames.has(name)) problem(`parameter ${name}: generated code has another use for this name`);
    }
    for (const { parameter, argument } of planned) {
      const reason = this.#misfit(parameter, argument, planned);
      if (reason !== undefined) problem(`parameter ${parameter.name}: ${reason}`);
      if (remoting.style === "async" && isOutput(argument)) {
        problem(`parameter ${parameter.name}: an async call has no outputs but invented handles`);
      }
    }
    if (remoting.once && (remoting.style !== "wait" || remoting.cached))
      problem("only a call that waits, and whose answer is not cached, can be sent once");
    if (remoting.style === "async" && remoting.cached) problem("an async call has no answer to cache");
    if (
      remoting.cached &&
      planned.some(({ argument }) =>
        ["creates", "destroys", "struct", "array", "string", "finds"].includes(argument.kind),
      )
    ) {
      problem("a cached answer may depend on numbers and handles only");
    }
    const hasStream = planned.some(({ argument }) => argument.kind === "stream");
    const hasImplicitStream = entry.isFlavoured && !hasStream;
    if (hasImplicitStream && remoting.driverSymbol === undefined) {
      problem("its per-thread variant needs a stream: name the asynchronous twin as driverSymbol");
    }
    if (this.problems.length > before) return undefined;

    const fields: RequestField[] = [];
    const tails: string[] = [];
    const outputs: Field[] = [];
    for (const { parameter, argument } of planned) this.#place(parameter, argument, fields, tails, outputs);
    if (hasImplicitStream) fields.push(["stream", "handle"]);
    const derived: Command = {
      name: commandName(entry.stem),
      doc: `${entry.stem}.`,
      ...(remoting.left === undefined ? {} : { left: remoting.left }),
      ...(remoting.work ? { work: true } : {}),
      fields,
      ...(tails.length > 0 ? { tails } : {}),
      ...(remoting.style === "wait" ? { reply: { fields: outputs } } : {}),
    };
    const command =
      remoting.command === undefined ? derived : this.#handCommand(derived, remoting.command, problem);
    const driverSymbol = remoting.driverSymbol ?? entry.stem;
    if (remoting.command === undefined)
      this.#checkDriverSymbol(entry, driverSymbol, hasImplicitStream, problem);
    else if (remoting.driverSymbol !== undefined)
      problem("with a hand-written command there is no driverSymbol");
    if (remoting.command !== undefined && (remoting.left !== undefined || remoting.work))
      problem("what a hand-written command does, and what is left of it, is said by that");
    if (remoting.style === "wait" && remoting.effect !== undefined)
      problem("only an async call has an effect: a call that waits gets its result");
    if (this.problems.length > before) return undefined;
    const subjectIndex = planned.findIndex(
      ({ argument: a }) =>
        a.kind === "functionOrKernel" || (a.kind === "handle" && (a.of === "kernel" || a.of === "function")),
    );
    const subject = planned[subjectIndex]?.parameter.name;
    return {
      entry,
      remoting,
      arguments: planned,
      command,
      isWorkerByHand: remoting.command !== undefined,
      driverSymbol,
      hasImplicitStream,
      ...(subject === undefined ? {} : { subject }),
      forgets: this.#invalidators.has(entry.stem),
    };
  }

  /** Why the parameter's type does not match its description; undefined if it does. */
  #misfit(parameter: Parameter, argument: Argument, all: readonly PlannedArgument[]): string | undefined {
    const { type } = parameter;
    const target = pointee(type);
    const isPlainPointer = target !== undefined && !target.endsWith("*");
    const plainTarget = target?.replace(/^const /, "") ?? "";
    const expects = (wanted: string): string | undefined =>
      type === wanted ? undefined : `is a ${type}, not a ${wanted}`;
    const handle = (wanted: string): string | undefined => {
      if (this.#layouts.declaration(wanted)) return expects(wanted);
      return `${wanted} is not a type of this API`;
    };
    const plainStruct = (): string | undefined => {
      if (!isPlainPointer || plainTarget === "void") return `is a ${type}, not a pointer to a known type`;
      return this.#layouts.containsPointers(plainTarget) ? `${plainTarget} contains pointers` : undefined;
    };
    const names = (name: string): string | undefined => {
      const other = all.find((a) => a.parameter.name === name);
      return other?.argument.kind === "value" ? undefined : `${name} is not a parameter passed by value`;
    };
    switch (argument.kind) {
      case "value":
        return fieldTypeOf(this.#layouts, type) === undefined
          ? `a ${type} does not cross by value`
          : undefined;
      case "device":
        return this.#layouts.resolve(type) === "int" && type.startsWith("CUdevice")
          ? undefined
          : `is a ${type}, not a CUdevice`;
      case "address":
        return expects("CUdeviceptr");
      case "stream":
        return expects("CUstream");
      case "functionOrKernel":
        return expects("CUfunction");
      case "handle":
      case "destroys":
        return handle(handleTypes[argument.of]);
      case "finds":
        return type === `${handleTypes[argument.of]}*`
          ? undefined
          : `is a ${type}, not a ${handleTypes[argument.of]}*`;
      case "creates":
        return (
          (type === `${handleTypes[argument.of]}*`
            ? undefined
            : `is a ${type}, not a ${handleTypes[argument.of]}*`) ??
          Object.values(argument.traits ?? {})
            .map(names)
            .find((reason) => reason !== undefined)
        );
      case "struct":
        return plainStruct() ?? this.#undescribed(plainTarget);
      case "array":
        return plainStruct() ?? this.#undescribed(plainTarget) ?? names(argument.count);
      case "string":
        return expects("const char*");
      case "out":
        if (argument.isAsked && !argument.nullable)
          return "whether it is asked is known only where it is nullable";
        return type.startsWith("const ") ? `is a ${type}: nothing can be written there` : plainStruct();
      default:
        return argument satisfies never;
    }
  }

  /** Why the meaning of a struct's members is unknown; undefined if it is known, or if the type is a number. */
  #undescribed(type: string): string | undefined {
    return undescribed(this.#layouts, type, this.#description.structs ?? {});
  }

  /** Adds the fields of an argument to the wire format. */
  #place(
    { name, type }: Parameter,
    argument: Argument,
    fields: RequestField[],
    tails: string[],
    outputs: Field[],
  ): void {
    const target = (pointee(type) ?? "").replace(/^const /, "");
    switch (argument.kind) {
      case "value":
        fields.push([name, numberType(this.#layouts, type)]);
        return;
      case "device":
        fields.push([name, "i32"]);
        return;
      case "address":
        fields.push([name, "address"]);
        return;
      case "stream":
      case "handle":
      case "functionOrKernel":
      case "creates":
      case "destroys":
        fields.push([name, "handle"]);
        return;
      case "struct":
        fields.push([
          name,
          {
            bytes: this.#layouts.of(target).size * (argument.elements ?? 1),
            of: structName(this.#layouts, target),
          },
        ]);
        if (argument.nullable) fields.push([presenceField(name), "u32"]);
        return;
      case "array":
      case "string":
        tails.push(name);
        return;
      case "out":
        outputs.push([name, this.#outputType(target, argument.elements)]);
        if (argument.isAsked) fields.push([presenceField(name), "u32"]);
        return;
      case "finds":
        outputs.push([name, "u64"]);
        return;
      default:
        argument satisfies never;
    }
  }

  #outputType(target: string, elements: number | undefined): FieldType {
    const single = elements === undefined ? fieldTypeOf(this.#layouts, target) : undefined;
    return single ?? { bytes: this.#layouts.of(target).size * (elements ?? 1) };
  }

  #handCommand(derived: Command, name: string, problem: (text: string) => void): Command {
    const command = this.#description.commands.find((c) => c.name === name);
    if (!command) {
      problem(`there is no command ${name}`);
      return derived;
    }
    const shape = (c: Command): string =>
      JSON.stringify([
        c.fields.map(([, type]) => type),
        c.tails?.length ?? 0,
        c.reply ? [c.reply.fields.map(([, type]) => type), c.reply.tails?.length ?? 0] : null,
      ]);
    if (shape(command) !== shape(derived)) {
      problem(`command ${name} has not the fields that the parameters need: ${shape(derived)}`);
    }
    return command;
  }

  #checkDriverSymbol(
    entry: Entry,
    symbol: string,
    hasImplicitStream: boolean,
    problem: (text: string) => void,
  ): void {
    const driver = this.#abi.functions.find((f) => f.symbol === symbol);
    if (!driver) return problem(`there is no driver symbol ${symbol}`);
    const wanted = [
      ...entry.parameters,
      ...(hasImplicitStream ? [{ type: "CUstream", name: "stream" }] : []),
    ];
    if (!sameTypes(driver.parameters, wanted, this.#layouts)) {
      problem(
        `driver symbol ${symbol} takes other parameters${hasImplicitStream ? " (a stream must come last)" : ""}`,
      );
    }
  }

  #checkInvalidators(calls: readonly PlannedCall[]): void {
    for (const name of this.#invalidators) {
      const call = calls.find((c) => c.entry.stem === name);
      if (call === undefined || (call.remoting.style !== "async" && call.remoting.once !== true))
        this.problems.push(
          `${name}: said to invalidate answers, but it is no generated call that is async or sent once`,
        );
      else if (call.subject === undefined)
        this.problems.push(`${name}: said to invalidate answers, but takes no function or kernel`);
    }
    for (const { entry, remoting, subject } of calls) {
      if ((remoting.cached?.invalidatedBy.length ?? 0) > 0 && subject === undefined) {
        this.problems.push(
          `${entry.stem}: its cached answer is about no function or kernel, so nothing can invalidate it`,
        );
      }
    }
  }
}

/** Throws DescriptionError for an inconsistent description. */
export function makePlan(description: Description): Plan {
  return new Planner(description).plan();
}
