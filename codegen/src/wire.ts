// SPDX-License-Identifier: Apache-2.0
/** The memory layout of a command's fields. */
import { createHash } from "node:crypto";
import type { Command, Field, FieldType } from "@millpond/cuda";

export interface PlacedField {
  readonly name: string;
  readonly type: FieldType;
  readonly offset: number;
  readonly size: number;
}

export interface Placement {
  readonly fields: readonly PlacedField[];
  /** A multiple of 8. */
  readonly size: number;
}

const scalarSizes = {
  u8: 1,
  u16: 2,
  u32: 4,
  i32: 4,
  u64: 8,
  i64: 8,
  f32: 4,
  address: 8,
  place: 8,
  echo: 8,
  handle: 8,
  number: 8,
} as const;

export const fieldSize = (type: FieldType): number =>
  typeof type === "string" ? scalarSizes[type] : type.bytes;
const fieldAlign = (type: FieldType): number => (typeof type === "string" ? scalarSizes[type] : 8);
const roundUp = (value: number, to: number): number => Math.ceil(value / to) * to;

/** Natural alignment in the order of declaration; the lengths of the tails, u32 each, come last. */
export function place(fields: readonly Field[], tails: readonly string[]): Placement {
  const placed: PlacedField[] = [];
  let end = 0;
  for (const [name, type] of [...fields, ...tails.map((tail): Field => [`${tail}Bytes`, "u32"])]) {
    const offset = roundUp(end, fieldAlign(type));
    end = offset + fieldSize(type);
    placed.push({ name, type, offset, size: fieldSize(type) });
  }
  return { fields: placed, size: roundUp(end, 8) };
}

/** First 8 bytes of a SHA-256 over everything that both ends must agree on, documentation aside. Big-endian hexadecimal. */
export function apiHash(commands: readonly Command[]): string {
  const canonical = commands.map((c, index) => [
    index + 1,
    c.name,
    c.fields,
    c.tails ?? [],
    c.reply ? [c.reply.fields, c.reply.tails ?? []] : null,
    c.left,
  ]);
  return createHash("sha256").update(JSON.stringify(canonical)).digest("hex").slice(0, 16);
}
