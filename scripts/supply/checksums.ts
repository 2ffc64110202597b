// SPDX-License-Identifier: Apache-2.0
// The checksums of published files, and their signature. `sha256sum -c` and `openssl pkeyutl -verify` read both.
import { createHash, createPrivateKey, sign } from "node:crypto";
import { readdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { ScriptError } from "../lib/command.ts";

export const checksumsName = "SHA256SUMS";

/** Whether a file of a folder is published. */
const isPublished = (name: string): boolean => /\.(?:tar\.gz|oci\.tar|cdx\.json)$/.test(name);

/** Writes the checksums of a folder's published files; @returns their names. */
export async function writeChecksums(folder: string): Promise<string[]> {
  const names = (await readdir(folder)).filter(isPublished).toSorted();
  if (names.length === 0)
    throw new ScriptError(`${folder} has nothing to publish: run npm run package first`);
  const lines: string[] = [];
  for (const name of names) {
    const digest = createHash("sha256").update(await readFile(join(folder, name)));
    lines.push(`${digest.digest("hex")}  ${name}\n`);
  }
  await writeFile(join(folder, checksumsName), lines.join(""));
  return names;
}

/** Signs the checksums of a folder with an Ed25519 key in PEM, and writes the signature beside them. */
export async function signChecksums(folder: string, keyFile: string): Promise<void> {
  let key;
  try {
    key = createPrivateKey(await readFile(keyFile));
  } catch (cause) {
    const message = cause instanceof Error ? cause.message : String(cause);
    throw new ScriptError(`the key ${keyFile} cannot be read: ${message}`);
  }
  if (key.asymmetricKeyType !== "ed25519") {
    throw new ScriptError(
      `the key ${keyFile} is of the kind ${key.asymmetricKeyType}, not Ed25519: openssl genpkey -algorithm ed25519`,
    );
  }
  const sums = await readFile(join(folder, checksumsName));
  await writeFile(join(folder, `${checksumsName}.sig`), sign(null, sums, key));
}
