// SPDX-License-Identifier: Apache-2.0
import type { Command } from "@millpond/cuda";
import type { TailMeanings } from "./plan.ts";

/** Tails of commands that `tails.ts` does not describe, and entries in it without a tail. */
export function tailProblems(commands: readonly Command[], tails: TailMeanings | undefined): string[] {
  if (tails === undefined) return [];
  const known = new Set(
    Object.entries(tails).flatMap(([command, each]) =>
      Object.keys(each).map((tail) => `${command}: ${tail}`),
    ),
  );
  const unsaid = commands.flatMap(({ name, tails: all = [] }) =>
    all
      .filter((tail) => !known.delete(`${name}: ${tail}`))
      .map((tail) => `command ${name}: ${tail}: tails.ts does not say what is in it`),
  );
  return [...unsaid, ...[...known].map((each) => `tails.ts: command ${each}: there is no such tail`)];
}
