// SPDX-License-Identifier: Apache-2.0

import { expect, test } from "vitest";
import { type Argument, type Call, parseCall, parseHeader, type Text, type Value } from "./line.ts";

/** A line as the client library writes it. */
function render(call: Call): string {
  const micro = (ns: number): string => `${Math.floor(ns / 1000)}.${String(ns % 1000).padStart(3, "0")}`;
  const fields = call.arguments.map(renderArgument);
  if (call.isCut) fields.push("...");
  const waits = call.waits > 0 ? `; waits ${call.waits}` : "";
  const earlier = call.isEarlierFailure ? "; of an earlier call" : "";
  return `${micro(call.start).padStart(14)} +${micro(call.duration)} ${call.process}/${call.thread} ${call.name}(${fields.join(", ")}) = ${call.result}${waits}${earlier}`;
}

const renderArgument = ({ name, value }: Argument): string => `${name}=${renderValue(value)}`;

function renderValue(value: Value): string {
  switch (value.kind) {
    case "word":
      return value.text === undefined ? value.word : `${value.word} ${renderText(value.text)}`;
    case "text":
      return renderText(value);
    case "target":
      return `&${renderValue(value.value)}`;
    case "struct":
      return `{${value.fields.map(renderArgument).join(", ")}}`;
    case "list":
      return `[${[...value.values.map(renderValue), ...(value.isCut ? ["..."] : [])].join(", ")}]`;
    case "bytes":
      return `{${value.bytes} bytes}`;
    default:
      return value satisfies never;
  }
}

const renderText = ({ text, isCut }: Text): string =>
  `"${text
    .replace(/["\\]/g, "\\$&")
    .replace(
      /[^ -~\u0080-\uffff]/g,
      (char) => `\\u${char.charCodeAt(0).toString(16).padStart(4, "0")}`,
    )}"${isCut ? "..." : ""}`;

/** Pseudo-random numbers below `limit`, the same in every run. */
function randomNumbers(seed: number): (limit: number) => number {
  let state = seed;
  return (limit) => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return Math.floor((state / 2 ** 32) * limit);
  };
}

test("what is written is read back, whatever the values", () => {
  const next = randomNumbers(7);
  const pick = <T>(...of: readonly T[]): T => of[next(of.length)] as T;
  const text = (): Text => ({
    kind: "text",
    text: Array.from({ length: next(12) }, () =>
      pick("a", '"', "\\", "\n", " ", ",", ")", "}", "]", "=", "é", "\u0001", "u0041", "..."),
    ).join(""),
    isCut: next(4) === 0,
  });
  const value = (depth: number): Value => {
    switch (depth > 3 ? next(3) : next(6)) {
      case 0:
        return {
          kind: "word",
          word: pick("0", "-5", "1.5e+09", "0x7f00", "null", "perThread", "CU_A_B", "nan"),
        };
      case 1:
        return text();
      case 2:
        return pick<Value>({ kind: "bytes", bytes: next(100) }, { kind: "word", word: "0x1", text: text() });
      case 3:
        return { kind: "target", value: value(depth + 1) };
      case 4:
        return {
          kind: "list",
          values: Array.from({ length: next(4) }, () => value(depth + 1)),
          isCut: next(4) === 0,
        };
      default:
        return { kind: "struct", fields: fields(depth + 1) };
    }
  };
  const fields = (depth: number): Argument[] =>
    Array.from({ length: next(4) }, () => ({ name: pick("a", "location.id", "p_1"), value: value(depth) }));
  for (let i = 0; i < 3000; ++i) {
    const call: Call = {
      start: next(2 ** 31),
      duration: next(5000),
      process: 1 + next(99999),
      thread: 1 + next(99999),
      name: pick("cuInit", "cuMemcpyHtoD_v2_ptds"),
      arguments: fields(0),
      isCut: next(8) === 0,
      result: pick("CUDA_SUCCESS", "CUDA_ERROR_INVALID_VALUE", "990"),
      waits: next(3),
      isEarlierFailure: next(5) === 0,
    };
    const line = render(call);
    expect(parseCall(line), line).toEqual(call);
  }
});

const good =
  '       421.102 +3.110 4711/4713 cuModuleGetFunction(hfunc=&0x10 "add", hmod=0x20, name="add") = CUDA_SUCCESS; waits 1';

test("a call, in its parts", () => {
  expect(parseCall(good)).toEqual({
    start: 421_102,
    duration: 3110,
    process: 4711,
    thread: 4713,
    name: "cuModuleGetFunction",
    arguments: [
      {
        name: "hfunc",
        value: {
          kind: "target",
          value: { kind: "word", word: "0x10", text: { kind: "text", text: "add", isCut: false } },
        },
      },
      { name: "hmod", value: { kind: "word", word: "0x20" } },
      { name: "name", value: { kind: "text", text: "add", isCut: false } },
    ],
    isCut: false,
    result: "CUDA_SUCCESS",
    waits: 1,
    isEarlierFailure: false,
  });
});

test("no beginning of a line is a line, but that which lacks a note only", () => {
  for (let length = 0; length < good.length; ++length) {
    const isWhole = length === good.indexOf("; waits") || good.slice(0, length).endsWith("= CUDA_SUCCESS");
    // The name of a result may begin with a shorter name: only the missing newline shows that it was truncated.
    const isResult = length > good.indexOf(") = ") + 4 && length < good.indexOf("; waits");
    if (isWhole || isResult) continue;
    expect(parseCall(good.slice(0, length)), good.slice(0, length)).toBeUndefined();
  }
});

test.each([
  "",
  "hello",
  "1.000 +1.000 1/1 cuInit(Flags) = CUDA_SUCCESS",
  "1.00 +1.000 1/1 cuInit() = CUDA_SUCCESS",
  "1.000 +1.000 1/1 main() = CUDA_SUCCESS",
  "1.000 +1.000 1/1 cuInit(a=1,b=2) = CUDA_SUCCESS",
  "1.000 +1.000 1/1 cuInit(a={b=1) = CUDA_SUCCESS",
  'cuInit(a="1") = CUDA_SUCCESS',
  '1.000 +1.000 1/1 cuInit(a="\\x") = CUDA_SUCCESS',
  "1.000 +1.000 1/1 cuInit() = CUDA_SUCCESS; waits many",
  `1.000 +1.000 1/1 cuInit(a=${"&".repeat(1000)}1) = CUDA_SUCCESS`,
])("%s is no call", (line) => {
  expect(parseCall(line)).toBeUndefined();
});

test("a header", () => {
  expect(
    parseHeader("# millpond trace 1, process 4711, started 2026-01-30T10:00:00.000000Z, program ./a, b"),
  ).toEqual({ version: 1, process: 4711, started: "2026-01-30T10:00:00.000000Z", program: "./a, b" });
  expect(parseHeader("# something else")).toBeUndefined();
});
