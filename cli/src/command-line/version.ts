// SPDX-License-Identifier: Apache-2.0

import manifest from "../../package.json" with { type: "json" };

/** Version of this program; all parts of Millpond have the same. */
export const programVersion: string = manifest.version;
