// SPDX-License-Identifier: Apache-2.0

import { render } from "preact";
import { App } from "./app.tsx";

const root = document.getElementById("console");
if (root !== null) {
  render(<App />, root);
}
