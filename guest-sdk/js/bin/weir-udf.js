#!/usr/bin/env node
// weir-udf build SOURCE [-o MODULE]: bundles a JavaScript or TypeScript file with what it imports, and makes a module of it that
// imports nothing but, if the file uses it, the host's log.

import { existsSync } from "node:fs";
import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { componentize } from "@bytecodealliance/componentize-js";
import { rolldown } from "rolldown";

const PACKAGE = path.dirname(path.dirname(fileURLToPath(import.meta.url)));

/** The contract: in the package, or, within Weir's repository, beside it. */
const WIT = [path.join(PACKAGE, "wit"), path.join(PACKAGE, "..", "wit")].find((folder) => existsSync(path.join(folder, "udf.wit")));

function fail(message) {
  console.error(`weir-udf: ${message}`);
  process.exit(1);
}

/** One file of everything, what it exports, and whether it logs. */
async function bundle(source) {
  const made = await rolldown({
    input: source,
    external: /^weir:/,
    resolve: { conditionNames: ["weir", "import", "default"] },
    platform: "neutral",
  });
  const { output } = await made.generate({ format: "es", codeSplitting: false });
  const { code, exports, imports } = output[0];
  return { code, exports, logs: imports.some((name) => name.startsWith("weir:udf/log@")) };
}

function worldOf({ exports, logs }) {
  const kind = exports.includes("transform") ? "transformer" : exports.includes("accumulate") ? "aggregator" : null;
  if (kind === null) {
    fail("the file exports neither a transformer nor an aggregator: write `export const { configure, transform } = transformer(…)`");
  }
  return logs ? `${kind}-logging` : kind;
}

async function build(source, output) {
  const bundled = await bundle(source);
  const folder = await mkdtemp(path.join(tmpdir(), "weir-udf-"));
  try {
    const sourcePath = path.join(folder, "udf.js");
    await writeFile(sourcePath, bundled.code);
    const { component } = await componentize({
      sourcePath, witPath: WIT, worldName: worldOf(bundled), disableFeatures: ["random", "stdio", "clocks", "http", "fetch-event"],
    });
    await mkdir(path.dirname(output), { recursive: true });
    await writeFile(output, component);
    console.log(`${output} ${component.length} bytes`);
  } finally {
    await rm(folder, { recursive: true });
  }
}

const { values, positionals } = parseArgs({ allowPositionals: true, options: { output: { type: "string", short: "o" } } });
const [command, source] = positionals;
if (command !== "build" || source === undefined) fail("usage: weir-udf build SOURCE [-o MODULE]");
if (!existsSync(source)) fail(`no such file: ${source}`);
await build(path.resolve(source), path.resolve(values.output ?? `${path.basename(source, path.extname(source))}.wasm`));
