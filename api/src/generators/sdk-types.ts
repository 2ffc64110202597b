// SPDX-License-Identifier: Apache-2.0

// Generates the types of the TypeScript package from the protobuf files: `npm run generate -w api`.

import { writeFileSync } from "node:fs";
import { publicServices, usedTypes } from "./api-doc.ts";
import { type ApiField, type ApiModel, type ApiType, readApi } from "./api-model.ts";

export const sdkTypesUrl: URL = new URL("../../../sdk/typescript/src/gen/api.ts", import.meta.url);

const typeName = (name: string): string => name.replaceAll(".", "");

function typeText(type: ApiType): string {
  switch (type.kind) {
    case "scalar":
      // 64-bit numbers are strings in answers, and may be numbers in requests.
      return type.json === "int64" ? "Int64" : type.json === "bytes" ? "string" : type.json;
    case "map":
      return `Readonly<Record<string, ${typeText(type.value)}>>`;
    default:
      return typeName(type.name);
  }
}

const docOf = (doc: string, indent: string): string =>
  doc === "" ? "" : `${indent}/** ${doc.replaceAll("*/", "*\\/")} */\n`;

const memberOf = ({ name, doc, type, isList }: ApiField): string =>
  `${docOf(doc, "  ")}  readonly ${name}?: ${isList ? `readonly ${typeText(type)}[]` : typeText(type)};\n`;

/** The text of the file. */
export function renderSdkTypes(api: ApiModel): string {
  const types = usedTypes(api).map((name) => {
    const message = api.messages.get(name);
    if (message !== undefined) {
      const members = message.fields.map(memberOf).join("");
      const body = members === "" ? "Readonly<Record<string, never>>;" : `{\n${members}};`;
      return `${docOf(message.doc, "")}export type ${typeName(name)} = ${body}\n`;
    }
    const each = api.enums.get(name);
    const values = each?.values ?? [];
    const doc = [
      each?.doc ?? "",
      ...values.map((value) => (value.doc === "" ? "" : `\`${value.name}\`: ${value.doc}`)),
    ];
    const text = doc.filter((line) => line !== "").join(" ");
    const union = values.map((value) => `  | "${value.name}"\n`).join("");
    return `${docOf(text, "")}export type ${typeName(name)} =\n${union.trimEnd()};\n`;
  });
  const services = publicServices(api).map(({ name, doc, methods }) => {
    const members = methods.map(
      (method) =>
        `${docOf(method.doc, "    ")}    readonly ${method.name}: { readonly request: ${typeName(method.input)}; readonly answer: ${typeName(method.output)} };\n`,
    );
    return `${docOf(doc, "  ")}  readonly ${name}: {\n${members.join("")}  };\n`;
  });
  return `// SPDX-License-Identifier: Apache-2.0
// Generated from api/proto by \`npm run generate -w api\`: do not edit.

/** A 64-bit number: a string in answers. */
export type Int64 = string | number;

${types.join("\n")}
/** The methods of each service. */
export interface Services {
${services.join("")}}
`;
}

if (import.meta.main) writeFileSync(sdkTypesUrl, renderSdkTypes(readApi()));
