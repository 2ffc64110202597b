// SPDX-License-Identifier: Apache-2.0

import type { ObservedState } from "../domain/observed-state.ts";
import type { SchedulerView } from "../scheduling/scheduler-view.ts";

/** Inputs of reconciling in addition to the transaction. */
export interface ReconcileContext {
  readonly observed: ObservedState;
  readonly scheduler: SchedulerView;
}
