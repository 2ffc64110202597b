// SPDX-License-Identifier: Apache-2.0

// The API as described by its protobuf files, with their comments: the source of the reference page and the
// OpenAPI document.

import { execFileSync } from "node:child_process";
import { fileURLToPath } from "node:url";
import { fromBinary } from "@bufbuild/protobuf";
import {
  type DescriptorProto,
  type EnumDescriptorProto,
  FieldDescriptorProto_Label,
  type FieldDescriptorProto,
  FieldDescriptorProto_Type,
  type FileDescriptorProto,
  FileDescriptorSetSchema,
} from "@bufbuild/protobuf/wkt";

export interface ApiField {
  /** The name in JSON. */
  readonly name: string;
  readonly doc: string;
  /** A message or enum by its name without the package, otherwise its type in JSON. */
  readonly type: ApiType;
  readonly isList: boolean;
  /** Name of the group of fields of which only one is set. */
  readonly oneOf?: string;
}

export type ApiType =
  | { readonly kind: "scalar"; readonly json: "string" | "number" | "boolean" | "bytes" | "int64" }
  | { readonly kind: "message" | "enum"; readonly name: string }
  | { readonly kind: "map"; readonly value: ApiType };

export interface ApiMessage {
  readonly name: string;
  readonly doc: string;
  readonly fields: readonly ApiField[];
}

export interface ApiEnum {
  readonly name: string;
  readonly doc: string;
  readonly values: readonly { readonly name: string; readonly doc: string }[];
}

export interface ApiMethod {
  readonly name: string;
  readonly doc: string;
  readonly input: string;
  readonly output: string;
}

export interface ApiService {
  /** With its package, as in the path of a call. */
  readonly fullName: string;
  readonly name: string;
  readonly doc: string;
  readonly methods: readonly ApiMethod[];
}

export interface ApiModel {
  readonly services: readonly ApiService[];
  readonly messages: ReadonlyMap<string, ApiMessage>;
  readonly enums: ReadonlyMap<string, ApiEnum>;
}

// Numbers of fields in descriptor.proto, of which the paths of comments consist.
const messagesOfFile = 4;
const enumsOfFile = 5;
const servicesOfFile = 6;
const partsOf = 2;
const nestedOf = 3;
const enumsOf = 4;

/** Reads the API's protobuf files. */
export function readApi(): ApiModel {
  const directory = fileURLToPath(new URL("../..", import.meta.url));
  const buf = fileURLToPath(new URL("../../../node_modules/.bin/buf", import.meta.url));
  const bytes = execFileSync(buf, ["build", "-o", "-#format=binpb"], { cwd: directory, maxBuffer: 1 << 26 });
  const reader = new ApiReader();
  for (const file of fromBinary(FileDescriptorSetSchema, bytes).file) reader.addFile(file);
  return reader;
}

class ApiReader implements ApiModel {
  readonly services: ApiService[] = [];
  readonly messages = new Map<string, ApiMessage>();
  readonly enums = new Map<string, ApiEnum>();
  #comments = new Map<string, string>();

  addFile(file: FileDescriptorProto): void {
    const locations = file.sourceCodeInfo?.location ?? [];
    this.#comments = new Map(
      locations.map(({ path, leadingComments }) => [path.join("."), textOf(leadingComments)]),
    );
    for (const [index, message] of file.messageType.entries()) {
      this.#addMessage(message, [messagesOfFile, index], "");
    }
    for (const [index, each] of file.enumType.entries()) this.#addEnum(each, [enumsOfFile, index], "");
    for (const [index, service] of file.service.entries()) {
      const path = [servicesOfFile, index];
      this.services.push({
        fullName: `${file.package}.${service.name}`,
        name: service.name,
        doc: this.#doc(path),
        methods: service.method.map((method, at) => ({
          name: method.name,
          doc: this.#doc([...path, partsOf, at]),
          input: shortName(method.inputType),
          output: shortName(method.outputType),
        })),
      });
    }
  }

  #doc(path: readonly number[]): string {
    return this.#comments.get(path.join(".")) ?? "";
  }

  #addMessage(message: DescriptorProto, path: readonly number[], outer: string): void {
    const name = outer + message.name;
    const entries = new Map(message.nestedType.map((each) => [`${name}.${each.name}`, each]));
    this.messages.set(name, {
      name,
      doc: this.#doc(path),
      fields: message.field.map((field, index) =>
        fieldOf(field, message, { doc: this.#doc([...path, partsOf, index]), entries }),
      ),
    });
    for (const [index, nested] of message.nestedType.entries()) {
      if (nested.options?.mapEntry !== true) {
        this.#addMessage(nested, [...path, nestedOf, index], `${name}.`);
      }
    }
    for (const [index, each] of message.enumType.entries()) {
      this.#addEnum(each, [...path, enumsOf, index], `${name}.`);
    }
  }

  #addEnum(each: EnumDescriptorProto, path: readonly number[], outer: string): void {
    const name = outer + each.name;
    const values = each.value.map((value, index) => ({
      name: value.name,
      doc: this.#doc([...path, partsOf, index]),
    }));
    this.enums.set(name, { name, doc: this.#doc(path), values });
  }
}

function fieldOf(
  field: FieldDescriptorProto,
  message: DescriptorProto,
  { doc, entries }: { readonly doc: string; readonly entries: ReadonlyMap<string, DescriptorProto> },
): ApiField {
  const isRepeated = field.label === FieldDescriptorProto_Label.REPEATED;
  const entry = isRepeated ? entries.get(shortName(field.typeName)) : undefined;
  const value = entry?.options?.mapEntry === true ? entry.field[1] : undefined;
  const group =
    field.oneofIndex !== undefined && !field.proto3Optional && isInGroup(message, field)
      ? message.oneofDecl[field.oneofIndex]?.name
      : undefined;
  return {
    name: field.jsonName,
    doc,
    type: value === undefined ? typeOf(field) : { kind: "map", value: typeOf(value) },
    isList: isRepeated && value === undefined,
    ...(group === undefined ? {} : { oneOf: group }),
  };
}

/** `oneofIndex` is also 0 for a field that is in no oneof. */
function isInGroup(message: DescriptorProto, field: FieldDescriptorProto): boolean {
  return message.oneofDecl.length > 0 && Object.hasOwn(field, "oneofIndex");
}

function typeOf({ type, typeName }: FieldDescriptorProto): ApiType {
  switch (type) {
    case FieldDescriptorProto_Type.MESSAGE:
      return { kind: "message", name: shortName(typeName) };
    case FieldDescriptorProto_Type.ENUM:
      return { kind: "enum", name: shortName(typeName) };
    case FieldDescriptorProto_Type.STRING:
      return { kind: "scalar", json: "string" };
    case FieldDescriptorProto_Type.BOOL:
      return { kind: "scalar", json: "boolean" };
    case FieldDescriptorProto_Type.BYTES:
      return { kind: "scalar", json: "bytes" };
    case FieldDescriptorProto_Type.INT64:
    case FieldDescriptorProto_Type.UINT64:
    case FieldDescriptorProto_Type.SINT64:
    case FieldDescriptorProto_Type.FIXED64:
    case FieldDescriptorProto_Type.SFIXED64:
      return { kind: "scalar", json: "int64" };
    default:
      return { kind: "scalar", json: "number" };
  }
}

/** `.millpond.v1.Claim.State` → `Claim.State`. */
const shortName = (typeName: string): string => typeName.replace(/^\.?(?:[a-z][a-z0-9]*\.)+/, "");

/** One paragraph: comments are wrapped at the line width. */
function textOf(comment: string | undefined): string {
  return (comment ?? "").trim().replace(/\s*\n\s*/g, " ");
}
