// SPDX-License-Identifier: Apache-2.0

import { render } from "preact";
import { App } from "./app.tsx";
import { startLanguage } from "./texts/texts.ts";

const root = document.getElementById("console");
if (root !== null) {
  await startLanguage();
  render(<App />, root);
}
