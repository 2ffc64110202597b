// SPDX-License-Identifier: Apache-2.0

import { createContextKey } from "@connectrpc/connect";

/**
 * Header of a call that a follower forwards for a caller: a controller that is not the leader does not forward it
 * again.
 */
export const passedOnHeader = "millpond-passed-on";

/** The header or cookie that carried a caller's token. */
export const authorizationKey = createContextKey("", { description: "authorization" });
