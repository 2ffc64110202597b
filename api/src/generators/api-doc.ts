// SPDX-License-Identifier: Apache-2.0

// Generates docs/reference/api.md and docs/reference/openapi.json from the protobuf files: `npm run generate -w api`.

import { readFileSync, writeFileSync } from "node:fs";
import { type ApiField, type ApiMessage, type ApiModel, type ApiType, readApi } from "./api-model.ts";

export const apiDocUrl: URL = new URL("../../../docs/reference/api.md", import.meta.url);
export const openApiUrl: URL = new URL("../../../docs/reference/openapi.json", import.meta.url);

/** Services that only parts of Millpond use among themselves. */
const internal: ReadonlySet<string> = new Set(["AgentService", "NodeService"]);

export const publicServices = (api: ApiModel) => api.services.filter(({ name }) => !internal.has(name));

/** Messages and enums that the public services use, in the order of their first use. */
export function usedTypes(api: ApiModel): readonly string[] {
  const used = new Set<string>();
  const use = (name: string): void => {
    if (used.has(name)) return;
    used.add(name);
    for (const { type } of api.messages.get(name)?.fields ?? []) useType(type);
  };
  const useType = (type: ApiType): void => {
    if (type.kind === "map") useType(type.value);
    else if (type.kind !== "scalar") use(type.name);
  };
  for (const { methods } of publicServices(api)) {
    for (const { input, output } of methods) {
      use(input);
      use(output);
    }
  }
  return [...used];
}

const anchor = (name: string): string => name.toLowerCase().replaceAll(".", "");
const cell = (text: string): string => text.replaceAll("|", "\\|");

function typeText(type: ApiType): string {
  switch (type.kind) {
    case "scalar":
      return type.json === "int64"
        ? "integer as string"
        : type.json === "bytes"
          ? "base64"
          : type.json === "string"
            ? "string"
            : type.json;
    case "map":
      return `map of string to ${typeText(type.value)}`;
    default:
      return `[${type.name}](#${anchor(type.name)})`;
  }
}

const fieldType = ({ type, isList, oneOf }: ApiField): string =>
  `${isList ? "list of " : ""}${typeText(type)}${oneOf === undefined ? "" : `, one of \`${oneOf}\``}`;

function fieldTable({ fields }: ApiMessage): string {
  if (fields.length === 0) return "No fields.\n";
  const rows = fields.map((field) => `| \`${field.name}\` | ${fieldType(field)} | ${cell(field.doc)} |`);
  return `| field | type | |\n|---|---|---|\n${rows.join("\n")}\n`;
}

/** The text of the page. */
export function renderApiDoc(api: ApiModel): string {
  const services = publicServices(api);
  const isCallType = new Set(
    services.flatMap(({ methods }) => methods.flatMap((each) => [each.input, each.output])),
  );
  const methods = services.map(({ name, fullName, doc, methods: all }) => {
    const parts = all.map(({ name: method, doc: text, input, output }) => {
      const [asks, answers] = [api.messages.get(input), api.messages.get(output)];
      return `#### ${method}

${text}

\`POST /${fullName}/${method}\` takes

${asks === undefined ? "" : fieldTable(asks)}
and answers

${answers === undefined ? "" : fieldTable(answers)}`;
    });
    return `### ${name}\n\n${doc}\n\n${parts.join("\n")}`;
  });
  const types = usedTypes(api)
    .filter((name) => !isCallType.has(name))
    .map((name) => {
      const message = api.messages.get(name);
      if (message !== undefined) return `### ${name}\n\n${message.doc}\n\n${fieldTable(message)}`;
      const each = api.enums.get(name);
      const rows = each?.values.map((value) => `| \`${value.name}\` | ${cell(value.doc)} |`) ?? [];
      return `### ${name}\n\n${each?.doc ?? ""}\n\n| value | |\n|---|---|\n${rows.join("\n")}\n`;
    });
  return `<!-- Generated from api/proto by \`npm run generate -w api\`. Do not edit. -->

# The API

The command line, the console and the [packages for Python and TypeScript](../sdk.md) use this API. Every
method is an HTTP request with JSON, by the Connect protocol. gRPC and gRPC-Web clients generated from
[the protobuf files](../../api/proto/millpond/v1) work as well; [openapi.json](openapi.json) describes the API for OpenAPI tools.

\`\`\`sh
curl -sS -H "Authorization: Bearer $MILLPOND_TOKEN" -H "Content-Type: application/json" \\
  --data '{"claim": {"gpus": 1, "memoryBytes": "1073741824"}}' \\
  "$MILLPOND_CONTROLLER/millpond.v1.ClaimService/CreateClaim"
\`\`\`

- Omitted fields of a request are 0, empty or false; unknown fields are refused. Responses contain all fields except unset
  messages.
- 64-bit integers are strings in JSON responses; requests may use numbers. Times are Unix seconds, sizes bytes.
- The token comes from \`millpond token create\`; its role determines the [permitted calls](../access.md).
- Errors have an HTTP status, and a JSON body with \`code\`, \`message\` and \`details\` ([errors](errors.md)).
- A header \`Millpond-Reason\` (percent-encoded) is written into the [audit](../access.md) with a change.

Within \`v1\`, fields and methods may be added; none changes its meaning or is removed.

## Services

${methods.join("\n")}
## Types

${types.join("\n")}`;
}

type Schema = Readonly<Record<string, unknown>>;

function schemaOf(type: ApiType): Schema {
  switch (type.kind) {
    case "scalar":
      switch (type.json) {
        case "int64":
          return { type: ["string", "integer"], pattern: "^-?[0-9]+$" };
        case "bytes":
          return { type: "string", contentEncoding: "base64" };
        default:
          return { type: type.json };
      }
    case "map":
      return { type: "object", additionalProperties: schemaOf(type.value) };
    default:
      return { $ref: `#/components/schemas/${type.name}` };
  }
}

function messageSchema({ doc, fields }: ApiMessage): Schema {
  const properties = fields.map(({ name, doc: description, type, isList }) => {
    const schema = isList ? { type: "array", items: schemaOf(type) } : schemaOf(type);
    return [name, description === "" ? schema : { ...schema, description }] as const;
  });
  return {
    type: "object",
    ...(doc === "" ? {} : { description: doc }),
    properties: Object.fromEntries(properties),
  };
}

/** The OpenAPI document. */
export function renderOpenApi(api: ApiModel): string {
  const { version } = JSON.parse(readFileSync(new URL("../../package.json", import.meta.url), "utf8")) as {
    version: string;
  };
  const json = (name: string) => ({
    content: { "application/json": { schema: { $ref: `#/components/schemas/${name}` } } },
  });
  const paths = publicServices(api).flatMap((service) =>
    service.methods.map(({ name, doc, input, output }) => [
      `/${service.fullName}/${name}`,
      {
        post: {
          operationId: `${service.name}_${name}`,
          tags: [service.name],
          description: doc,
          requestBody: { required: true, ...json(input) },
          responses: {
            "200": { description: "The answer", ...json(output) },
            default: { description: "An error", ...json("Error") },
          },
        },
      },
    ]),
  );
  const schemas = usedTypes(api).map((name): [string, Schema] => {
    const message = api.messages.get(name);
    if (message !== undefined) return [name, messageSchema(message)];
    const each = api.enums.get(name);
    const values = each?.values ?? [];
    const description = [each?.doc ?? "", ...values.map((value) => `${value.name}: ${value.doc}`)].join("\n");
    return [name, { type: "string", enum: values.map((value) => value.name), description }];
  });
  const error: Schema = {
    type: "object",
    description: "docs/reference/errors.md",
    required: ["code"],
    properties: {
      code: { type: "string" },
      message: { type: "string" },
      details: { type: "array", items: { type: "object" } },
    },
  };
  const document = {
    openapi: "3.1.0",
    info: {
      title: "Millpond",
      version,
      description: "The control plane of a pool of GPUs. Generated from api/proto.",
      license: { name: "Apache-2.0", identifier: "Apache-2.0" },
    },
    servers: [{ url: "http://127.0.0.1:7170" }],
    security: [{ token: [] }],
    tags: publicServices(api).map(({ name, doc: description }) => ({ name, description })),
    paths: Object.fromEntries(paths),
    components: {
      securitySchemes: { token: { type: "http", scheme: "bearer" } },
      schemas: Object.fromEntries([...schemas, ["Error", error]]),
    },
  };
  return `${JSON.stringify(document, undefined, 1)}\n`;
}

if (import.meta.main) {
  const api = readApi();
  writeFileSync(apiDocUrl, renderApiDoc(api));
  writeFileSync(openApiUrl, renderOpenApi(api));
}
