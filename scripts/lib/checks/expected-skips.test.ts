// SPDX-License-Identifier: Apache-2.0
import { expect, test } from "vitest";
import { needsOf, summarizeSkips } from "./expected-skips.ts";
import { inRoot } from "../paths.ts";

const kubernetes = { file: inRoot("kubernetes", "src", "setup.test.ts"), name: "applies" };
const postgres = { file: inRoot("controller", "src", "store", "store.test.ts"), name: "keeps records" };

test("a test that needs what a complete machine need not have may be skipped, any other may not", () => {
  expect(needsOf(kubernetes)).toBe("a Kubernetes control plane, or containerd");
  expect(needsOf(postgres)).toBeUndefined();
});

test("skipped tests are summarised by what they need", () => {
  expect(summarizeSkips([kubernetes, kubernetes, postgres])).toEqual([
    "2 skipped, which need a Kubernetes control plane, or containerd",
    "1 skipped, which need something that .ci/run installs",
  ]);
});
