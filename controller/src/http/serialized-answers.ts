// SPDX-License-Identifier: Apache-2.0

// Answers that grow with the pool are written element by element, within the turns of their call: Connect writes a
// message in one go, which would block all other calls for as long as that takes.

import { promisify } from "node:util";
import { gzip } from "node:zlib";
import {
  create,
  type DescField,
  type DescMessage,
  type JsonWriteOptions,
  type Message,
  toBinary,
  toJson,
} from "@bufbuild/protobuf";
import { createContextKey } from "@connectrpc/connect";
import type { UniversalServerResponse } from "@connectrpc/connect/protocol";
import type { ReadTurns } from "../auth/fairness/fair-turns.ts";

export type Format = "json" | "binary";

export const jsonOptions: Partial<JsonWriteOptions> = { alwaysEmitImplicit: true };

/** Elements that are written at a time. */
const elementsAtOnce = 4;

/** From this size on, answers are compressed for those that accept it: Connect's own limit. */
const compressedBytes = 1024;

/** An answer that was written here; Connect writes an empty message in its place. */
export const serializedKey = createContextKey<Uint8Array | undefined>(undefined, { description: "written" });

type ListField = DescField & { readonly fieldKind: "list"; readonly listKind: "message" };

function isListField(field: DescField): field is ListField {
  return field.fieldKind === "list" && field.listKind === "message";
}

/** Writes a message as `toBinary` and `toJson` do, its lists of messages in parts. */
export async function serializeInTurns(
  schema: DescMessage,
  message: Message,
  format: Format,
  turns: ReadTurns,
): Promise<Uint8Array> {
  const lists = schema.fields.filter(isListField);
  const members = message as unknown as Readonly<Record<string, Message[] | undefined>>;
  const rest = create(schema, {
    ...message,
    ...Object.fromEntries(lists.map(({ localName }) => [localName, []])),
  });
  const parts = new Map<ListField, unknown[]>();
  for (const field of lists) {
    const elements = members[field.localName] ?? [];
    const written: unknown[] = [];
    for (let at = 0; at < elements.length; at += elementsAtOnce) {
      if (turns.isOver) await turns.next();
      const some = elements.slice(at, at + elementsAtOnce);
      written.push(
        format === "binary"
          ? toBinary(schema, create(schema, { [field.localName]: some }))
          : elementsToJson(field, some),
      );
    }
    parts.set(field, written);
  }
  if (format === "binary") {
    // A reader merges messages that are written one after the other: it joins their lists.
    return Buffer.concat([toBinary(schema, rest), ...([...parts.values()].flat() as Uint8Array[])]);
  }
  const json = toJson(schema, rest, jsonOptions) as Readonly<Record<string, unknown>>;
  const byName = new Map([...parts].map(([{ jsonName }, written]) => [jsonName, written]));
  const texts = Object.entries(json).map(([name, value]) => {
    const list = byName.get(name);
    const text = list === undefined ? JSON.stringify(value) : `[${list.join(",")}]`;
    return `${JSON.stringify(name)}:${text}`;
  });
  return Buffer.from(`{${texts.join(",")}}`);
}

function elementsToJson(field: ListField, elements: readonly Message[]): string {
  return elements.map((each) => JSON.stringify(toJson(field.message, each, jsonOptions))).join(",");
}

/** A Connect response whose empty message is replaced by the written answer, in the protocol of the call. */
export async function withSerialized(
  response: UniversalServerResponse,
  body: Uint8Array,
  { written, accepts }: { readonly written: Uint8Array; readonly accepts: string },
): Promise<{ readonly header: Headers; readonly body: Uint8Array }> {
  const header = new Headers(response.header);
  const type = header.get("content-type") ?? "";
  if (response.status !== 200) return { header, body };
  if (type.startsWith("application/grpc-web")) {
    return { header, body: inEnvelope(body, written) };
  }
  let bytes = written;
  const takesGzip = accepts.split(",").some((each) => each.trim() === "gzip");
  if (written.byteLength >= compressedBytes && takesGzip) {
    bytes = await promisify(gzip)(written);
    header.set("content-encoding", "gzip");
  }
  header.set("content-length", String(bytes.byteLength));
  return { header, body: bytes };
}

/** Bytes before the message of an envelope: its flags, and its length. */
const envelopeBytes = 5;

/** gRPC-web: a message in an envelope, and trailers in another one. A refusal has trailers only. */
function inEnvelope(body: Uint8Array, written: Uint8Array): Uint8Array {
  const first = Buffer.from(body.buffer, body.byteOffset, body.byteLength);
  if (first.byteLength < envelopeBytes || first.readUInt8(0) !== 0) return body;
  const head = Buffer.alloc(envelopeBytes);
  head.writeUInt32BE(written.byteLength, 1);
  return Buffer.concat([head, written, first.subarray(envelopeBytes + first.readUInt32BE(1))]);
}
