// SPDX-License-Identifier: Apache-2.0
export type {
  Abi,
  EnumDeclaration,
  FunctionVariant,
  Member,
  Parameter,
  RecordDeclaration,
  TypeDeclaration,
  VariantFlavour,
} from "./abi.ts";
export { loadAbi } from "./load-abi.ts";
export { commands } from "../commands/index.ts";
export type {
  Argument,
  Command,
  Extent,
  Field,
  FieldType,
  Group,
  HandleKind,
  HandWritten,
  Left,
  Local,
  Refused,
  Remoted,
  Remoting,
  RequestField,
  SameAs,
} from "../schema.ts";
export { type MemberMeaning, structs } from "../structs.ts";
export { type TailMeaning, tails } from "../tails.ts";
export { driver } from "../driver/index.ts";
export { workerSymbols } from "../worker-symbols.ts";
export {
  nvml,
  takesDevice as unsupportedNvmlTakesDevice,
  unsupported as unsupportedNvml,
} from "../nvml/index.ts";
export type { NvmlFunction, NvmlGroup, Parameter as NvmlParameter } from "../nvml/schema.ts";
export { type WorkerPart, workerParts } from "../worker-parts.ts";
