// SPDX-License-Identifier: Apache-2.0
// Runs main() of scripts/<name>.ts. Plain JavaScript, so that a Node that is too old to run TypeScript can still report it.
const [name, ...args] = process.argv.slice(2);
const [major, minor] = process.versions.node.split(".").map(Number);
if (major < 22 || (major === 22 && minor < 18)) {
  console.error(`error: this script needs Node >= 22.18 to run TypeScript, and this is Node ${process.versions.node}.
Millpond brings its own Node as an npm package: run "npm ci" first, then the script through npm ("npm run ${name}").`);
  process.exit(1);
}
const { main } = await import(`./${name}.ts`);
await main(args);
