// SPDX-License-Identifier: Apache-2.0
/**
 * Texture and surface references: deprecated, but modules may still have them. Only the driver knows which values it refuses,
 * so every call waits for it, except those that create or destroy a reference.
 */
import type { Group, Remoted } from "../schema.ts";

const value = { kind: "value" } as const;
const out = { kind: "out" } as const;
/** A lower bound on the bytes read from an image; the padding after its last row need not exist. */
const image = {
  kind: "address",
  extent: { elements: "desc.Width", pitch: "Pitch", rows: "desc.Height" },
} as const;
const hTexRef = { kind: "handle", of: "textureReference" } as const;
const hSurfRef = { kind: "handle", of: "surfaceReference" } as const;
const hArray = { kind: "handle", of: "array" } as const;
const phArray = { kind: "finds", of: "array" } as const;
const lookup = {
  style: "hand",
  why: "the reference ends with its module; one reference for each name",
} as const;

const wait = (parameters: Remoted["arguments"]): Remoted => ({
  style: "wait",
  left: "trace",
  arguments: parameters,
});

export const textureReferences: Group = {
  cuModuleGetTexRef: lookup,
  cuModuleGetSurfRef: lookup,
  cuTexRefCreate: {
    style: "async",
    left: "trace",
    arguments: { pTexRef: { kind: "creates", of: "textureReference" } },
  },
  cuTexRefDestroy: {
    style: "async",
    command: "TextureReferenceDestroy",
    precondition: "isNotOfModule",
    arguments: { hTexRef: { kind: "destroys", of: "textureReference" } },
  },
  cuParamSetTexRef: wait({ hfunc: { kind: "functionOrKernel" }, texunit: value, hTexRef }),

  cuTexRefSetArray: wait({ hTexRef, hArray, Flags: value }),
  cuTexRefSetMipmappedArray: wait({
    hTexRef,
    hMipmappedArray: { kind: "handle", of: "mipmappedArray" },
    Flags: value,
  }),
  cuTexRefSetAddress_v2: wait({
    ByteOffset: { kind: "out", nullable: true, isAsked: true },
    hTexRef,
    dptr: { kind: "address", extent: { elements: "bytes" } },
    bytes: value,
  }),
  cuTexRefSetAddress2D_v2: wait({ hTexRef, desc: { kind: "struct" }, dptr: image, Pitch: value }),
  cuTexRefSetAddress2D_v3: wait({ hTexRef, desc: { kind: "struct" }, dptr: image, Pitch: value }),
  cuTexRefSetFormat: wait({ hTexRef, fmt: value, NumPackedComponents: value }),
  cuTexRefSetAddressMode: wait({ hTexRef, dim: value, am: value }),
  cuTexRefSetFilterMode: wait({ hTexRef, fm: value }),
  cuTexRefSetMipmapFilterMode: wait({ hTexRef, fm: value }),
  cuTexRefSetMipmapLevelBias: wait({ hTexRef, bias: value }),
  cuTexRefSetMipmapLevelClamp: wait({ hTexRef, minMipmapLevelClamp: value, maxMipmapLevelClamp: value }),
  cuTexRefSetMaxAnisotropy: wait({ hTexRef, maxAniso: value }),
  cuTexRefSetBorderColor: wait({ hTexRef, pBorderColor: { kind: "struct", elements: 4 } }),
  cuTexRefSetFlags: wait({ hTexRef, Flags: value }),

  cuTexRefGetAddress_v2: wait({ pdptr: out, hTexRef }),
  cuTexRefGetArray: wait({ phArray, hTexRef }),
  cuTexRefGetMipmappedArray: wait({
    phMipmappedArray: { kind: "finds", of: "mipmappedArray" },
    hTexRef,
  }),
  cuTexRefGetAddressMode: wait({ pam: out, hTexRef, dim: value }),
  cuTexRefGetFilterMode: wait({ pfm: out, hTexRef }),
  cuTexRefGetFormat: wait({
    pFormat: { kind: "out", nullable: true },
    pNumChannels: { kind: "out", nullable: true },
    hTexRef,
  }),
  cuTexRefGetMipmapFilterMode: wait({ pfm: out, hTexRef }),
  cuTexRefGetMipmapLevelBias: wait({ pbias: out, hTexRef }),
  cuTexRefGetMipmapLevelClamp: wait({ pminMipmapLevelClamp: out, pmaxMipmapLevelClamp: out, hTexRef }),
  cuTexRefGetMaxAnisotropy: wait({ pmaxAniso: out, hTexRef }),
  cuTexRefGetBorderColor: wait({ pBorderColor: { kind: "out", elements: 4 }, hTexRef }),
  cuTexRefGetFlags: wait({ pFlags: out, hTexRef }),

  cuSurfRefSetArray: wait({ hSurfRef, hArray, Flags: value }),
  cuSurfRefGetArray: wait({ phArray, hSurfRef }),
};
