// SPDX-License-Identifier: Apache-2.0
import { commands, driver, loadAbi, structs, tails, type Command, type Group } from "@millpond/cuda";
import { describe, expect, test } from "vitest";
import { sampleAbi, sampleCommands, sampleGroups } from "../../test/sample.ts";
import { DescriptionError } from "./plan.ts";
import { makePlan } from "./planner.ts";

/** The problems of a description of the sample API; empty when it is valid. */
function problemsOf(group: Group, handCommands: readonly Command[] = sampleCommands): readonly string[] {
  try {
    makePlan({ abi: sampleAbi, driver: { group }, commands: handCommands });
    return [];
  } catch (error) {
    if (error instanceof DescriptionError) return error.problems;
    throw error;
  }
}

const boundArguments = {
  event: { kind: "value" },
  offset: { kind: "value" },
  now: { kind: "struct" },
  wanted: { kind: "struct" },
} as const;
const copyArguments = {
  to: { kind: "address", extent: { elements: "bytes" } },
  from: { kind: "address", extent: { elements: "bytes" } },
  bytes: { kind: "value" },
} as const;
const sampleCopy = { style: "async", driverSymbol: "cuCopyAsync", arguments: copyArguments } as const;
const asked = {
  answer: { kind: "out" },
  func: { kind: "functionOrKernel" },
  what: { kind: "value" },
} as const;

describe("a plan", () => {
  test("of the sample has its commands by name, whichever file describes them and in which order", () => {
    const plan = makePlan({ abi: sampleAbi, driver: sampleGroups, commands: sampleCommands });
    const names = ["Ask", "Bound", "Copy", "FuncAsk", "FuncTell", "Load", "Paint"];
    names.push("StreamEndV2", "StreamMake", "StreamWait", "SyncStream", "Write");
    expect(plan.commands.map((c) => c.name)).toEqual(names);
    const turned = makePlan({
      abi: sampleAbi,
      driver: Object.fromEntries(Object.entries(sampleGroups).toReversed()),
      commands: sampleCommands.toReversed(),
    });
    expect(turned.commands).toEqual(plan.commands);
  });

  test("of the real description works", () => {
    const plan = makePlan({ abi: loadAbi(), driver, commands, structs });
    expect(plan.calls.length).toBeGreaterThan(40);
    expect(plan.entries.flatMap((e) => e.variants)).toHaveLength(plan.abi.functions.length);
  });

  test("needs to know of every tail whether addresses may be in it", () => {
    const problemsWith = (known: typeof tails): readonly string[] => {
      try {
        makePlan({ abi: loadAbi(), driver, commands, structs, tails: known });
        return [];
      } catch (error) {
        if (error instanceof DescriptionError) return error.problems;
        throw error;
      }
    };
    expect(problemsWith(tails)).toEqual([]);
    const { Launch: _, ...others } = tails;
    expect(problemsWith({ ...others, Launch: { attributes: "words" } })).toEqual([
      "command Launch: params: tails.ts does not say what is in it",
    ]);
    expect(problemsWith({ ...tails, MemGetInfo: { extra: "plain" } })).toEqual([
      "tails.ts: command MemGetInfo: extra: there is no such tail",
    ]);
  });

  test("needs to know what every member of 64 bits means that a client sends", () => {
    const problemsWith = (known: typeof structs): readonly string[] => {
      try {
        makePlan({ abi: loadAbi(), driver, commands, structs: known });
        return [];
      } catch (error) {
        if (error instanceof DescriptionError) return error.problems;
        throw error;
      }
    };
    const { CUDA_RESOURCE_DESC: resource, CUstreamBatchMemOpParams: _, ...others } = structs;
    const { "res.linear.devPtr": __, ...rest } = resource ?? {};
    expect(problemsWith({ ...others, CUDA_RESOURCE_DESC: rest })).toEqual([
      "command TextureCreate: resource: structs.ts does not say what res.linear.devPtr of CUDA_RESOURCE_DESC means",
      expect.stringContaining("structs.ts does not say what waitValue.address, waitValue.value64"),
    ]);
    expect(problemsWith({ ...structs, CUDA_TEXTURE_DESC: { flags: "number" } })).toEqual([
      "struct CUDA_TEXTURE_DESC: flags is no member of 64 bits that could be an address",
    ]);
    const [first, ...more] = commands.filter((c) => c.name === "TextureCreate");
    if (!first || more.length > 0) throw new Error("there is one TextureCreate");
    const wrong: Command = { ...first, fields: [["resource", { bytes: 100, of: "CUDA_RESOURCE_DESC" }]] };
    expect(() =>
      makePlan({
        abi: loadAbi(),
        driver,
        commands: [...commands.filter((c) => c !== first), wrong],
        structs,
      }),
    ).toThrow("command TextureCreate: resource: a CUDA_RESOURCE_DESC has 144 bytes");
  });

  test("does not depend on anything but the description", () => {
    const twice = [1, 2].map(() =>
      JSON.stringify(makePlan({ abi: sampleAbi, driver: sampleGroups, commands: sampleCommands }).commands),
    );
    expect(twice[0]).toBe(twice[1]);
  });
});

describe("a description is refused when", () => {
  const cases: readonly (readonly [what: string, group: Group, problem: string])[] = [
    [
      "a symbol is unknown",
      { cuNothing: { style: "local" } },
      "cuNothing: no symbol of CUDA 13000 is called so",
    ],
    [
      "a flavour is described",
      { cuCopy_ptds: { style: "local" } },
      "cuCopy_ptds: no symbol of CUDA 13000 is called so; describe it without its flavour",
    ],
    [
      "an async call has an output",
      { cuFuncAsk: { style: "async", arguments: asked } },
      "cuFuncAsk: parameter answer: an async call has no outputs but invented handles",
    ],
    [
      "an async call is cached",
      {
        cuFuncTell: {
          style: "async",
          cached: { invalidatedBy: [] },
          arguments: {
            func: { kind: "functionOrKernel" },
            what: { kind: "value" },
            value: { kind: "value" },
          },
        },
      },
      "cuFuncTell: an async call has no answer to cache",
    ],
    [
      "a parameter is unknown",
      {
        cuWatch: {
          style: "async",
          arguments: { hEvent: { kind: "handle", of: "event" }, more: { kind: "value" } },
        },
      },
      "cuWatch: there is no parameter more",
    ],
    [
      "a parameter is missing",
      { cuWatch: { style: "async", arguments: {} } },
      "cuWatch: parameter hEvent is not described",
    ],
    [
      "a count names no parameter",
      {
        cuWrite: {
          style: "async",
          arguments: {
            text: { kind: "string" },
            values: { kind: "array", count: "length" },
            count: { kind: "value" },
          },
        },
      },
      "cuWrite: parameter values: length is not a parameter passed by value",
    ],
    [
      "a trait names no parameter",
      {
        cuStreamMake: {
          style: "async",
          arguments: {
            phStream: { kind: "creates", of: "stream", traits: { flags: "Flags" } },
            flags: { kind: "value" },
            priority: { kind: "value" },
          },
        },
      },
      "cuStreamMake: parameter phStream: Flags is not a parameter passed by value",
    ],
    [
      "a struct contains pointers",
      { cuFollow: { style: "async", arguments: { list: { kind: "struct" } } } },
      "cuFollow: parameter list: CUlinked contains pointers",
    ],
    [
      "a handle is of another kind",
      { cuWatch: { style: "async", arguments: { hEvent: { kind: "handle", of: "stream" } } } },
      "cuWatch: parameter hEvent: is a CUevent, not a CUstream",
    ],
    [
      "a pointer is passed by value",
      { cuHost: { style: "async", arguments: { p: { kind: "value" } } } },
      "cuHost: parameter p: a void* does not cross by value",
    ],
    [
      "a handle is passed by value",
      { cuWatch: { style: "async", arguments: { hEvent: { kind: "value" } } } },
      "cuWatch: parameter hEvent: a CUevent does not cross by value",
    ],
    [
      "an untyped pointer is an output",
      { cuHost: { style: "wait", arguments: { p: { kind: "out" } } } },
      "cuHost: parameter p: is a void*, not a pointer to a known type",
    ],
    [
      "an input is an output",
      {
        cuPaint: {
          style: "wait",
          arguments: { colour: { kind: "value" }, extent: { kind: "out" }, limit: { kind: "struct" } },
        },
      },
      "cuPaint: parameter extent: is a const CUextent*: nothing can be written there",
    ],
    [
      "a handle that is found is of another kind",
      {
        cuBound: { style: "wait", arguments: { ...boundArguments, event: { kind: "finds", of: "stream" } } },
      },
      "cuBound: parameter event: is a CUevent*, not a CUstream*",
    ],
    [
      "an async call finds a handle",
      {
        cuBound: { style: "async", arguments: { ...boundArguments, event: { kind: "finds", of: "event" } } },
      },
      "cuBound: parameter event: an async call has no outputs but invented handles",
    ],
    [
      "what is always asked is said to be asked or not",
      {
        cuBound: { style: "wait", arguments: { ...boundArguments, offset: { kind: "out", isAsked: true } } },
      },
      "cuBound: parameter offset: whether it is asked is known only where it is nullable",
    ],
    [
      "a per-thread twin has no stream",
      { cuCopy: { style: "async", arguments: copyArguments } },
      "cuCopy: its per-thread variant needs a stream: name the asynchronous twin as driverSymbol",
    ],
    [
      "the driver symbol is unknown",
      {
        cuWatch: {
          style: "async",
          driverSymbol: "cuLook",
          arguments: { hEvent: { kind: "handle", of: "event" } },
        },
      },
      "cuWatch: there is no driver symbol cuLook",
    ],
    [
      "the driver symbol takes other parameters",
      { cuCopy: { style: "async", driverSymbol: "cuCopy", arguments: copyArguments } },
      "cuCopy: driver symbol cuCopy takes other parameters (a stream must come last)",
    ],
    [
      "the hand-written command is unknown",
      { cuStreamSync: { style: "wait", command: "Sync", arguments: { hStream: { kind: "stream" } } } },
      "cuStreamSync: there is no command Sync",
    ],
    [
      "the hand-written command has other fields",
      { cuStreamSync: { style: "wait", command: "Load", arguments: { hStream: { kind: "stream" } } } },
      'cuStreamSync: command Load has not the fields that the parameters need: [["handle"],0,[[],0]]',
    ],
    [
      "an async call takes a command with an answer",
      { cuStreamSync: { style: "async", command: "SyncStream", arguments: { hStream: { kind: "stream" } } } },
      'cuStreamSync: command SyncStream has not the fields that the parameters need: [["handle"],0,null]',
    ],
    [
      "nothing generated invalidates an answer",
      { cuFuncAsk: { style: "wait", cached: { invalidatedBy: ["cuWatch"] }, arguments: asked } },
      "cuWatch: said to invalidate answers, but it is no generated call that is async or sent once",
    ],
    [
      "an answer that can be invalidated is about nothing",
      {
        cuAsk: {
          style: "wait",
          cached: { invalidatedBy: ["cuFuncTell"] },
          arguments: {
            answer: { kind: "out" },
            colour: { kind: "out" },
            extent: { kind: "out" },
            dev: { kind: "device" },
          },
        },
        cuFuncTell: sampleGroups["questions"]?.["cuFuncTell"] ?? { style: "local" },
      },
      "cuAsk: its cached answer is about no function or kernel, so nothing can invalidate it",
    ],
    [
      "a cached answer depends on memory",
      {
        cuPaint: {
          style: "wait",
          cached: { invalidatedBy: [] },
          arguments: { colour: { kind: "value" }, extent: { kind: "struct" }, limit: { kind: "struct" } },
        },
      },
      "cuPaint: a cached answer may depend on numbers and handles only",
    ],
    [
      "a name is the same as an undescribed one",
      { cuStreamEnd: { style: "same", as: "cuStreamEnd_v2" } },
      "cuStreamEnd: same as cuStreamEnd_v2, which is not described",
    ],
    [
      "names with other parameters are said to be the same",
      { cuStreamEnd: { style: "same", as: "cuWatch" }, cuWatch: { style: "local" } },
      "cuStreamEnd: same as cuWatch, but their parameters differ",
    ],
    [
      "names are the same in a circle",
      {
        cuStreamEnd: { style: "same", as: "cuStreamEnd_v2" },
        cuStreamEnd_v2: { style: "same", as: "cuStreamEnd" },
      },
      "cuStreamEnd: same as cuStreamEnd_v2, which is itself the same as another",
    ],
    [
      "a parameter has a name that generated code uses",
      { cuCollide: { style: "async", arguments: { wire: { kind: "value" } } } },
      "cuCollide: parameter wire: generated code has another use for this name",
    ],
    [
      "what is left of a call's command is not said",
      { cuWatch: { style: "wait", arguments: { hEvent: { kind: "handle", of: "event" } } } },
      "command Watch: what is left of it in the worker is not said",
    ],
    [
      "what is left is said in two places",
      {
        cuStreamSync: {
          style: "wait",
          left: "books",
          command: "SyncStream",
          arguments: { hStream: { kind: "stream" } },
        },
      },
      "cuStreamSync: what a hand-written command does, and what is left of it, is said by that",
    ],
    [
      "a thing is made that no field names",
      { cuCopy: { ...sampleCopy, left: { makes: "copy" } } },
      "command Copy: what is left is said to be by copy, which is no field of type handle",
    ],
    [
      "a context is made whose number is none",
      { cuCopy: { ...sampleCopy, left: { makes: "to", kind: "context" } } },
      "command Copy: what is left is said to be by to, which is no field of type u32",
    ],
    [
      "something is set to what no field holds",
      { cuCopy: { ...sampleCopy, left: { sets: "value", of: "to" } } },
      "command Copy: what is left is said to be value, which is no field",
    ],
    [
      "a call that waits has an effect",
      {
        cuStreamSync: {
          style: "wait",
          effect: "awaitsWord",
          command: "SyncStream",
          arguments: { hStream: { kind: "stream" } },
        },
      },
      "cuStreamSync: only an async call has an effect: a call that waits gets its result",
    ],
  ];

  test.each(cases)("%s", (_, group, problem) => {
    expect(problemsOf(group)).toContain(problem);
  });

  test("two groups describe the same symbol", () => {
    const both = { one: { cuWatch: { style: "local" } }, two: { cuWatch: { style: "local" } } } as const;
    expect(() => makePlan({ abi: sampleAbi, driver: both, commands: [] })).toThrow(
      "cuWatch: described in one and in two",
    );
  });

  test("a command is described twice, has a field twice or a bad name", () => {
    const command: Command = { name: "copy", doc: "", fields: [["a", "u32"]], tails: ["a"] };
    expect(problemsOf({}, [command, command])).toEqual(
      expect.arrayContaining([
        "command copy: described twice",
        "command copy: not UpperCamel",
        "command copy: two fields are called a",
        "command copy: what is left of it in the worker is not said",
      ]),
    );
  });

  test("a derived command takes the name of a hand-written one", () => {
    const taken: Command = { name: "Watch", doc: "", left: "books", fields: [] };
    const group: Group = {
      cuWatch: { style: "async", left: "books", arguments: { hEvent: { kind: "handle", of: "event" } } },
    };
    expect(problemsOf(group, [taken])).toEqual(["command Watch: derived for a call, but the name is taken"]);
  });

  test("several things are wrong: all are named", () => {
    expect(
      problemsOf({ cuNothing: { style: "local" }, cuWatch: { style: "async", arguments: {} } }),
    ).toHaveLength(2);
  });
});
