// SPDX-License-Identifier: Apache-2.0

import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";

const canUnshare =
  process.getuid?.() === 0 && spawnSync("unshare", ["-n", "-m", "-p", "-f", "true"]).status === 0;

test.skipIf(!canUnshare)(
  `programs in namespaces end with a test that is killed${canUnshare ? "" : " (skipped: there are no namespaces here)"}`,
  async () => {
    const directory = mkdtempSync(join(tmpdir(), "millpond-namespaces-"));
    onTestFinished(() => rmSync(directory, { recursive: true }));
    const script = join(directory, "node.sh");
    // The second one runs in the background, like a kubelet.
    writeFileSync(script, "sleep 1000 &\nsleep 1000\n");
    const program = join(directory, "start.ts");
    const module = join(import.meta.dirname, "namespaces.ts");
    writeFileSync(
      program,
      `import { firstProcessOf, spawnInNamespaces } from ${JSON.stringify(module)};
const child = spawnInNamespaces(${JSON.stringify(script)}, process.env);
const timer = setInterval(() => {
  const pid = firstProcessOf(child);
  if (/^\\d+$/.test(pid)) process.stdout.write(pid + "\\n");
}, 20);
`,
    );
    const parent = spawn(process.execPath, [program], { stdio: ["ignore", "pipe", "inherit"] });
    onTestFinished(() => {
      parent.kill("SIGKILL");
    });
    const [output] = (await once(parent.stdout, "data")) as [Buffer];
    const first = output.toString().split("\n")[0] ?? "";
    expect(existsSync(`/proc/${first}`)).toBe(true);
    parent.kill("SIGKILL");
    await expect.poll(() => existsSync(`/proc/${first}`), { timeout: 60_000 }).toBe(false);
  },
);
