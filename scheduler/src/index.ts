// SPDX-License-Identifier: Apache-2.0

// Decisions about the pool: pure functions over a snapshot. No I/O, no clock, no randomness.

export type { Constraints, PlacementPolicy } from "./constraints.ts";
export { type Labels } from "./labels.ts";
export { explainImpossible, explainWaiting } from "./explain.ts";
export { place } from "./place.ts";
export {
  type Blocked,
  defaultPlanSettings,
  type Holdings,
  type Leftover,
  type Obstacle,
  type PlanSettings,
  type Preemption,
  type QueueDecision,
  type QueueSnapshot,
  type RunningClaim,
  type RunningTotals,
  type WaitingClaim,
} from "./queues/claim.ts";
export { type Forecast, forecast, type NextRelease, nextRelease } from "./queues/forecast.ts";
export { refuseGrowth } from "./queues/growth.ts";
export { makeQueueTree, placeAnew, planQueues } from "./queues/plan.ts";
export { type QueueTree, userKey } from "./queues/tree.ts";
export { amountOn } from "./queues/unit.ts";
export {
  add,
  type Amount,
  amountOf,
  excessOf,
  nothing,
  type Part,
  type Quota,
  subtract,
} from "./queues/quota.ts";
export { type Borrowing, limitOfUser, type QueueSpec, type TenantSpec } from "./queues/queue.ts";
export { type ClaimRequest, shareOf } from "./request.ts";
export {
  type DeviceState,
  type Free,
  freeOf,
  type Grant,
  type NodeState,
  type Snapshot,
} from "./snapshot.ts";
export { applyStatement, type Placement, rollbackStatement, type Statement } from "./statement.ts";
export { learnWorkload, usualWorkload } from "./placement/claim-workload.ts";
export {
  differenceOf,
  anyModel,
  chooseRandomly,
  fitsCapacity,
  FragmentMeasure,
  gpusFor,
  type LargestNode,
  maxModels,
  Placer,
  Random,
  type FreeCapacity,
  freeCapacityOf,
  scan,
  type ScoredPolicy,
  type Scorer,
  type Shape,
  scoredPolicies,
  scorerFor,
  take,
  type Workload,
  wholeMilli,
  workloadOf,
} from "./placement/index.ts";
export type { Topology } from "./topology.ts";
export {
  type ConsolidationGoal,
  type ConsolidationStep,
  planConsolidation,
} from "./consolidation.ts";
