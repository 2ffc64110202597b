// SPDX-License-Identifier: Apache-2.0
import { mkdtempSync, writeFileSync } from "node:fs";
import { rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, expect, test } from "vitest";
import { must } from "../command.ts";
import { checkHardening } from "./hardening.ts";

const directory = mkdtempSync(join(tmpdir(), "millpond-hardening-"));
afterAll(() => rm(directory, { recursive: true }));
const source = join(directory, "a.c");
writeFileSync(
  source,
  `#include <stdio.h>
#ifdef MODIFIES_ITSELF
__asm__(".section .both,\\"awx\\"\\n.byte 0\\n.previous");
#endif
int main(int count, char** words) { char text[40]; snprintf(text, count + 30u, "%s", words[0]); return puts(text); }
`,
);

const hardened = [
  "-O2",
  "-fPIE",
  "-pie",
  "-fstack-protector-strong",
  "-U_FORTIFY_SOURCE",
  "-D_FORTIFY_SOURCE=2",
  "-Wl,-z,relro",
  "-Wl,-z,now",
  "-Wl,-z,noexecstack",
];

async function link(name: string, options: readonly string[]): Promise<string> {
  const program = join(directory, name);
  await must("cc", [source, "-o", program, ...hardened, ...options]);
  return program;
}

test("a program that is linked with all of it has no fault", async () => {
  const path = await link("hard", []);
  await expect(checkHardening([{ path, role: "part" }])).resolves.toBeUndefined();
});

test.each([
  ["-Wl,-z,lazy", /keeps its table of addresses writable/],
  ["-Wl,-z,norelro", /keeps its table of addresses writable/],
  ["-Wl,-z,execstack", /has an executable stack/],
  ["-DMODIFIES_ITSELF", /writable and executable/],
  ["-no-pie", /is not position independent/],
  ["-fno-stack-protector", /has no stack protector/],
  ["-U_FORTIFY_SOURCE", /has no checked calls/],
  ["-Wl,-rpath,/opt/build", /RPATH/],
])("%s is a fault", async (option, fault) => {
  const path = await link("soft", [option]);
  await expect(checkHardening([{ path, role: "part" }])).rejects.toThrow(fault);
});

test("programs that play the tenant may be bound lazily, and may have no executable stack", async () => {
  const lazy = await link("lazy", ["-Wl,-z,lazy", "-fno-stack-protector"]);
  await expect(checkHardening([{ path: lazy, role: "tenant" }])).resolves.toBeUndefined();
  const path = await link("stack", ["-Wl,-z,execstack"]);
  await expect(checkHardening([{ path, role: "tenant" }])).rejects.toThrow(
    `${path}\n  has an executable stack`,
  );
});
