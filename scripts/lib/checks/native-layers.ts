// SPDX-License-Identifier: Apache-2.0
// The layers of native code, as its CMake files declare them with `millpond_layer` (native/layers.cmake).

export interface NativeLayer {
  readonly name: string;
  /** Including their subfolders, unless these are layers themselves. */
  readonly folders: readonly string[];
  /** Only the files directly in them. */
  readonly filesOf: readonly string[];
  /** Sources of programs, which may use all layers. */
  readonly without: readonly string[];
  readonly uses: readonly string[];
}

const call = /^[ \t]*millpond_layer\(((?:[^()$]|\$\{\w+\}|\$<[^\n]*?>(?=[\s)]))*)\)/gm;
const keywords = new Set(["FOLDERS", "FILES_OF", "WITHOUT", "USES", "OPTIONS", "SMALL", "BUILT_APART"]);

/** @param cmake the texts of CMake files */
export function readLayers(cmake: readonly string[]): NativeLayer[] {
  const layers: NativeLayer[] = [];
  for (const text of cmake) {
    const bare = text.replaceAll(/#.*$/gm, "");
    for (const [, words = ""] of bare.matchAll(call)) layers.push(layerOf(words.trim().split(/\s+/)));
  }
  return layers;
}

function layerOf([name = "", ...words]: readonly string[]): NativeLayer {
  const lists = new Map<string, string[]>();
  let list: string[] = [];
  for (const word of words) {
    if (keywords.has(word)) {
      list = lists.get(word) ?? [];
      lists.set(word, list);
    } else if (!word.startsWith("$")) list.push(word);
  }
  const read = (keyword: string): readonly string[] => lists.get(keyword) ?? [];
  return {
    name,
    folders: read("FOLDERS"),
    filesOf: read("FILES_OF"),
    without: read("WITHOUT"),
    uses: read("USES"),
  };
}

/** The layer to which a file belongs. Undefined: none, as for tests and programs. */
export function findLayer(path: string, layers: readonly NativeLayer[]): NativeLayer | undefined {
  if (layers.some(({ without }) => without.includes(path))) return undefined;
  const folder = path.slice(0, Math.max(0, path.lastIndexOf("/")));
  const direct = layers.find(({ filesOf }) => filesOf.includes(folder));
  if (direct !== undefined) return direct;
  let found: { readonly layer: NativeLayer; readonly length: number } | undefined;
  for (const layer of layers) {
    for (const own of layer.folders) {
      if (path.startsWith(`${own}/`) && own.length > (found?.length ?? 0))
        found = { layer, length: own.length };
    }
  }
  return found?.layer;
}
