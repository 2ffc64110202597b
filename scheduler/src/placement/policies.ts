// SPDX-License-Identifier: Apache-2.0

import {
  BestFitScorer,
  BinpackScorer,
  FgdScorer,
  type LargestNode,
  PackingScorer,
  SpreadScorer,
} from "./classic-scorers.ts";
import { LeastFragmentationScorer } from "./least-fragmentation.ts";
import type { Scorer } from "./scorer.ts";
import type { Workload } from "./workload.ts";

/** The policies that rank rooms by a score. */
export const scoredPolicies = [
  "least-fragmentation",
  "binpack",
  "spread",
  "best-fit",
  "packing",
  "fgd",
] as const;
export type ScoredPolicy = (typeof scoredPolicies)[number];

export function scorerFor(policy: ScoredPolicy, workload: Workload, largest: LargestNode): Scorer {
  switch (policy) {
    case "least-fragmentation":
      return new LeastFragmentationScorer(workload, largest);
    case "binpack":
      return new BinpackScorer(largest);
    case "spread":
      return new SpreadScorer();
    case "best-fit":
      return new BestFitScorer(largest);
    case "packing":
      return new PackingScorer();
    case "fgd":
      return new FgdScorer(workload);
  }
}
