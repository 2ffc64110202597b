// SPDX-License-Identifier: Apache-2.0
/**
 * The shape of `abi/*.json`: what the driver API *is*, as captured from the headers of one CUDA release by
 * `tools/capture.ts`. Names, numbers and layouts only.
 */

/** The meaning of stream 0 in a variant: the legacy stream (`none`), or the calling thread's own stream. */
export type VariantFlavour = "none" | "ptds" | "ptsz";

export interface Parameter {
  /** C spelling, one space between tokens, `*` next to the type: `const char*`. */
  readonly type: string;
  readonly name: string;
}

export interface FunctionVariant {
  /** Name that is passed to `cuGetProcAddress`: `cuMemAlloc`. */
  readonly base: string;
  /** Name in the symbol table: `cuMemAlloc_v2`. */
  readonly symbol: string;
  /** CUDA version that introduced the variant, 1000·major + 10·minor. */
  readonly version: number;
  readonly flavour: VariantFlavour;
  readonly returns: string;
  readonly parameters: readonly Parameter[];
  /** The header that declares it, without `.h`: `cuda`, `cudaGL`. */
  readonly header: string;
}

export interface Member {
  /** Absent for an anonymous union inside a struct. */
  readonly name?: string;
  /** Absent if `record` is present. */
  readonly type?: string;
  /** Array dimensions, outermost first. */
  readonly dimensions?: readonly number[];
  /** Explicit alignment in bytes. */
  readonly align?: number;
  /** A struct or union declared in place. */
  readonly record?: {
    readonly kind: "struct" | "union";
    readonly tag?: string;
    readonly members: readonly Member[];
  };
}

export interface EnumDeclaration {
  readonly kind: "enum";
  readonly name: string;
  readonly values: readonly (readonly [name: string, value: number])[];
}

export interface RecordDeclaration {
  readonly kind: "struct" | "union";
  readonly name: string;
  /** The tag, if it differs from the name. */
  readonly tag?: string;
  readonly members: readonly Member[];
}

export type TypeDeclaration =
  /** `typedef struct tag *name`. */
  | { readonly kind: "handle"; readonly name: string; readonly tag: string }
  | { readonly kind: "alias"; readonly name: string; readonly type: string }
  /** `typedef returns (*name)(parameters)`. */
  | {
      readonly kind: "callback";
      readonly name: string;
      readonly returns: string;
      readonly parameters: readonly Parameter[];
    }
  | EnumDeclaration
  | RecordDeclaration;

export interface Abi {
  /** 13000 for CUDA 13.0. */
  readonly cudaVersion: number;
  /** Object-like macros, in the order of the headers. */
  readonly constants: readonly (readonly [name: string, value: string])[];
  /** In the order of the headers: each type after those that it needs. */
  readonly types: readonly TypeDeclaration[];
  /** Sorted by base, version and flavour. */
  readonly functions: readonly FunctionVariant[];
}
