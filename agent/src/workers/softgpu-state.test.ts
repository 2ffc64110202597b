// SPDX-License-Identifier: Apache-2.0
// Only root can make directories of other users.
import { chmodSync, existsSync, lstatSync, mkdirSync, mkdtempSync, rmSync, symlinkSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { makeSoftgpuState, removeSoftgpuState } from "./softgpu-state.ts";

const user = 70_001;
let folder: string;
let own: NodeJS.ProcessEnv;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "millpond-state-"));
  chmodSync(folder, 0o755);
  own = { MILLPOND_SOFTGPU_STATE: join(folder, "softgpu") };
});
afterEach(() => rmSync(folder, { recursive: true }));

describe.runIf(process.getuid?.() === 0)("the state of software GPUs for a user of workers", () => {
  test("is the user's alone, in a folder that only the agent can write to", () => {
    makeSoftgpuState(own, user);
    makeSoftgpuState(own, user);
    const made = lstatSync(join(folder, `softgpu-${user}`));
    expect([made.uid, made.gid, made.mode & 0o777]).toEqual([user, user, 0o700]);
    removeSoftgpuState(own, user);
    expect(existsSync(join(folder, `softgpu-${user}`))).toBe(false);
  });

  test("is refused with a remedy where the user cannot enter its folder", () => {
    chmodSync(folder, 0o700);
    expect(() => makeSoftgpuState(own, user)).toThrow(
      /they cannot enter \S+, in which the state of software GPUs is.*MILLPOND_SOFTGPU_STATE.*--worker-user none/,
    );
  });

  test("is refused where another user or a link is in its place, and what the link names is left alone", () => {
    const path = join(folder, `softgpu-${user}`);
    mkdirSync(join(folder, "secret"), { mode: 0o700 });
    symlinkSync(join(folder, "secret"), path);
    expect(() => makeSoftgpuState(own, user)).toThrow(/is not a directory of user 70001/);
    expect(lstatSync(join(folder, "secret")).uid).toBe(0);
    removeSoftgpuState(own, user);
    expect(existsSync(join(folder, "secret"))).toBe(true);
  });

  test("is the driver's own where workers have the agent's user", () => {
    makeSoftgpuState(own, undefined);
    expect(existsSync(join(folder, "softgpu"))).toBe(false);
  });
});
