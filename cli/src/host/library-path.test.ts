// SPDX-License-Identifier: Apache-2.0

import { expect, test } from "vitest";
import { programLibraryPath } from "./library-path.ts";

test.for([
  [undefined, "/usr/bin/node", "/client"],
  ["", "/usr/bin/node", "/client"],
  ["/a:/b", "/usr/bin/node", "/client:/a:/b"],
  ["/usr/lib:/a", "/usr/bin/node", "/client:/usr/lib:/a"],
  ["/pack/node/lib", "/pack/node/bin/node", "/client"],
  ["/pack/node/lib:/a", "/pack/node/bin/node", "/client:/a"],
  ["/a:/pack/node/lib", "/pack/node/bin/node", "/client:/a:/pack/node/lib"],
] as const)("LD_LIBRARY_PATH=%s under %s gives the program %s", ([path, node, expected]) => {
  const environment = path === undefined ? {} : { LD_LIBRARY_PATH: path };
  expect(programLibraryPath(environment, "/client", node)).toBe(expected);
});
