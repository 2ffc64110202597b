// SPDX-License-Identifier: Apache-2.0
import { join } from "node:path";
import { nativeDir } from "../../scripts/lib/paths.ts";

/** Arguments of a `millpond agent` with a software GPU, which ends its workers when it is stopped. */
export function agentArguments(options: {
  readonly name: string;
  /** Separated by commas. */
  readonly controller: string;
  readonly tokenFile: string;
  readonly run: string;
}): readonly string[] {
  const { name, controller, tokenFile, run } = options;
  const driver = join(nativeDir("release"), "softgpu", "libcuda.so.1");
  const worker = join(nativeDir("release"), "worker", "millpond-worker");
  const of = ["--name", name, "--controller", controller, "--token-file", tokenFile];
  return ["agent", ...of, "--driver", driver, "--worker", worker, "--run", run, "--drain", "all"];
}
