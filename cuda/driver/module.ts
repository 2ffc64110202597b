// SPDX-License-Identifier: Apache-2.0
/** Modules and libraries, their functions, kernels and variables. */
import type { Group } from "../schema.ts";

const local = { style: "local" } as const;
const image = {
  style: "hand",
  why: "the length of an image is found by its format; options are pairs of untyped pointers",
} as const;
const link = { style: "hand", why: "the inputs, the logs and the result are in client memory" } as const;
const lookup = {
  style: "hand",
  why: "one query returns all properties of the function, and the client caches the replies",
} as const;

const value = { kind: "value" } as const;
const out = { kind: "out" } as const;
const functionOrKernel = { kind: "functionOrKernel" } as const;
const kernel = { kind: "handle", of: "kernel" } as const;
const device = { kind: "device" } as const;

export const module = {
  cuModuleGetLoadingMode: local,
  cuModuleLoad: image,
  cuModuleLoadData: image,
  cuModuleLoadDataEx: image,
  cuModuleLoadFatBinary: image,
  cuModuleUnload: { style: "hand", why: "everything that came from the module ends with it" },
  cuModuleGetFunction: lookup,
  cuModuleGetGlobal_v2: lookup,
  cuModuleGetFunctionCount: {
    style: "wait",
    left: "books",
    cached: { invalidatedBy: [] },
    arguments: { count: out, mod: { kind: "handle", of: "module" } },
  },

  cuModuleEnumerateFunctions: lookup,
  cuLinkCreate_v2: link,
  cuLinkAddData_v2: link,
  cuLinkAddFile_v2: link,
  cuLinkComplete: link,
  cuLinkDestroy: link,
  cuLinkCreate: { style: "same", as: "cuLinkCreate_v2" },
  cuLinkAddData: { style: "same", as: "cuLinkAddData_v2" },
  cuLinkAddFile: { style: "same", as: "cuLinkAddFile_v2" },

  cuLibraryLoadData: image,
  cuLibraryLoadFromFile: image,
  cuLibraryUnload: { style: "hand", why: "everything that came from the library ends with it" },
  cuLibraryGetKernel: lookup,
  cuLibraryGetGlobal: lookup,
  cuLibraryGetModule: lookup,
  cuLibraryEnumerateKernels: lookup,
  cuLibraryGetUnifiedFunction: {
    style: "local",
    how: "no device has unified functions, which are code of the GPU's own host: every name is unknown",
  },
  cuLibraryGetKernelCount: {
    style: "wait",
    left: "books",
    context: "none",
    cached: { invalidatedBy: [] },
    arguments: { count: out, lib: { kind: "handle", of: "library" } },
  },

  cuKernelGetFunction: local,
  cuKernelGetLibrary: local,
  cuKernelGetName: local,
  cuKernelGetParamInfo: local,
  cuFuncGetModule: lookup,
  cuFuncGetName: local,
  cuFuncGetParamInfo: local,

  cuFuncGetAttribute: {
    style: "wait",
    left: "books",
    cached: { invalidatedBy: ["cuFuncSetAttribute", "cuKernelSetAttribute"] },
    arguments: { pi: out, attrib: value, hfunc: functionOrKernel },
  },
  cuFuncSetAttribute: {
    style: "wait",
    left: { sets: "value", of: "hfunc" },
    once: true,
    arguments: { hfunc: functionOrKernel, attrib: value, value },
  },
  cuFuncSetCacheConfig: {
    style: "async",
    left: { sets: "config", of: "hfunc" },
    arguments: { hfunc: functionOrKernel, config: value },
  },
  cuFuncSetSharedMemConfig: {
    style: "async",
    left: { sets: "config", of: "hfunc" },
    arguments: { hfunc: functionOrKernel, config: value },
  },
  cuFuncLoad: { style: "wait", left: "books", arguments: { function: functionOrKernel } },
  cuFuncIsLoaded: {
    style: "wait",
    left: "books",
    arguments: { state: out, function: functionOrKernel },
  },
  cuKernelGetAttribute: {
    style: "wait",
    left: "books",
    context: "none",
    cached: { invalidatedBy: ["cuFuncSetAttribute", "cuKernelSetAttribute"] },
    arguments: { pi: out, attrib: value, kernel, dev: device },
  },
  cuKernelSetAttribute: {
    style: "wait",
    left: { sets: "val", of: "kernel" },
    once: true,
    context: "none",
    arguments: { attrib: value, val: value, kernel, dev: device },
  },
  cuKernelSetCacheConfig: {
    style: "async",
    left: { sets: "config", of: "kernel" },
    context: "none",
    arguments: { kernel, config: value, dev: device },
  },
} as const satisfies Group;
