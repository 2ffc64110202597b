// SPDX-License-Identifier: Apache-2.0
/** Structs that cross from a client: the meaning of their 64-bit members, and `native/cuda/gen/crossing_members.h`. */
import type { Member, MemberMeaning } from "@millpond/cuda";
import { type Layouts, roundUp } from "./layout.ts";
import { banner } from "./text.ts";

export type StructMeanings = Readonly<Record<string, Readonly<Record<string, MemberMeaning>>>>;

interface Word {
  /** As `offsetof` takes it. */
  readonly path: string;
  readonly offset: number;
}

/** 64-bit C types that are never an address or a handle. */
const plainNumbers = new Set(["size_t", "double"]);

/** Members of 64 bits, nested ones included, that their C type does not identify as numbers. */
export function wordsOf(layouts: Layouts, type: string): readonly Word[] {
  const declared = layouts.declaration(layouts.resolve(type));
  if (declared?.kind !== "struct" && declared?.kind !== "union") return [];
  return inside(layouts, declared.kind, declared.members, "", 0);
}

function inside(
  layouts: Layouts,
  kind: "struct" | "union",
  members: readonly Member[],
  prefix: string,
  base: number,
): Word[] {
  const words: Word[] = [];
  let end = 0;
  for (const member of members) {
    const { size, align } = layouts.ofMember(member);
    const offset = kind === "union" ? 0 : roundUp(end, align);
    end = offset + size;
    const path = prefix + (member.name ?? "");
    const within = member.name === undefined ? prefix : `${path}.`;
    const type = member.type ?? "";
    const declared = layouts.declaration(layouts.resolve(type));
    if (member.record) {
      words.push(...inside(layouts, member.record.kind, member.record.members, within, base + offset));
    } else if (declared?.kind === "struct" || declared?.kind === "union") {
      words.push(...inside(layouts, declared.kind, declared.members, within, base + offset));
    } else if (layouts.of(type).size === 8 && !plainNumbers.has(layouts.resolve(type))) {
      words.push({ path, offset: base + offset });
    }
  }
  return words;
}

/** Why the meaning of a struct's members is unknown; undefined when it is known. */
export function undescribed(layouts: Layouts, type: string, meanings: StructMeanings): string | undefined {
  const known = meanings[type] ?? {};
  const missing = wordsOf(layouts, type).filter(({ path }) => known[path] === undefined);
  const paths = missing.map(({ path }) => path).join(", ");
  return missing.length === 0 ? undefined : `structs.ts does not say what ${paths} of ${type} means`;
}

/** Described members that do not exist. */
export function strangeMembers(layouts: Layouts, meanings: StructMeanings): string[] {
  return Object.entries(meanings).flatMap(([type, members]) => {
    const declared = layouts.declaration(layouts.resolve(type));
    if (declared?.kind !== "struct" && declared?.kind !== "union") return [`struct ${type}: there is none`];
    const paths = new Set(wordsOf(layouts, type).map(({ path }) => path));
    return Object.keys(members)
      .filter((path) => !paths.has(path))
      .map((path) => `struct ${type}: ${path} is no member of 64 bits that could be an address`);
  });
}

function specialisation(type: string, members: Readonly<Record<string, MemberMeaning>>): string {
  const list = (wanted: (meaning: MemberMeaning) => boolean): string =>
    Object.entries(members)
      .filter(([, meaning]) => wanted(meaning))
      .map(([path]) => `offsetof(${type}, ${path})`)
      .join(", ");
  const array = (name: string, wanted: (meaning: MemberMeaning) => boolean): string => {
    const offsets = list(wanted);
    const count = offsets === "" ? 0 : offsets.split(", offsetof").length;
    return `  static constexpr std::array<size_t, ${count}> ${name}{${offsets}};`;
  };
  return [
    "template <>",
    `struct CrossingMembers<${type}> {`,
    array("kAddresses", (m) => m === "address"),
    array("kHandles", (m) => m === "handle"),
    array("kUnset", (m) => m === "unset"),
    "};",
  ].join("\n");
}

export function emitCrossingMembers(meanings: StructMeanings): string {
  const described = Object.entries(meanings).filter(([, members]) => Object.keys(members).length > 0);
  return `${banner("Structs that cross from a client: which of their members its worker must not believe.")}#pragma once

#include <array>
#include <cstddef>

#include "cuda/gen/cuda_api.h"

namespace millpond {

/// Offsets of the members that are addresses, that are handles, and that are null for the worker's driver.
template <typename T>
struct CrossingMembers;

${described.map(([type, members]) => specialisation(type, members)).join("\n")}

}  // namespace millpond
`;
}
