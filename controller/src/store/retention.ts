// SPDX-License-Identifier: Apache-2.0

// How much stores remember of what only grows.

export const defaultMaxEvents = 10_000;

/** Also said in access.proto. */
export const defaultMaxAuditRecords = 100_000;

export const maxUsageRecords = 1_000_000;

/** Of changes for controllers that follow; one that is further behind reads everything again. In revisions. */
export const maxRememberedChanges = 20_000;
