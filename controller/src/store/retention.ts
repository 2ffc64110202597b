// SPDX-License-Identifier: Apache-2.0

// How much stores keep of data that only grows.

export const defaultMaxEvents = 10_000;

/** Also stated in access.proto. */
export const defaultMaxAuditRecords = 100_000;

export const maxUsageRecords = 1_000_000;

/** Changes kept for followers, in revisions; a follower that is further behind reloads the full state. */
export const maxRememberedChanges = 20_000;
