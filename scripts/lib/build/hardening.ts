// SPDX-License-Identifier: Apache-2.0
// Rules for the linkage of our ELF files, which make a fault in one of them harder to exploit.
import { must, ScriptError } from "../command.ts";

/** The files to which a rule applies. */
export type ElfRole =
  /** Parts that process input from others: workers, client libraries, the software GPU, measuring programs. */
  | "part"
  /** Programs that stand for tenants' programs: examples and conformance programs, linked as nvcc and tenants do. */
  | "tenant";

const rules: readonly {
  readonly roles: readonly ElfRole[];
  readonly fault: string;
  readonly holds: (dynamic: string, symbols: string) => boolean;
}[] = [
  {
    roles: ["part", "tenant"],
    fault: "has an executable stack, or does not say that it needs none (-z noexecstack)",
    holds: (dynamic) => /^\s*GNU_STACK\s.*\sRW\s+0x/m.test(dynamic),
  },
  {
    roles: ["part", "tenant"],
    fault: "has a segment that is writable and executable",
    holds: (dynamic) => !/^\s*LOAD\s.*\sRWE\s+0x/m.test(dynamic),
  },
  {
    roles: ["part", "tenant"],
    fault: "is not position independent (-pie)",
    holds: (dynamic) => /^Elf file type is DYN /m.test(dynamic) && !dynamic.includes("(TEXTREL)"),
  },
  {
    roles: ["part"],
    fault: "keeps its table of addresses writable: it needs -z relro and -z now",
    holds: (dynamic) => /^\s*GNU_RELRO\s/m.test(dynamic) && /\(FLAGS_1\)\s+Flags:.*\bNOW\b/.test(dynamic),
  },
  {
    roles: ["part"],
    fault: "looks for libraries in folders of the machine that built it (RPATH, RUNPATH)",
    holds: (dynamic) => !/\((RPATH|RUNPATH)\)/.test(dynamic),
  },
  {
    roles: ["part"],
    fault: "has no stack protector (-fstack-protector-strong)",
    holds: (_, symbols) => /\s__stack_chk_fail(@|$)/m.test(symbols),
  },
  {
    roles: ["part"],
    fault: "has no checked calls of the C library (-D_FORTIFY_SOURCE)",
    holds: (_, symbols) => /\s__(?!stack_chk_fail)\w+_chk(@|$)/m.test(symbols),
  },
];

/** The faults of an ELF file, from the output of `readelf -dlW` and `readelf --dyn-syms -W`; empty if there are none. */
export function findWeaknesses(dynamic: string, symbols: string, role: ElfRole): string[] {
  return rules
    .filter(({ roles, holds }) => roles.includes(role) && !holds(dynamic, symbols))
    .map(({ fault }) => fault);
}

/** Throws a ScriptError that names every file with a fault, and the faults. */
export async function checkHardening(files: readonly { path: string; role: ElfRole }[]): Promise<void> {
  const env = { ...process.env, LC_ALL: "C" };
  const found: string[] = [];
  for (const { path, role } of files) {
    const dynamic = await must("readelf", ["-dlW", path], { env });
    const symbols = await must("readelf", ["--dyn-syms", "-W", path], { env });
    const faults = findWeaknesses(dynamic, symbols, role);
    if (faults.length > 0) found.push(`${path}\n  ${faults.join("\n  ")}`);
  }
  if (found.length > 0) throw new ScriptError(found.join("\n"));
}
