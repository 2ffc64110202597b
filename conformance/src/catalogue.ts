// SPDX-License-Identifier: Apache-2.0
/** The catalogue of programs: each binary holds the programs of one variant, and lists them. */
import { execFile } from "node:child_process";
import { existsSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { promisify } from "node:util";

/**
 * The variants in which programs are built: with the static runtime; the same with features that older devices lack; with the
 * shared runtime; with a per-thread default stream; from separately compiled device code; and in C against libcuda.so.1
 * alone.
 */
export const forms = ["runtime", "newer", "shared", "per-thread", "rdc", "driver"] as const;
export type Form = (typeof forms)[number];

export interface Listed {
  /** `form/program`. */
  readonly name: string;
  readonly form: Form;
  readonly program: string;
  /** The subject of the test, in one line. */
  readonly summary: string;
}

/** A program and the binary that holds it. */
export interface Program extends Listed {
  /** Absolute path. */
  readonly binary: string;
}

export interface Catalogue {
  readonly programs: readonly Program[];
  /** Variants that were not built. */
  readonly absent: readonly Form[];
}

/** Parses the output of `BINARY --list`: on each line a name, a tab and a summary. */
export function parseList(form: Form, text: string): readonly Listed[] {
  return text
    .split("\n")
    .filter((line) => line !== "")
    .map((line) => {
      const [program, summary, ...rest] = line.split("\t");
      if (program === undefined || summary === undefined || rest.length > 0)
        throw new Error(`the binary of ${form} lists "${line}", which is no name, tab and summary`);
      return { name: `${form}/${program}`, form, program, summary };
    });
}

/**
 * Requirements of a binary: a library named libcuda.so.1, and the libraries that must be preloaded for it.
 */
export async function readCatalogue(
  directory: string,
  driverDirectory: string,
  preload: string | undefined,
): Promise<Catalogue> {
  const programs: Program[] = [];
  const absent: Form[] = [];
  for (const form of forms) {
    const binary = join(directory, form);
    if (!existsSync(binary)) {
      absent.push(form);
      continue;
    }
    const { stdout } = await promisify(execFile)(binary, ["--list"], {
      env: { LD_LIBRARY_PATH: driverDirectory, ...(preload !== undefined && { LD_PRELOAD: preload }) },
    });
    programs.push(...parseList(form, stdout).map((listed) => ({ ...listed, binary })));
  }
  return { programs, absent };
}

/** Directory of the binaries: that of an unpacked archive, otherwise that of the build. */
export function binaryDirectory(root: string): string {
  const packaged = join(root, "conformance", "bin");
  const directory = existsSync(packaged) ? packaged : join(root, "build", "conformance", "bin");
  if (!existsSync(directory) || readdirSync(directory).length === 0)
    throw new Error(`${directory} has no programs: they are built by npm run conformance`);
  return directory;
}

/**
 * The programs that the names select: a name is a form, a program, or `form/program`. No names select all.
 *
 * @throws Error for a name that selects nothing
 */
export function choose<T extends Listed>(programs: readonly T[], names: readonly string[]): readonly T[] {
  if (names.length === 0) return programs;
  const chosen = new Set<T>();
  for (const name of names) {
    const matching = programs.filter((each) => [each.name, each.form, each.program].includes(name));
    if (matching.length === 0) throw new Error(`no program is named ${name}; --list names them`);
    for (const each of matching) chosen.add(each);
  }
  return programs.filter((each) => chosen.has(each));
}
