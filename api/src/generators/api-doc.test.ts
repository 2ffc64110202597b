// SPDX-License-Identifier: Apache-2.0

import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { apiDocUrl, openApiUrl, renderApiDoc, renderOpenApi } from "./api-doc.ts";
import { readApi } from "./api-model.ts";
import { renderSdkTypes, sdkTypesUrl } from "./sdk-types.ts";

const api = readApi();

test("what is generated from the protobuf files is up to date: npm run generate -w api", () => {
  expect(readFileSync(apiDocUrl, "utf8")).toBe(renderApiDoc(api));
  expect(readFileSync(openApiUrl, "utf8")).toBe(renderOpenApi(api));
  expect(readFileSync(sdkTypesUrl, "utf8")).toBe(renderSdkTypes(api));
});

test("every reference of the OpenAPI document leads to a schema, and every schema is used", () => {
  const text = renderOpenApi(api);
  const { paths, components } = JSON.parse(text) as {
    readonly paths: Readonly<Record<string, unknown>>;
    readonly components: { readonly schemas: Readonly<Record<string, unknown>> };
  };
  const references = new Set(
    [...text.matchAll(/"\$ref": "#\/components\/schemas\/([\w.]+)"/g)].map(([, name]) => name),
  );
  expect(new Set(Object.keys(components.schemas))).toEqual(references);
  expect(Object.keys(paths)).toContain("/millpond.v1.ClaimService/CreateClaim");
  expect(text).not.toContain("AgentService");
});

test("links of the page lead to its headings", () => {
  const page = renderApiDoc(api);
  const anchors = new Set(
    [...page.matchAll(/^#+ (.+)$/gm)].map(([, title = ""]) => title.toLowerCase().replaceAll(".", "")),
  );
  const links = [...page.matchAll(/\]\(#([^)]+)\)/g)].map(([, target]) => target);
  expect(links.filter((target) => !anchors.has(target ?? ""))).toEqual([]);
});
