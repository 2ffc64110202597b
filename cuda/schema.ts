// SPDX-License-Identifier: Apache-2.0
/**
 * The vocabulary in which the CUDA driver API is described.
 *
 * `abi/` says what the API *is* (names, versions, signatures, enums, structs: facts of the header). The groups in
 * `driver/` say how each function is *remoted*. Every name has one entry per base symbol: `_ptds`/`_ptsz` variants are
 * derived from it, older versions (`cuMemAlloc` beside `cuMemAlloc_v2`) are refused unless they have their own entry.
 */

/** The kind of object behind a handle. The client chooses the handle, and the worker maps it to the driver's object. */
export type HandleKind =
  | "stream"
  | "event"
  | "module"
  | "library"
  | "kernel"
  | "function"
  | "memoryPool"
  | "array"
  | "mipmappedArray"
  | "graph"
  | "graphExec"
  | "linkState"
  | "textureReference"
  | "surfaceReference";

/** How one parameter of a call is transferred. Parameters have the names of the ABI. */
export type Argument =
  /** A number or enum by value. `bits`: only these may be set, CUDA_ERROR_INVALID_VALUE at the call otherwise. */
  | {
      readonly kind: "value";
      readonly bits?: number;
      /** If one of the first bits is set, all of the second must be: otherwise CUDA_ERROR_INVALID_VALUE at the call. */
      readonly implies?: readonly [bits: number, others: number];
    }
  /** A `CUdevice` by value: checked against the session's devices. */
  | { readonly kind: "device" }
  /**
   * A `CUdeviceptr` by value: the same number on both sides, because addresses are real. The driver gets it if all of
   * `extent` is memory of the session; otherwise the result is CUDA_ERROR_INVALID_VALUE. `unlessZero`: null is refused at the
   * call, CUDA_ERROR_INVALID_VALUE, unless one of these parameters is 0.
   */
  | { readonly kind: "address"; readonly extent: Extent; readonly unlessZero?: readonly string[] }
  /** A `CUstream`: 0, 1 and 2 are resolved by variant and calling thread before anything is sent. */
  | { readonly kind: "stream" }
  /**
   * A handle that the session must own; others are CUDA_ERROR_INVALID_HANDLE. `null`: it may be null, or null is refused
   * with CUDA_ERROR_INVALID_VALUE.
   */
  | { readonly kind: "handle"; readonly of: HandleKind; readonly null?: "allowed" | "invalidValue" }
  /** A `CUfunction` parameter: either a function or a kernel cast to one, as in cudart 13. */
  | { readonly kind: "functionOrKernel" }
  /**
   * `T *` that receives a handle which the client chooses. `traits` name the parameters that the client stores with the
   * handle, to answer queries about it itself.
   */
  | {
      readonly kind: "creates";
      readonly of: HandleKind;
      readonly traits?: { readonly flags?: string; readonly priority?: string };
    }
  /** A handle that this call destroys. */
  | { readonly kind: "destroys"; readonly of: HandleKind }
  /** `T *` that is read: a plain struct or number without pointers, or `elements` of it, copied. */
  | { readonly kind: "struct"; readonly nullable?: true; readonly elements?: number }
  /** `const T *` with `count` elements (another parameter's name), no pointers inside. */
  | { readonly kind: "array"; readonly count: string }
  /** `const char *`, NUL-terminated, at most 64 KiB. */
  | { readonly kind: "string" }
  /**
   * `T *` written by the call, `elements` of it: sent in the reply. `nullable`: the caller may pass NULL and then receives
   * nothing; `isAsked`: the driver then receives NULL too, and may refuse a value that it would have to return.
   */
  | { readonly kind: "out"; readonly nullable?: true; readonly isAsked?: true; readonly elements?: number }
  /**
   * `T *` that receives an existing handle of the session: the worker finds it by the driver's object. A handle that the
   * session no longer has is CUDA_ERROR_INVALID_VALUE.
   */
  | { readonly kind: "finds"; readonly of: HandleKind };

/**
 * How much memory at an address a call accesses: a fixed number of bytes, or a size that parameters give. `elements` of
 * `elementBytes` (1) each; `rows` of them, `pitch` bytes apart, if there are several. Nothing if one of them is 0.
 */
export type Extent =
  | { readonly bytes: number }
  | {
      readonly elements: string;
      readonly elementBytes?: number;
      readonly pitch?: string;
      readonly rows?: string;
    };

/**
 * The state that a command leaves behind in the worker. It decides whether an idle session can be parked, and how a
 * replacement session is rebuilt. Every command declares it.
 */
export type Left =
  /** Nothing, or only state in the worker's tables. */
  | "books"
  /**
   * State that the journal does not record or that no other worker could recreate: objects shared with other sessions,
   * functions of the client, and facts reported to the program that do not hold for every device of the model, such as
   * how its devices reach each other or where the multiprocessors lie. A session that has run such a command is never
   * parked.
   */
  | "trace"
  /**
   * The object that repeating the command restores: the field with its handle, with a context's number or
   * with an address.
   */
  | { readonly makes: string; readonly kind?: "context" | "hostMemory" }
  /**
   * The setting that repeating the command restores: the field with the value, `of` the handle in another
   * field or of its own context.
   */
  | { readonly sets: string; readonly of?: string }
  /** Nothing: a command that a worker sends about the handle in that field, so that the next session knows about it. */
  | { readonly tells: string };

export interface Remoted {
  /**
   * - `async`: appended to the command stream, returns immediately; no outputs except handles that the client chooses.
   * - `wait`: waits for the worker's reply.
   */
  readonly style: "async" | "wait";
  /** `left` of the derived command. */
  readonly left?: Left;
  /** `work` of the derived command, as in `Command`. */
  readonly work?: true;
  readonly arguments: { readonly [parameter: string]: Argument };
  /**
   * Default: acts in the current context or, if the thread has none, in that of the first handle with a context; otherwise
   * the result is 201. `current`: only in the current one; `none`: needs no context.
   */
  readonly context?: "current" | "none";
  /**
   * The wire command of `commands/` that replaces the derived one, with the same types in the same order: the worker's side
   * is then written by hand. Needed if the driver call can block until the device makes progress (the worker never makes such
   * a call on its issuing thread), or if the worker must answer in place of the driver.
   */
  readonly command?: string;
  /**
   * For `wait`: the answer depends only on the arguments and the current context, so it is requested once. `invalidatedBy`
   * names the calls that change it, for the function or kernel that they are given.
   */
  readonly cached?: { readonly invalidatedBy: readonly string[] };
  /**
   * For `wait` without outputs: the call sets a property of a function or kernel. With the same arguments as before, and if
   * nothing else was set in the meantime, it is not sent again.
   */
  readonly once?: true;
  /**
   * Checks for errors that the driver returns from the call itself and the client can detect: a function of
   * `native/client/call/preconditions.h`, called with the client's `Call` and all arguments once they are
   * checked; its failure is the call's, and nothing is sent.
   */
  readonly precondition?: string;
  /**
   * For `async`: a function of `native/client/calls/memory/copies.h` that may make the call in another way. It is called with
   * the client's `Call` and the command, after the precondition; nothing is sent if it returns a result.
   */
  readonly instead?: string;
  /**
   * For `async`: updates the client's state when the command has been posted. A function of
   * `native/client/call/command_effects.h`, called with the client's `Call`, the command and its tails.
   */
  readonly effect?: string;
  /**
   * The symbol that the worker calls, if it is not the described one. A call without a stream parameter that has a `_ptds`
   * variant needs one: its asynchronous twin, which takes the stream of the variant as an additional last parameter.
   */
  readonly driverSymbol?: string;
}

/** Client and worker code is written by hand, over the wire commands named here (see `Command`). */
export interface HandWritten {
  readonly style: "hand";
  /** Why it cannot be generated, for the coverage page. */
  readonly why: string;
}

/** Answered in the client, from the snapshot or its own state; written by hand in `native/client`. */
export interface Local {
  readonly style: "local";
  /** Source of the answer, for the coverage page, if it is not obvious. */
  readonly how?: string;
}

/** An older symbol with the same parameters and the same meaning as another one. */
export interface SameAs {
  readonly style: "same";
  readonly as: string;
}

/** Exported, and answers CUDA_ERROR_NOT_SUPPORTED, for a permanent reason. */
export interface Refused {
  readonly style: "refused";
  readonly why: string;
}

export type Remoting = Remoted | HandWritten | Local | SameAs | Refused;

/** A group file of `driver/`: exported symbol (without `_ptds`/`_ptsz`) → remoting. */
export type Group = { readonly [symbol: string]: Remoting };

/**
 * How the worker interprets 64 bits from a client:
 * - `address`: memory or an object of the worker or its driver. Commands treat it as opaque: only worker::AddressGate decides
 *   whether it belongs to the session. If client memory is at that address, it is made accessible to the worker before the
 *   command is sent.
 * - `place`: the same, for memory that the command creates or frees, so that nothing there is dereferenced.
 * - `echo`: an address in the client, or any other value, that is only ever returned to the client.
 * - `handle`: the number of an object that is looked up.
 * - `number`: a size, a count or a set of bits.
 */
export type Meaning = "address" | "place" | "echo" | "handle" | "number";

/** Type of a fixed-size field of a wire command; `{bytes}` is a struct in its memory layout. */
export type FieldType =
  | "u8"
  | "u16"
  | "u32"
  | "i32"
  | "u64"
  | "i64"
  | "f32"
  | Meaning
  | { readonly bytes: number };

export type Field = readonly [name: string, type: FieldType];

/**
 * A field of a command. 64-bit numbers declare their meaning; a struct declares its type: one whose members
 * `structs.ts` describes, or `numbers` for a struct with neither addresses nor handles.
 */
export type RequestField = readonly [
  name: string,
  type:
    | Exclude<FieldType, "u64" | { readonly bytes: number }>
    | { readonly bytes: number; readonly of: string },
];

/** A wire command used by hand-written calls. Those of generated calls are derived from their arguments. */
export interface Command {
  readonly name: string;
  readonly doc: string;
  readonly left?: Left;
  /** Submits device work that ends by itself, unlike a wait for a later action of the program. */
  readonly work?: true;
  readonly fields: readonly RequestField[];
  /**
   * Variable-length byte sequences after the fields, in this order; each shorter than 4 GiB. `tails.ts` describes their
   * content.
   */
  readonly tails?: readonly string[];
  /** Absent: there is no reply. */
  readonly reply?: {
    readonly fields: readonly Field[];
    readonly tails?: readonly string[];
  };
}
