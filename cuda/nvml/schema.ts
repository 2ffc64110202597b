// SPDX-License-Identifier: Apache-2.0
/**
 * The schema in which NVIDIA's management library (NVML) is described: the parameters of each function and the code
 * that answers it.
 */

/** A parameter, by its type in C. Pointers that must not be null are checked first. */
export type Parameter =
  /** `nvmlDevice_t`: a vGPU of the claim. */
  | "gpu"
  /** An unsigned number or an enumeration. */
  | "number"
  /** `unsigned long long`. */
  | "long"
  /** `const char*`, not null. */
  | "string"
  /** `char*` and the size of its buffer: two parameters in C. */
  | "text"
  /** A non-null pointer to an output of a type in `native/nvml/types.h`. */
  | { readonly out: string }
  /** `unsigned*` for the capacity and the count, and a pointer to the first element. */
  | { readonly list: string }
  /** Passed on unchecked: a C type. */
  | { readonly raw: string };

/** By name, in C order. */
export type Parameters = Readonly<Record<string, Parameter>>;

interface Given {
  readonly parameters: Parameters;
}

/** `millpond::nvml::api::<name>` in `native/nvml`. */
interface HandWritten extends Given {
  readonly by: "hand";
  /** It gets the view of the claim, like all functions that need a GPU. */
  readonly view?: true;
  /** It works before `nvmlInit`. */
  readonly early?: true;
}

/** The code that answers a function. */
export type NvmlFunction =
  | HandWritten
  /** A member of `Gpu`, for the single result; "not supported" if it is unknown. */
  | (Given & { readonly by: "member"; readonly member: string })
  /** The same for every vGPU: this number, for each result. `why` is for readers. */
  | (Given & { readonly by: "rule"; readonly value: number; readonly why: string })
  /** Another function, of which this is an older or newer name. */
  | { readonly by: "same"; readonly as: string };

/** Functions by their names. */
export type NvmlGroup = Readonly<Record<string, NvmlFunction>>;

/** A result that is a member of `Gpu`. */
export function member(name: string, type: string = "unsigned"): NvmlFunction {
  return { by: "member", member: name, parameters: { device: "gpu", value: { out: type } } };
}

/** A single result that is the same for every vGPU. */
export function rule(value: number, why: string): NvmlFunction {
  return { by: "rule", value, why, parameters: { device: "gpu", value: { out: "unsigned" } } };
}

export function hand(parameters: Parameters): HandWritten {
  return { by: "hand", parameters };
}

/** Like `hand`, for a function without a GPU among its parameters; it gets the view of the claim. */
export function handWithView(parameters: Parameters): HandWritten {
  return { by: "hand", parameters, view: true };
}

export function same(as: string): NvmlFunction {
  return { by: "same", as };
}

export const out = (type: string): Parameter => ({ out: type });
export const list = (type: string): Parameter => ({ list: type });
export const raw = (type: string): Parameter => ({ raw: type });
