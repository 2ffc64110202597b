// SPDX-License-Identifier: Apache-2.0

import { createContextKey } from "@connectrpc/connect";

/**
 * Header of a call that a follower forwards for a caller: a controller that is not the leader does not forward it
 * again.
 */
export const passedOnHeader = "millpond-passed-on";

/** What a caller's token came in. */
export const authorizationKey = createContextKey("", { description: "authorization" });
