// SPDX-License-Identifier: Apache-2.0

import { spawnSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { commandNames, commandSpecs } from "../command-table/command-table.ts";
import { renderCompletion } from "./completion.ts";

/** Returns the completions of bash after these words. */
function complete(...given: (string | { readonly before: string })[]): string[] {
  const words = given.filter((each) => typeof each === "string");
  const extra = given.find((each) => typeof each === "object");
  const script = `${renderCompletion("bash")}
${extra?.before ?? ""}
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _millpond; printf '%s\\n' "\${COMPREPLY[@]}"`;
  const { stdout, stderr } = spawnSync("bash", ["-c", script, "bash", "millpond", ...words], {
    encoding: "utf8",
  });
  expect(stderr).toBe("");
  return stdout.split("\n").filter((line) => line !== "");
}

test("bash completes commands, options, and the values of both", () => {
  expect(complete("des")).toEqual(["describe"]);
  expect(complete("run", "--mem")).toEqual(["--memory"]);
  expect(complete("run", "--transport", "")).toEqual(["auto", "shm", "tcp"]);
  expect(complete("get", "nodes", "-o", "j")).toEqual(["json", "jsonpath="]);
  expect(complete("get", "s")).toEqual(["sessions"]);
  expect(complete("run", "-n", "")).toEqual([]);
  expect(complete("run", "bas")).toContain("bash");
  // We suggest nothing, so that bash suggests files.
  expect(complete("trace", "")).toEqual([]);
  expect(complete("trace", "calls", "--out")).toEqual(["--output"]);
});

test("bash completes names by asking for them, and leaves words behind -- to the program", () => {
  // In place of a pool: each list has one name.
  const lists = `millpond() { [[ $* == *" -o name" ]] && echo "\${2%s}/my-\${2:-$1}"; }`;
  expect(complete("why", "m", { before: lists })).toEqual(["my-claims"]);
  expect(complete("describe", "node", "m", { before: lists })).toEqual(["my-nodes"]);
  expect(complete("get", "claims", "my", { before: lists })).toEqual(["my-claims"]);
  expect(complete("token", "revoke", "m", { before: lists })).toEqual(["my-tokens"]);
  expect(complete("token", "r", { before: lists })).toEqual(["revoke"]);
  expect(complete("drain", "m", { before: lists })).toEqual(["my-nodes"]);
  expect(complete("run", "--", "ls", "--g")).toEqual([]);
  expect(complete("run", "--", "bas")).toContain("bash");
  expect(complete("run", "-n", "2", "--mem")).toEqual(["--memory"]);
  expect(complete("run", "-q", "m", { before: lists })).toEqual(["my-queues"]);
  expect(complete("run", "--context", "m", { before: lists })).toEqual(["my-list"]);
});

const lacks = (shell: string): boolean => spawnSync(shell, ["--version"]).status !== 0;

/** A folder with the completion script of a shell, and a command that has one name in each list. */
function completionFolder(shell: "zsh" | "fish"): string {
  const folder = mkdtempSync(join(tmpdir(), "millpond-completion-"));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  writeFileSync(join(folder, "script"), renderCompletion(shell));
  writeFileSync(join(folder, "millpond"), '#!/bin/sh\necho "x/my-$2"\n', { mode: 0o755 });
  return folder;
}

test.skipIf(lacks("fish"))(
  "fish completes names, each argument once, and words behind -- for the program",
  () => {
    const folder = completionFolder("fish");
    const offers = (line: string): string[] => {
      const { stdout, stderr } = spawnSync(
        "fish",
        ["--no-config", "-c", `source script; complete -C '${line}'`],
        {
          cwd: folder,
          env: { PATH: `${folder}:${process.env["PATH"]}`, HOME: folder },
          encoding: "utf8",
        },
      );
      expect(stderr).toBe("");
      return stdout.split("\n").flatMap((each) => each.split("\t")[0] || []);
    };
    expect(offers("millpond des")).toEqual(["describe"]);
    expect(offers("millpond describe ")).toEqual(["claim", "device", "node", "queue", "session", "tenant"]);
    expect(offers("millpond describe node ")).toEqual(["my-nodes"]);
    expect(offers("millpond describe queue ")).toEqual(["my-queues"]);
    expect(offers("millpond get claims ")).toEqual(["my-claims"]);
    expect(offers("millpond run -q ")).toEqual(["my-queues"]);
    expect(offers("millpond run --mem")).toEqual(["--memory"]);
    expect(offers("millpond run bas")).toContain("bash");
    expect(offers("millpond run -- ls --g")).not.toContain("--gpus");
  },
);

test.skipIf(lacks("zsh"))("zsh offers names by asking for them", () => {
  const folder = completionFolder("zsh");
  const { stdout, stderr } = spawnSync(
    "zsh",
    [
      "-f",
      "-c",
      `compdef() { : }; compadd() { shift; print -l -- "$@" }; . ./script
words=(describe node ''); _millpond_names_of_kind; _millpond_names get queues`,
    ],
    { cwd: folder, env: { PATH: `${folder}:${process.env["PATH"]}` }, encoding: "utf8" },
  );
  expect({ stdout, stderr }).toEqual({ stdout: "my-nodes\nmy-queues\n", stderr: "" });
  const script = renderCompletion("zsh");
  expect(script).toContain(":value: _millpond_names get queues'");
  expect(script).toContain("'2:name: _millpond_names_of_kind'");
});

test.for(["bash", "zsh", "fish"] as const)("%s gets every command and long option", (shell) => {
  const script = renderCompletion(shell);
  for (const name of commandNames) {
    const spec = commandSpecs[name];
    if (spec.group === undefined) continue;
    expect(script).toContain(name);
    for (const option of Object.values(spec.options)) {
      const long = /--([a-z-]+)/.exec(option.flags)?.[1] ?? "";
      expect(script).toContain(shell === "fish" ? `-l ${long}` : `--${long}`);
    }
  }
});
