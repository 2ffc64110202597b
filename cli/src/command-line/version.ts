// SPDX-License-Identifier: Apache-2.0

import manifest from "../../package.json" with { type: "json" };

/** Version of this program, which is that of all parts of Millpond. */
export const programVersion: string = manifest.version;
