// SPDX-License-Identifier: Apache-2.0
// Makes the fixtures of the image tests: `node make.mjs` in this folder. The zstd frames need only Node ≥ 22.15, the
// fatbins need nvcc 13 on the PATH and are left as they are without it. The plain texts are not stored: the tests
// generate them by the same rules as here.
import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { constants, zstdCompressSync } from "node:zlib";

/** Numbers of a 32-bit linear congruential generator, its top 16 bits. */
function* numbers(seed) {
  let state = seed >>> 0;
  while (true) {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    yield state >>> 16;
  }
}

/** `size` bytes of words from a vocabulary, like source text. */
function words(size, seed) {
  const vocabulary = [
    "ld.global.f32",
    "st.shared.u32",
    "mov.u32",
    "add.s32",
    "%r1",
    "%r2",
    "%f17",
    "%rd4",
    "bra",
    "$L",
    "\n",
  ];
  const out = [];
  let length = 0;
  for (const n of numbers(seed)) {
    const word = `${vocabulary[n % vocabulary.length]}${n % 7 === 0 ? n : ""} `;
    out.push(word);
    length += word.length;
    if (length >= size) return Buffer.from(out.join("").slice(0, size), "latin1");
  }
  throw new Error("unreachable");
}

/** `size` bytes, each with equal probability. */
function noise(size, seed) {
  const out = Buffer.alloc(size);
  const source = numbers(seed);
  for (let i = 0; i < size; i++) out[i] = source.next().value & 0xff;
  return out;
}

/** `size` bytes with a skewed distribution and no repeats worth coding: literals only. */
function skewed(size, seed) {
  const out = Buffer.alloc(size);
  const source = numbers(seed);
  for (let i = 0; i < size; i++) out[i] = 97 + Math.clz32(source.next().value << 16);
  return out;
}

const contents = {
  empty: Buffer.alloc(0),
  one: Buffer.from("x"),
  zeros: Buffer.alloc(300_000),
  words: words(20_000, 1),
  long: words(160_000, 2),
  noise: noise(600, 3),
  skewed: skewed(8_000, 4),
  mixed: Buffer.concat([
    words(9_000, 5),
    noise(300, 6),
    Buffer.alloc(140_000, 65),
    skewed(6_000, 7),
    words(9_000, 5),
  ]),
};
const levels = {
  empty: [3],
  one: [3],
  zeros: [1],
  words: [-5, 1, 3, 9, 19],
  long: [1, 19],
  noise: [3],
  skewed: [3, 19],
  mixed: [1, 3, 19],
};

for (const [name, content] of Object.entries(contents)) {
  for (const level of levels[name]) {
    const params = {
      [constants.ZSTD_c_compressionLevel]: level,
      [constants.ZSTD_c_checksumFlag]: level === 3 ? 1 : 0,
      [constants.ZSTD_c_contentSizeFlag]: level === 1 ? 0 : 1,
    };
    writeFileSync(`${name}-${level}.zst`, zstdCompressSync(content, { params }));
  }
}

const source = `extern "C" __global__ void scale(float* x, float a, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] *= a;
}
`;
const folder = mkdtempSync(join(tmpdir(), "softgpu-image-"));
try {
  writeFileSync(join(folder, "scale.cu"), source);
  const nvcc = (...args) => execFileSync("nvcc", args, { cwd: folder, stdio: "inherit" });
  for (const mode of ["default", "size", "speed", "balance", "none"]) {
    const code = [
      "-gencode",
      "arch=compute_75,code=[sm_75,compute_75]",
      "-gencode",
      "arch=compute_90,code=compute_90",
    ];
    nvcc("-fatbin", ...code, "--compress-mode", mode, "-o", "scale.fatbin", "scale.cu");
    writeFileSync(`scale-${mode}.fatbin`, readFileSync(join(folder, "scale.fatbin")));
  }
  nvcc("-fatbin", "-gencode", "arch=compute_75,code=sm_75", "-o", "cubin.fatbin", "scale.cu");
  writeFileSync("cubin-only.fatbin", readFileSync(join(folder, "cubin.fatbin")));
  nvcc("-cubin", "-arch=sm_75", "-o", "scale.cubin", "scale.cu");
  writeFileSync("scale.cubin", readFileSync(join(folder, "scale.cubin")));
  nvcc("-ptx", "-arch=compute_75", "-o", "scale.ptx", "scale.cu");
  writeFileSync("scale.ptx", readFileSync(join(folder, "scale.ptx")));
} catch (error) {
  if (error.code !== "ENOENT") throw error;
  console.error("nvcc not found: fatbins left as they are");
} finally {
  rmSync(folder, { recursive: true });
}
