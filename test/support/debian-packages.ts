// SPDX-License-Identifier: Apache-2.0
// Programs of Debian that may be run by a test, and not be shipped: fetched once, unpacked below build/, never installed.
import { spawnSync } from "node:child_process";
import { existsSync, mkdirSync, readdirSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { inRoot } from "../../scripts/lib/paths.ts";

export interface DebianPackage {
  readonly name: string;
  readonly suite: "bookworm" | "trixie";
  /** Additional packages of the suite, which are unpacked into the same folder. */
  readonly others?: readonly string[];
}

const areas = "main contrib non-free";
const keyring = "/usr/share/keyrings/debian-archive-keyring.gpg";

/** Where a package is unpacked, or why it is not available on this machine. */
export type Unpacked =
  | { readonly folder: string; readonly missing?: undefined }
  | { readonly missing: string };

/** Unpacks a Debian package, also from the non-free areas, which need not be configured on this machine. */
export function unpackDebian({ name, suite, others = [] }: DebianPackage): Unpacked {
  const folder = inRoot("build", "debian", `${name}-${suite}`);
  if (existsSync(folder)) return { folder };
  if (!existsSync(keyring)) return { missing: `no ${keyring}` };
  const draft = `${folder}.${process.pid}`;
  try {
    const apt = join(draft, "apt");
    mkdirSync(join(apt, "lists", "partial"), { recursive: true });
    mkdirSync(join(apt, "cache", "archives", "partial"), { recursive: true });
    const mirror = ownMirror();
    if (mirror === undefined) return { missing: "no mirror of Debian is configured" };
    const sources = join(apt, "sources.list");
    writeFileSync(sources, `deb [signed-by=${keyring}] ${mirror} ${suite} ${areas}\n`);
    const options = [
      `Dir::Etc::SourceList=${sources}`,
      "Dir::Etc::SourceParts=/dev/null",
      `Dir::State::Lists=${join(apt, "lists")}`,
      `Dir::Cache=${join(apt, "cache")}`,
      "APT::Sandbox::User=",
      "APT::Architecture=amd64",
      "Acquire::Retries=2",
      "Acquire::http::Timeout=20",
    ].flatMap((option) => ["-o", option]);
    for (const command of [["update"], ["download", name, ...others]]) {
      const failure = failureOf("apt-get", [...options, "-qq", ...command], draft);
      if (failure !== undefined) return { missing: failure };
    }
    const archives = readdirSync(draft).filter((file) => file.endsWith(".deb"));
    if (archives.length === 0) return { missing: `apt-get gave no package ${name}` };
    for (const archive of archives) {
      const failure = failureOf("dpkg-deb", ["-x", archive, "files"], draft);
      if (failure !== undefined) return { missing: failure };
    }
    // Another test may have been faster.
    if (!existsSync(folder)) renameSync(join(draft, "files"), folder);
    return { folder };
  } finally {
    rmSync(draft, { recursive: true, force: true });
  }
}

/** The mirror from which this machine gets its own packages. */
function ownMirror(): string | undefined {
  const { stdout } = spawnSync("apt-get", ["indextargets", "--format", "$(REPO_URI)"], { encoding: "utf8" });
  return stdout?.split("\n").find((uri) => /\/debian\/?$/.test(uri));
}

function failureOf(command: string, args: readonly string[], cwd: string): string | undefined {
  const { status, stderr, error } = spawnSync(command, args, { cwd, encoding: "utf8", timeout: 120_000 });
  if (status === 0) return undefined;
  return `${command} ${args.at(-1)}: ${error?.message ?? stderr.trim().split("\n").at(-1)}`;
}
