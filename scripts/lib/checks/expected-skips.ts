// SPDX-License-Identifier: Apache-2.0
// Which tests a complete machine may skip. `.ci/run` installs everything else that tests need, so any other skipped test
// means that a dependency was not found, and counts as a failure there.
import { relative } from "node:path";
import { inRoot } from "../paths.ts";
import type { Skipped } from "./test-counts.ts";

interface ExpectedSkip {
  /** The beginning of the file's path relative to the root. */
  readonly under: string;
  /** A dependency of the tests that a complete machine may lack. */
  readonly needs: string;
}

const expectedSkips: readonly ExpectedSkip[] = [
  { under: "kubernetes/", needs: "a Kubernetes control plane, or containerd" },
  { under: "simulator/src/run.test.ts", needs: "the published traces (MILLPOND_OPENB)" },
  { under: "test/nvml/", needs: "Debian's mirror with nvidia-smi, or packages of Python" },
  { under: "test/containment/containment.test.ts", needs: "root, and a kernel with Landlock" },
  { under: "test/slurm.test.ts", needs: "root, and Slurm with Munge" },
  { under: "test/network.test.ts", needs: "root and network namespaces" },
  { under: "controller/src/store/full-disk.test.ts", needs: "root and file systems of its own" },
  { under: "cuda/tools/capture.test.ts", needs: "the headers of a CUDA toolkit" },
  { under: "codegen/src/emit-types.test.ts", needs: "the headers of a CUDA toolkit" },
  { under: "test/examples.test.ts", needs: "nvcc" },
];

/** The dependency that a skipped test lacks and a complete machine may lack; undefined when it should have run. */
export function needsOf(skipped: Skipped): string | undefined {
  const path = relative(inRoot(), skipped.file);
  return expectedSkips.find(({ under }) => path.startsWith(under))?.needs;
}

/** A summary of skipped tests by missing dependency, a few lines. */
export function summarizeSkips(skipped: readonly Skipped[]): string[] {
  const counts = new Map<string, number>();
  for (const each of skipped) {
    const needs = needsOf(each) ?? "something that .ci/run installs";
    counts.set(needs, (counts.get(needs) ?? 0) + 1);
  }
  return [...counts].map(([needs, count]) => `${count} skipped, which need ${needs}`);
}
