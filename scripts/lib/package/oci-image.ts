// SPDX-License-Identifier: Apache-2.0

// Container images without a container engine: an archive in the OCI image layout, with one layer. The same files result in
// the same archive, byte for byte.

import { createHash } from "node:crypto";
import { gzipSync } from "node:zlib";

/** A file of an image. Directories above it need not be listed. */
export interface ImageEntry {
  /** Without a leading slash. */
  readonly path: string;
  /** Content of a file, or target of a link; absent for a directory. */
  readonly content?: Buffer;
  readonly link?: string;
  /** Default 0755 for directories, 0644 for files. */
  readonly mode?: number;
}

export interface ImageConfig {
  /** `millpond/millpond:0.1.0`. */
  readonly name: string;
  readonly entrypoint: readonly string[];
  /** `NAME=value`. */
  readonly environment?: readonly string[];
  /** `uid:gid`. Default root. */
  readonly user?: string;
}

const block = 512;

/** The archive, a tar file. */
export function makeImage(entries: readonly ImageEntry[], config: ImageConfig): Buffer {
  const layer = makeTar(withDirectories(entries));
  const zipped = gzipSync(layer, { level: 6 });
  const blobs = new Map<string, Buffer>();
  const add = (content: Buffer, mediaType: string) => {
    const digest = sha256(content);
    blobs.set(digest, content);
    return { mediaType, digest: `sha256:${digest}`, size: content.length };
  };
  const json = (value: unknown): Buffer => Buffer.from(JSON.stringify(value));
  const layerBlob = add(zipped, "application/vnd.oci.image.layer.v1.tar+gzip");
  const configBlob = add(
    json({
      created: "1970-01-01T00:00:00Z",
      architecture: "amd64",
      os: "linux",
      config: {
        Entrypoint: config.entrypoint,
        Env: ["PATH=/usr/local/bin:/usr/bin:/bin", ...(config.environment ?? [])],
        ...(config.user === undefined ? {} : { User: config.user }),
        WorkingDir: "/",
      },
      rootfs: { type: "layers", diff_ids: [`sha256:${sha256(layer)}`] },
      history: [{ created: "1970-01-01T00:00:00Z", created_by: "millpond" }],
    }),
    "application/vnd.oci.image.config.v1+json",
  );
  const manifest = add(
    json({
      schemaVersion: 2,
      mediaType: "application/vnd.oci.image.manifest.v1+json",
      config: configBlob,
      layers: [layerBlob],
    }),
    "application/vnd.oci.image.manifest.v1+json",
  );
  const annotations = {
    "io.containerd.image.name": `docker.io/${config.name}`,
    "org.opencontainers.image.ref.name": config.name.split(":")[1] ?? "latest",
  };
  return makeTar([
    { path: "oci-layout", content: json({ imageLayoutVersion: "1.0.0" }) },
    {
      path: "index.json",
      content: json({
        schemaVersion: 2,
        mediaType: "application/vnd.oci.image.index.v1+json",
        manifests: [{ ...manifest, annotations }],
      }),
    },
    { path: "blobs" },
    { path: "blobs/sha256" },
    ...[...blobs].map(([digest, content]) => ({ path: `blobs/sha256/${digest}`, content })),
  ]);
}

function sha256(content: Buffer): string {
  return createHash("sha256").update(content).digest("hex");
}

/** Sorted by path, each after its directory. */
function withDirectories(entries: readonly ImageEntry[]): ImageEntry[] {
  const all = new Map<string, ImageEntry>();
  for (const entry of entries) {
    const parts = entry.path.split("/");
    for (let depth = 1; depth < parts.length; depth += 1) {
      const path = parts.slice(0, depth).join("/");
      if (!all.has(path)) all.set(path, { path });
    }
    all.set(entry.path, entry);
  }
  return [...all.values()].sort((a, b) => (a.path < b.path ? -1 : 1));
}

/** A tar file in the ustar format, owned by root and dated 1970. */
function makeTar(entries: readonly ImageEntry[]): Buffer {
  const parts: Buffer[] = [];
  for (const entry of entries) {
    const { content } = entry;
    parts.push(makeHeader(entry));
    if (content !== undefined) {
      parts.push(content, Buffer.alloc((block - (content.length % block)) % block));
    }
  }
  parts.push(Buffer.alloc(2 * block));
  return Buffer.concat(parts);
}

function makeHeader({ path, content, link, mode }: ImageEntry): Buffer {
  const isDirectory = content === undefined && link === undefined;
  const { prefix, name } = splitPath(isDirectory ? `${path}/` : path);
  const header = Buffer.alloc(block);
  const octal = (value: number, width: number): string => value.toString(8).padStart(width - 1, "0");
  header.write(name, 0);
  header.write(octal(mode ?? (isDirectory ? 0o755 : link === undefined ? 0o644 : 0o777), 8), 100);
  header.write(octal(0, 8), 108);
  header.write(octal(0, 8), 116);
  header.write(octal(content?.length ?? 0, 12), 124);
  header.write(octal(0, 12), 136);
  header.write(" ".repeat(8), 148);
  header.write(isDirectory ? "5" : link === undefined ? "0" : "2", 156);
  if (link !== undefined) header.write(link, 157);
  header.write("ustar\x0000", 257, "latin1");
  header.write("root", 265);
  header.write("root", 297);
  header.write(prefix, 345);
  const sum = header.reduce((total, byte) => total + byte, 0);
  header.write(`${sum.toString(8).padStart(6, "0")}\0 `, 148);
  return header;
}

/**
 * A name of more than 100 bytes is split at a slash.
 *
 * @throws if it cannot be
 */
function splitPath(path: string): { readonly prefix: string; readonly name: string } {
  if (Buffer.byteLength(path) <= 100) return { prefix: "", name: path };
  for (let at = path.indexOf("/"); at >= 0; at = path.indexOf("/", at + 1)) {
    const [prefix, name] = [path.slice(0, at), path.slice(at + 1)];
    if (Buffer.byteLength(prefix) <= 155 && Buffer.byteLength(name) <= 100 && name !== "")
      return { prefix, name };
  }
  throw new Error(`${path} is too long for a tar file`);
}
