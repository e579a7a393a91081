#!/usr/bin/env node
// Does onnxruntime compute from `brim export` what `brim predict` computes? Small models are trained
// for some steps (so that running statistics are real ones), exported, and run by onnxruntime on the
// samples of the test set in batches of --batches rows; the last batch of a set is a shorter one, so
// that the batch has to be dynamic. The figure is max |onnxruntime - brim| / max(1, |brim|) over all
// outputs; it must be below --limit. fp32 on the CPU on both sides. Each model is exported several
// times: as `brim export` does by itself, with the first and last opset, and images as pixels.
//
// onnxruntime comes from npm, into a folder of your own:
//   mkdir ort && cd ort && npm install onnxruntime-node
// and then, from the repository:
//   node benchmarks/compare/onnx.mjs --brim build/bin/brim --modules ort --work scratch \
//     [--mnist DIR] [--cifar DIR] [--case NAME ...] [--batches 1,7] [--output FILE.jsonl]
// --mnist and --cifar name the real sets; without them sets of that shape are made. --work is a
// folder for data, runs and files; it must not be there yet. Exit status 1 when something disagrees.
import { spawnSync } from "node:child_process";
import fs from "node:fs";
import { createRequire } from "node:module";
import os from "node:os";
import path from "node:path";
import { parseArgs } from "node:util";
import zlib from "node:zlib";

const { values: args } = parseArgs({
  options: {
    brim: { type: "string", default: "brim" },
    modules: { type: "string", default: "." },
    work: { type: "string" },
    mnist: { type: "string" },
    cifar: { type: "string" },
    case: { type: "string", multiple: true },
    batches: { type: "string", default: "1,7" },
    rows: { type: "string", default: "40" },
    limit: { type: "string", default: "1e-4" },
    output: { type: "string" },
  },
});

// What is trained: on which data, for how many steps, with which other words.
const VIEWS = "transform.train=views | random_resized_crop(size=32) | random_flip | color_jitter";
const CASES = [
  { name: "mlp-mnist", model: "mlp(depth=3, hidden=128, dropout=0.1)", data: "digits", steps: 60 },
  { name: "mlp-layernorm-gelu", model: "mlp(depth=2, hidden=64, norm=layer, activation=gelu)",
    data: "digits", steps: 60 },
  { name: "resnet18-cifar", model: "resnet18(stem=cifar, width=16)", data: "colour", steps: 24,
    words: ["transform.train=random_crop(size=32, padding=4) | random_flip"] },
  { name: "resnet18-cifar-full", model: "resnet18(stem=cifar)", data: "colour", steps: 6 },
  { name: "resnet18-cifar-ema", model: "resnet18(stem=cifar, width=8)", data: "colour", steps: 24,
    words: ["training.ema_decay=0.9"] },
  { name: "resnet18-imagenet", model: "resnet18(stem=imagenet, width=16)", data: "images", steps: 16 },
  { name: "resnet50-imagenet", model: "resnet50(stem=imagenet, width=16)", data: "images", steps: 16,
    words: ["transform.train=normalize(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))",
      "transform.val=normalize(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))"] },
  { name: "wideresnet-16-2", model: "wideresnet(depth=16, width=2, dropout=0.1)", data: "colour",
    steps: 12 },
  { name: "transformer-regression", model: "transformer(depth=3, hidden=64, heads=4, patch=30)",
    data: "signals", steps: 40 },
  { name: "transformer-classes", model: "transformer(depth=2, hidden=16, heads=1, patch=30)",
    data: "waves", steps: 40 },
  { name: "simclr-encoder", model: "simclr(backbone=resnet18(stem=cifar, width=16), hidden=64, dim=32)",
    data: "colour", steps: 12, simclr: true, words: ["workload=contrastive", VIEWS] },
];

function die(text) {
  console.error(`onnx.mjs: ${text}`);
  process.exit(2);
}

function brim(...words) {
  const done = spawnSync(args.brim, words, { encoding: "utf8", maxBuffer: 1 << 28 });
  if (done.error) die(`${args.brim}: ${done.error.message}; --brim says where it is`);
  if (done.status) die(`brim ${words.join(" ")}: exit ${done.status}\n${done.stdout}${done.stderr}`);
  return done.stdout;
}

//---------------------------------- data ----------------------------------

function readFile(file) {
  if (fs.existsSync(file)) return fs.readFileSync(file);
  return zlib.gunzipSync(fs.readFileSync(`${file}.gz`));
}

// An IDX file: kind, rank, big-endian dimensions, then the values, big-endian too.
function readIdx(file) {
  const bytes = readFile(file);
  const kind = bytes[2], rank = bytes[3];
  const shape = [];
  for (let i = 0; i < rank; i++) shape.push(bytes.readUInt32BE(4 + 4 * i));
  const count = shape.reduce((a, b) => a * b, 1), at = 4 + 4 * rank;
  if (kind === 0x08) return { shape, data: Uint8Array.from(bytes.subarray(at, at + count)) };
  if (kind !== 0x0d) die(`${file}: IDX of kind ${kind}`);
  const data = new Float32Array(count);
  for (let i = 0; i < count; i++) data[i] = bytes.readFloatBE(at + 4 * i);
  return { shape, data };
}

// What the graph wants of images: planes. Rows of everything else are as they are.
function planes({ shape, data }) {
  if (shape.length !== 4) return { shape, data };
  const [n, h, w, c] = shape, out = new data.constructor(data.length);
  for (let i = 0; i < n; i++) {
    for (let p = 0; p < h * w; p++) {
      for (let k = 0; k < c; k++) out[(i * c + k) * h * w + p] = data[(i * h * w + p) * c + k];
    }
  }
  return { shape: [n, c, h, w], data: out };
}

// And back again.
function pixels({ shape, data }) {
  const [n, c, h, w] = shape, out = new data.constructor(data.length);
  for (let i = 0; i < n; i++) {
    for (let k = 0; k < c; k++) {
      for (let p = 0; p < h * w; p++) out[(i * h * w + p) * c + k] = data[(i * c + k) * h * w + p];
    }
  }
  return { shape: [n, h, w, c], data: out };
}

// CIFAR-10's test set: a label, then three planes of 32 x 32.
function readCifar(folder) {
  const bytes = fs.readFileSync(path.join(folder, "test_batch.bin"));
  const count = Math.floor(bytes.length / 3073), data = new Uint8Array(count * 3072);
  for (let i = 0; i < count; i++) data.set(bytes.subarray(i * 3073 + 1, (i + 1) * 3073), i * 3072);
  return { shape: [count, 3, 32, 32], data };
}

// The samples of an HDF5 file: brim writes the same as IDX, which is read here.
function readHdf5(file) {
  const folder = `${file}-idx`;
  brim("data", "convert", file, folder, "--format", "idx", "-q");
  return planes(readIdx(path.join(folder, "t10k-images-idx3-ubyte")));
}

const rows = Number(args.rows);
function make(out, ...words) {
  brim("data", "make", out, "--test-samples", String(rows), "-q", ...words);
  return out;
}

const DATA = {
  digits() {
    const at = args.mnist ?? make("digits", "--format", "idx", "--samples", "2000");
    return { at, test: readIdx(path.join(at, "t10k-images-idx3-ubyte")),
      is: args.mnist ? "MNIST, IDX" : "made, IDX" };
  },
  colour() {
    const at = args.cifar ?? make("colour", "--format", "cifar10", "--shape", "32,32,3", "--samples", "600");
    return { at, test: readCifar(at), is: args.cifar ? "CIFAR-10" : "made, CIFAR-10's format" };
  },
  images() {
    const at = make("images.h5", "--shape", "64,64,3", "--samples", "400", "--classes", "8");
    return { at, test: readHdf5(at), is: "made, HDF5 uint8 (64, 64, 3)" };
  },
  signals() {
    const at = make("signals.h5", "--shape", "600,2", "--dtype", "f32", "--targets", "4", "--samples", "1000");
    return { at, test: readHdf5(at), is: "made, HDF5 float32 (600, 2), 4 targets" };
  },
  waves() {
    const at = make("waves.h5", "--shape", "600,2", "--dtype", "f32", "--classes", "5", "--samples", "1000");
    return { at, test: readHdf5(at), is: "made, HDF5 float32 (600, 2), 5 classes" };
  },
};
const made = {};

//---------------------------------- one model ----------------------------------

// `brim predict` in JSON lines: one array of numbers a row.
function predict(checkpoint, data, key, ...words) {
  const file = `${key}.jsonl`;
  brim("predict", checkpoint, "--data-path", data.at, "--split", "test", "--device", "cpu",
    "--output", file, "-q", ...words);
  const lines = fs.readFileSync(file, "utf8").trim().split("\n").slice(0, rows);
  const out = lines.map((line) => JSON.parse(line)[key]);
  fs.rmSync(file);
  return out;
}

function wanted(c, checkpoint, data) {
  if (c.simclr) {
    return { projection: predict(checkpoint, data, "embedding"),
      features: predict(checkpoint, data, "features", "--features") };
  }
  if (data.is.includes("targets")) return { output: predict(checkpoint, data, "values") };
  return { logits: predict(checkpoint, data, "logits", "--logits") };
}

function tensor(ort, test, from, to) {
  const size = test.data.length / test.shape[0];
  return new ort.Tensor(test.data instanceof Uint8Array ? "uint8" : "float32",
    test.data.slice(from * size, to * size), [to - from, ...test.shape.slice(1)]);
}

// Largest difference of each output; a missing, misshapen or not finite one is a NaN.
async function compare(ort, session, test, want, batch) {
  const worst = {}, count = Object.values(want)[0].length;
  for (const name of Object.keys(want)) worst[name] = 0;
  for (let from = 0; from < count; from += batch) {
    const to = Math.min(from + batch, count);
    const got = await session.run({ input: tensor(ort, test, from, to) });
    for (const name of Object.keys(want)) {
      const flat = want[name].slice(from, to).flat(), have = got[name];
      if (!have || have.dims[0] !== to - from || have.data.length !== flat.length) worst[name] = NaN;
      for (let i = 0; i < flat.length; i++) {
        // Math.max keeps a NaN
        const gap = Math.abs(have?.data[i] - flat[i]) / Math.max(1, Math.abs(flat[i]));
        worst[name] = Math.max(worst[name], gap);
      }
    }
  }
  return worst;
}

// The ways a model is exported: words of `brim export`, and whether images are fed as pixels.
const EXPORTS = {
  plain: { words: [] },
  "opset 13": { words: ["--opset", "13"] },
  "opset 21": { words: ["--opset", "21"] },
  nhwc: { words: ["--layout", "nhwc"], pixels: true },
};

function round(by) {
  return Object.fromEntries(Object.entries(by).map(([k, v]) => [k, Number(v.toPrecision(3))]));
}

async function checkExports(ort, c, checkpoint, data, want) {
  const by = {}, file = `${c.name}.onnx`;
  let worst = 0, told;
  for (const [name, how] of Object.entries(EXPORTS)) {
    if (how.pixels && data.test.shape.length !== 4) continue;
    const line = brim("export", checkpoint, "--output", file, "--json", ...how.words).trim();
    told ??= JSON.parse(line.split("\n").pop());
    const session = await ort.InferenceSession.create(file, { executionProviders: ["cpu"] });
    const test = how.pixels ? pixels(data.test) : data.test;
    for (const batch of args.batches.split(",").map(Number)) {
      const gaps = await compare(ort, session, test, want, batch);
      by[`${name}, batch ${batch}`] = round(gaps);
      worst = Math.max(worst, ...Object.values(gaps));
    }
    await session.release();
  }
  return { told, by, worst };
}

async function check(ort, c, versions) {
  const data = (made[c.data] ??= DATA[c.data]());
  brim("train", `model=${c.model}`, ...(c.words ?? []), "--data-path", data.at, "--output-dir", c.name,
    "--batch-size", "32", "--max-steps", String(c.steps), "--device", "cpu", "--precision", "fp32", "-q");
  const checkpoint = path.join(c.name, "last.safetensors");
  const want = wanted(c, checkpoint, data);
  const result = {
    benchmark: "onnx", ...versions, case: c.name, model: c.model, data: data.is, steps: c.steps,
    rows: Object.values(want)[0].length,
    outputs: Object.fromEntries(Object.entries(want).map(([k, v]) => [k, v[0].length])),
    largest_output: Number(Math.max(...Object.values(want).flat(2).map(Math.abs)).toPrecision(4)),
    limit: Number(args.limit),
  };
  try {
    const { told, by, worst } = await checkExports(ort, c, checkpoint, data, want);
    Object.assign(result, { parameters: told.parameters, opset: told.opset, differences: by,
      worst: Number(worst.toPrecision(3)),
      result: worst <= Number(args.limit) ? "agrees" : "differs" });
  } catch (e) {  // onnxruntime does not load it, or does not run it
    Object.assign(result, { result: "fails", error: e.message });
  }
  const line = JSON.stringify(result);
  console.log(line);
  return { line, good: result.result === "agrees" };
}

// ARM machines do not tell node what they are.
function processor() {
  const model = os.cpus()[0]?.model;
  if (model && model !== "unknown") return model;
  const told = spawnSync("lscpu", { encoding: "utf8", env: { ...process.env, LC_ALL: "C" } }).stdout;
  return /Model name:\s*(.+)/.exec(told ?? "")?.[1] ?? os.arch();
}

async function main() {
  if (!args.work) die("--work FOLDER: where data and runs go");
  if (fs.existsSync(args.work)) die(`${args.work} is there already; --work wants a new folder`);
  const require = createRequire(path.join(path.resolve(args.modules), "x.js"));
  let ort;
  try {
    ort = require("onnxruntime-node");
  } catch (e) {
    die(`no onnxruntime-node in ${args.modules} (${e.message.split("\n")[0]}); npm install onnxruntime-node there`);
  }
  for (const key of ["brim", "mnist", "cifar", "output"]) {
    if (args[key]?.includes("/") || (args[key] && key !== "brim")) args[key] = path.resolve(args[key]);
  }
  fs.mkdirSync(args.work, { recursive: true });
  process.chdir(args.work);
  const versions = { brim: brim("--version").trim().split(" ").pop(),
    onnxruntime: ort.env.versions.node, device: processor() };
  const chosen = CASES.filter((c) => !args.case || args.case.includes(c.name));
  if (!chosen.length) die(`no such case; there are ${CASES.map((c) => c.name).join(", ")}`);
  const lines = [];
  let good = true;
  for (const c of chosen) {
    const r = await check(ort, c, versions);
    lines.push(r.line);
    good &&= r.good;
  }
  if (args.output) fs.writeFileSync(args.output, `${lines.join("\n")}\n`);
  process.exitCode = good ? 0 : 1;
}

await main();
