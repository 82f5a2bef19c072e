/*
 * Builds the page: `node build.mjs` writes dist/{index.html,app.js,icon.svg}.
 * `--watch` rebuilds after each change; `--tests` writes build/tests.mjs for `node --test`.
 */
import { copyFileSync, mkdirSync, readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { gzipSync } from "node:zlib";
import * as esbuild from "esbuild";

const LIMIT = 200_000; // bytes of the compressed page
const COPIED = ["index.html", "icon.svg"];

const page = {
  entryPoints: { app: "src/main.tsx", style: "src/style.css" },
  outdir: "dist",
  bundle: true,
  minify: true,
  format: "iife",
  target: "es2020",
  charset: "utf8",
  legalComments: "eof",
  jsx: "automatic",
  jsxImportSource: "preact",
};

function copy() {
  mkdirSync("dist", { recursive: true });
  for (const name of COPIED) copyFileSync(`src/${name}`, `dist/${name}`);
}

/* A style sheet of its own would be one more request before the first paint. */
function inlineStyle() {
  const link = '<link rel="stylesheet" href="style.css">';
  const style = readFileSync("dist/style.css", "utf8");
  const [before, after] = readFileSync("dist/index.html", "utf8").split(link);

  writeFileSync("dist/index.html", `${before}<style>${style}</style>${after}`);
  rmSync("dist/style.css");
}

function checkSize() {
  let sum = 0;
  for (const name of ["index.html", "app.js"]) {
    const size = gzipSync(readFileSync(`dist/${name}`), { level: 9 }).length;
    console.log(`${name}: ${size} bytes compressed`);
    sum += size;
  }
  console.log(`page: ${sum} bytes compressed`);
  if (sum > LIMIT) {
    console.error(`the page is larger than ${LIMIT} bytes`);
    process.exit(1);
  }
}

if (process.argv.includes("--tests")) {
  await esbuild.build({
    stdin: {
      contents: readdirSync("test")
        .filter((name) => name.endsWith(".test.ts"))
        .map((name) => `import "./test/${name}";`)
        .join("\n"),
      resolveDir: ".",
    },
    outfile: "build/tests.mjs",
    bundle: true,
    platform: "node",
    format: "esm",
    target: "node18",
  });
} else if (process.argv.includes("--watch")) {
  copy();
  await (await esbuild.context(page)).watch();
} else {
  copy();
  await esbuild.build(page);
  inlineStyle();
  checkSize();
}
