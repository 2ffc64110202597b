// SPDX-License-Identifier: Apache-2.0

import { spawnSync } from "node:child_process";
import { existsSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { entry } from "../../test/entry.ts";
import { Home } from "../../test/fixture.ts";
import { parseCommandLine, UsageError } from "./command-line.ts";
import { unknownVariables } from "./known-variables.ts";
import { commandNames, commandSpecs } from "../command-table/command-table.ts";

const root = join(import.meta.dirname, "..", "..", "..");

/** Invalid command lines, and their messages. No controller listens at the given address. */
const mistakes: readonly (readonly [string, RegExp, NodeJS.ProcessEnv?])[] = [
  ["frobnicate", /unknown command 'frobnicate'/],
  ["rnu -- true", /Did you mean run\?/],
  ["cancel train", /unknown command 'cancel'\n {2}Release a claim with `millpond release`/],
  ["exec train", /unknown command 'exec'\n.*millpond run --claim/],
  ["run --requeue --no-wait -- true", /--requeue waits for capacity again, and --no-wait never waits/],
  ["token create t --expires 0", /--expires: /],
  [
    "get nodes --controller http://ann:secret@127.0.0.1:1",
    /the URL of 127\.0\.0\.1:1 has a user or a password/,
  ],
  ["run --detach --array 3-1 -- true", /the range 3-1 ends before it begins/],
  ["run --array 0-1 --gang g --gang-size 2 -- true", /--array and --gang are both given/],
  ["logs --tail x job", /--tail: "x" is not a whole number from 0 to 1000000/],
  ["--frobnicate", /unknown option '--frobnicate'/],
  ["run", /missing required argument 'program'/],
  ["run --gpu 1 -- true", /unknown option '--gpu'\n {2}Did you mean --gpus\?/],
  ["run -n 0 -- true", /--gpus: "0" is not a whole number from 1 to 64/],
  ["run -n 65 -- true", /--gpus: "65" is not/],
  ["run -n 1.5 -- true", /--gpus: "1\.5" is not/],
  ["run -n all -- true", /--gpus: "all" is not/],
  ["run -n -1 -- true", /argument missing|--gpus: "-1" is not/],
  ["run -m 0 -- true", /--memory: the size "0" is not between 1 MiB and 1 PiB/],
  ["run -m 10X -- true", /--memory: "10X" is not a size such as/],
  ["run -m -5Gi -- true", /argument missing|--memory: "-5Gi" is not a size/],
  ["run -m 0% -- true", /--memory: "0%" is not a share/],
  ["run -m 101% -- true", /--memory: "101%" is not a share/],
  ["run -m 1.5 -- true", /--memory: "1\.5" is not a share/],
  ["run -m 9999Ti -- true", /--memory: the size "9999Ti" is not between/],
  ["run -m 1Gi --gpu-memory 2Gi -- true", /--memory and --gpu-memory set the same option twice/],
  ["run --gpu-memory x -- true", /--gpu-memory: "x" is not a size/],
  ["run --compute 0 -- true", /--compute: "0" is not a share/],
  ["run --compute 101 -- true", /--compute: "101" is not a share/],
  ["run --compute fast -- true", /--compute: "fast" is not a share/],
  [
    "run -p 1 -- true",
    /--partial: "1" is neither a fraction.*\n {2}Write 1\.0 for all of it or 1% for a hundredth/,
  ],
  ["run -c 1 -- true", /--compute: "1" is neither .*\n {2}Write 1\.0 for all of it or 1% for a hundredth/],
  ["run -p 2 -- true", /--partial: "2" is neither a fraction/],
  ["run -p 2.0 -- true", /--partial: "2\.0" is not a share/],
  ["run --timeout soon -- true", /--timeout: "soon" is not a duration/],
  ["run --name Big_Job -- true", /--name: the name "Big_Job" is not/],
  ["run --transport pigeon -- true", /--transport: "pigeon" is not one of auto, shm, tcp/],
  ["run --controller not-a-url -- true", /"not-a-url" is not a URL/],
  ["run -- true", /MILLPOND_GPUS: "many" is not a whole number/, { MILLPOND_GPUS: "many" }],
  ["run -- true", /MILLPOND_MEMORY: "lots" is not a size/, { MILLPOND_MEMORY: "lots" }],
  ["run -- true", /MILLPOND_COMPUTE: "500" is not a share/, { MILLPOND_COMPUTE: "500" }],
  ["run -- true", /MILLPOND_TRANSPORT: "rdma" is not one of/, { MILLPOND_TRANSPORT: "rdma" }],
  ["get", /missing required argument 'kind'/],
  ["restore /dev/null --state /dev/null/x", /ENOTDIR: not a directory.*\n {2}Correct the path\./],
  ["get nods", /kind: "nods" is not one of .*\n {2}Did you mean nodes\?/],
  ["get nodes one extra", /too many arguments/],
  ["get nodes -o xml", /--output: "xml" is not one of table, wide, name, json/],
  ["describe node", /missing required argument 'name'/],
  ["queue list", /action: "list" is not one of create, change, delete/],
  ["completion tcsh", /shell: "tcsh" is not one of bash, zsh, fish/],
  ["up --nodes 0", /--nodes: "0" is not/],
  ["up --devices 33", /--devices: a node has at most 32, not 33/],
  ["up --device-memory 1Mi", /--device-memory: 1Mi is not between 64Mi and 1Ti/],
  ["up --soft --listen example.org:0", /neither an IP address nor localhost/],
];

test("kinds may be named in the singular or plural", () => {
  expect(parseCommandLine(["get", "node"])).toMatchObject({ command: "get", args: ["nodes"] });
  expect(parseCommandLine(["get", "queue", "default"])).toMatchObject({ args: ["queues", "default"] });
  expect(parseCommandLine(["describe", "nodes", "a"])).toMatchObject({ args: ["node", "a"] });
});

test.concurrent.for(mistakes)(
  "millpond %s: one error, status 118, nothing on standard output",
  async ([line, message, environment]) => {
    using home = new Home();
    const result = await home.millpond(line.split(" "), {
      environment: { MILLPOND_CONTROLLER: "http://127.0.0.1:1", ...environment },
    });
    expect(result.stderr).toMatch(message);
    expect(result.stderr).toMatch(/^(millpond: .*\n)*error: .*\n( {2}.*\n)? {2}\[MILLPOND_E_INVALID\]\n$/);
    expect(result).toMatchObject({ code: 118, stdout: "" });
  },
);

test("what follows the program's name is the program's", () => {
  const asked = [
    ["run", "-n", "2", "--", "prog", "-n", "3", "--", "x"],
    ["run", "-n", "2", "prog", "-n", "3", "--", "x"],
  ].map((line) => parseCommandLine(line));
  expect(asked[0]).toEqual({
    command: "run",
    options: { gpus: "2", wait: true },
    args: ["prog", "-n", "3", "--", "x"],
  });
  expect(asked[1]).toEqual(asked[0]);
});

test("every command has help that leads with examples, and options with a long name that is its key", () => {
  for (const name of commandNames) {
    const spec = commandSpecs[name];
    const help = parseCommandLine([name, "--help"]);
    const text = "text" in help ? help.text : "";
    expect(text.indexOf("Examples:"), name).toBeGreaterThan(0);
    expect(text.indexOf("Examples:"), name).toBeLessThan(text.indexOf("Options:"));
    for (const [key, option] of Object.entries(spec.options)) {
      const long = /--(?:no-)?([a-z-]+)/.exec(option.flags)?.[1];
      expect(long?.replaceAll(/-([a-z])/g, (_, letter: string) => letter.toUpperCase())).toBe(key);
      expect(option.type === "choice", option.flags).toBe(option.choices !== undefined);
    }
  }
});

test("a command that there is not is refused", () => {
  expect(() => parseCommandLine(["agen"])).toThrow(UsageError);
});

test("a variable that nothing reads is said to be set, by every command that runs", async () => {
  using home = new Home();
  const environment = { MILLPOND_MEMROY: "1Gi", MILLPOND_TOKEN: "t" };
  const { stderr } = await home.millpond(["context", "list"], { environment });
  expect(stderr).toBe("millpond: MILLPOND_MEMROY is set, and nothing reads it: check its spelling\n");
});

test("each variable that the pages name, and each that programs read, is known", () => {
  const pages = ["docs", "docs/reference"].flatMap((folder) =>
    readdirSync(join(root, folder), { withFileTypes: true })
      .filter((file) => file.isFile() && file.name.endsWith(".md"))
      .map((file) => join(file.parentPath, file.name)),
  );
  const sources = ["client", "worker", "nvml", "cupti"].flatMap((part) =>
    readdirSync(join(root, "native", part), { recursive: true, encoding: "utf8" })
      .filter((name) => name.endsWith(".cpp") && !name.endsWith("_test.cpp"))
      .map((name) => join(root, "native", part, name)),
  );
  const named = (files: readonly string[], pattern: RegExp) =>
    files.flatMap((file) => [...readFileSync(file, "utf8").matchAll(pattern)].map(([, name = ""]) => name));
  const all = new Set([
    ...named(pages, /`(MILLPOND_(?!E_)[A-Z]\w*)\b/g),
    ...named(sources, /getenv\("(MILLPOND_\w+)"\)/g),
  ]);
  expect(all.size).toBeGreaterThan(20);
  // Tests read the first two, and workers the last one, which an agent gives them.
  expect(unknownVariables(Object.fromEntries([...all].map((name) => [name, "1"]))).toSorted()).toEqual([
    "MILLPOND_CONTROL_KEY",
    "MILLPOND_OPENB",
    "MILLPOND_PICTURES",
  ]);
});

test("warnings of Node are not shown to users", async () => {
  using home = new Home();
  const environment = { NO_COLOR: "1", FORCE_COLOR: "3", MILLPOND_DEBUG: undefined };
  const { stderr } = await home.millpond(["get", "nodes"], { environment });
  expect(stderr).toMatch(/^error: no controller is configured\n.*\n.*\n$/);
});

test("an exception that no code expects is an error of the usual form, and a stack trace only if that was asked for", async () => {
  using home = new Home();
  const fault = join(home.directory, "fault.mjs");
  writeFileSync(
    fault,
    `process.on("newListener", (name) => {
      if (name === "uncaughtException") setTimeout(() => { throw new Error("boom"); }, 300);
    });`,
  );
  const environment = { NODE_OPTIONS: `--import=${fault}`, MILLPOND_CONTROLLER: "http://127.0.0.1:1" };
  const report =
    "error: boom\n  Report it with the log of the component that returned it.\n  [MILLPOND_E_INTERNAL]\n";
  // Standard input stays open, so that the command waits for it.
  const running = home.start(["apply", "-f", "-"], environment);
  expect(await running.finished).toMatchObject({ code: 125, stdout: "", stderr: report });
  const traced = home.start(["apply", "-f", "-"], { ...environment, MILLPOND_DEBUG: "1" });
  const { stderr } = await traced.finished;
  expect(stderr.startsWith(report)).toBe(true);
  expect(stderr).toMatch(/^ +at .*fault\.mjs/m);
});

test.skipIf(!existsSync("/dev/full"))("output that cannot be written is an error of one kind", () => {
  const { status, stderr } = spawnSync(
    "/bin/sh",
    ["-c", `"$0" "$1" --help > /dev/full`, process.execPath, entry],
    {
      encoding: "utf8",
    },
  );
  expect(status).toBe(125);
  expect(stderr).toMatch(
    /^error: standard output cannot be written: ENOSPC.*\n.*\n {2}\[MILLPOND_E_INVALID\]\n$/,
  );
});

test("the remedy is a line of its own, also one that begins with a command", async () => {
  using home = new Home();
  const { stderr } = await home.millpond(["context", "use", "prod"]);
  expect(stderr).toBe(
    'error: there is no context "prod"\n  `millpond login` creates one.\n  [MILLPOND_E_NOT_FOUND]\n',
  );
});
