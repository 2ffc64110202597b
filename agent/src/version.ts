// SPDX-License-Identifier: Apache-2.0

import manifest from "../package.json" with { type: "json" };

/** Version of the agent's software. */
export const agentVersion: string = manifest.version;
