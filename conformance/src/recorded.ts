// SPDX-License-Identifier: Apache-2.0
/** Recorded native output of programs on a real GPU: conformance/expected/<form>/<program>.txt. */
import { mkdir, readFile, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";

function pathOf(root: string, name: string): string {
  return join(root, "conformance", "expected", `${name}.txt`);
}

/** Undefined for a program without a record. */
export async function readRecorded(root: string, name: string): Promise<string | undefined> {
  try {
    return await readFile(pathOf(root, name), "utf8");
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return undefined;
    throw error;
  }
}

export async function writeRecorded(root: string, name: string, stdout: string): Promise<void> {
  const path = pathOf(root, name);
  await mkdir(dirname(path), { recursive: true });
  await writeFile(path, stdout);
}
