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
  SameAs,
} from "../schema.ts";
export { driver } from "../driver/index.ts";
export { workerSymbols } from "../worker-symbols.ts";
