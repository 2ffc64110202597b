// SPDX-License-Identifier: Apache-2.0
/** `native/cuda/gen/cuda_api.h`: the API's types, constants and prototypes, so that the build needs no CUDA toolkit. */
import type { Abi, FunctionVariant, Member, Parameter, TypeDeclaration } from "@millpond/cuda";
import { Layouts } from "./layout.ts";
import { banner, wrapList } from "./text.ts";

function parameterList(parameters: readonly Parameter[]): string[] {
  return parameters.length === 0 ? ["void"] : parameters.map((p) => `${p.type} ${p.name}`);
}

function memberLines(members: readonly Member[], indent: string): string[] {
  return members.flatMap((member) => {
    if (member.record) {
      const tag = member.record.tag === undefined ? "" : ` ${member.record.tag}`;
      const name = member.name === undefined ? "" : ` ${member.name}`;
      const head = `${indent}${member.record.kind}${tag} {`;
      return [head, ...memberLines(member.record.members, `${indent}  `), `${indent}}${name};`];
    }
    const align = member.align === undefined ? "" : `MILLPOND_ALIGNAS(${member.align}) `;
    const dimensions = (member.dimensions ?? []).map((n) => `[${n}]`).join("");
    return [`${indent}${align}${member.type} ${member.name}${dimensions};`];
  });
}

function typeText(type: TypeDeclaration): string {
  switch (type.kind) {
    case "handle":
      return `typedef struct ${type.tag}* ${type.name};`;
    case "alias":
      return `typedef ${type.type} ${type.name};`;
    case "callback":
      return wrapList(`typedef ${type.returns} (*${type.name})(`, parameterList(type.parameters), ");");
    case "enum": {
      const values = type.values.map(([name, value]) => `  ${name} = ${value},`);
      const underlying = type.values.some(([, value]) => value > 0x7fffffff) ? "unsigned int" : "int";
      return [
        `typedef enum ${type.name} MILLPOND_UNDERLYING(${underlying}) {`,
        ...values,
        `} ${type.name};`,
      ].join("\n");
    }
    case "struct":
    case "union":
      return [
        `typedef ${type.kind} ${type.tag ?? type.name} {`,
        ...memberLines(type.members, "  "),
        `} ${type.name};`,
      ].join("\n");
  }
}

export function prototypeText(variant: FunctionVariant): string {
  return wrapList(
    `MILLPOND_CUDA_API ${variant.returns} ${variant.symbol}(`,
    parameterList(variant.parameters),
    ");",
  );
}

export function emitTypes(abi: Abi): string {
  const blocks = abi.types.map((type) => {
    const text = typeText(type);
    return text.includes("\n") ? `\n${text}\n` : text;
  });
  const types = blocks.join("\n").replaceAll("\n\n\n", "\n\n");
  const constants = abi.constants.map(
    ([name, value]) => `#define ${name} ${value.startsWith("-") ? `(${value})` : value}`,
  );
  const release = `${Math.floor(abi.cudaVersion / 1000)}.${(abi.cudaVersion % 1000) / 10}`;
  return `${banner(`Types, constants and prototypes of the CUDA driver API ${release}, for 64-bit Linux.`)}#pragma once

#include <stddef.h>
#include <stdint.h>

/* Visibility of the driver's symbols, where they are defined. */
#ifndef MILLPOND_CUDA_API
#define MILLPOND_CUDA_API __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
#define MILLPOND_ALIGNAS(n) alignas(n)
/* Programs in C pass numbers that no enumerator has, which C++ allows for enums whose type is given. */
#define MILLPOND_UNDERLYING(type) : type
#else
#define MILLPOND_ALIGNAS(n) _Alignas(n)
#define MILLPOND_UNDERLYING(type)
#endif

#ifdef __cplusplus
extern "C" {
#endif

${constants.join("\n")}

${types}

${abi.functions.map(prototypeText).join("\n")}

#ifdef __cplusplus
}  /* extern "C" */
#endif
`;
}

/**
 * Static assertions on every size, offset and enum value: compiled against our header and, where available, the original.
 */
export function emitLayoutAssertions(
  abi: Abi,
  headers: (type: TypeDeclaration) => boolean = () => true,
): string {
  const layouts = new Layouts(abi);
  const lines = ["#include <stddef.h>"];
  for (const type of abi.types.filter(headers)) {
    if (type.kind === "enum") {
      lines.push(`_Static_assert(sizeof(${type.name}) == 4, "sizeof ${type.name}");`);
      for (const [name, value] of type.values)
        lines.push(`_Static_assert((int)${name} == ${value}, "${name}");`);
      continue;
    }
    const { size, align } = layouts.of(type.name);
    lines.push(`_Static_assert(sizeof(${type.name}) == ${size}, "sizeof ${type.name}");`);
    lines.push(`_Static_assert(_Alignof(${type.name}) == ${align}, "alignof ${type.name}");`);
    if (type.kind !== "struct" && type.kind !== "union") continue;
    for (const field of layouts.fields(type.name)) {
      lines.push(
        `_Static_assert(offsetof(${type.name}, ${field.path}) == ${field.offset}, "offset of ${type.name}.${field.path}");`,
        `_Static_assert(sizeof(((${type.name}*)0)->${field.path}) == ${field.size}, "size of ${type.name}.${field.path}");`,
      );
    }
  }
  return `${lines.join("\n")}\n`;
}
