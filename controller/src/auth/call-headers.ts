// SPDX-License-Identifier: Apache-2.0

import { createContextKey } from "@connectrpc/connect";

/** Header of a call that a controller makes for a caller of its own: who gets it and does not lead passes it on no further. */
export const passedOnHeader = "millpond-passed-on";

/** What a caller's token came in. */
export const authorizationKey = createContextKey("", { description: "authorization" });
