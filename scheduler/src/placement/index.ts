// SPDX-License-Identifier: Apache-2.0

export { chooseRandomly, type LargestNode } from "./classic-scorers.ts";
export { FragmentMeasure } from "./fragmentation.ts";
export { Placer, scan } from "./placer.ts";
export { type ScoredPolicy, scoredPolicies, scorerFor } from "./policies.ts";
export { Random } from "./random.ts";
export {
  anyModel,
  fitsCapacity,
  gpusFor,
  maxModels,
  type FreeCapacity,
  freeCapacityOf,
  type Shape,
  take,
  wholeMilli,
} from "./free-capacity.ts";
export type { Scorer } from "./scorer.ts";
export { differenceOf, type Workload, workloadOf } from "./workload.ts";
