// Functions of the pages, without a browser. Values read the same as in brim's texts (the list is that of
// test_base_number.c), and findings are in the language that the reader chose. Takes the folder of the pages.
'use strict';
const fs = require('fs'), path = require('path');
const web = process.argv[2], rows = fs.readFileSync(path.join(__dirname, 'rounding.txt'), 'utf8').split('\n');

// The functions of a script by their names, without running the script.
function functions(file, names, given) {
  const text = fs.readFileSync(path.join(web, file), 'utf8');
  const found = names.map((name) => {
    const from = text.indexOf('function ' + name + '(');
    if (from < 0) throw new Error(file + ' has no function ' + name);
    let depth = 0, at = text.indexOf('{', from);
    do { depth += { '{': 1, '}': -1 }[text[at++]] || 0; } while (depth > 0);
    return text.slice(from, at);
  });
  const body = found.join('\n') + '\nreturn {' + names.join(', ') + '};';
  return new Function(...Object.keys(given), body)(...Object.values(given));
}

const names = new Map([['p1', { percent: true, digits: 1 }], ['p2', { percent: true }]]);
const brimPage = functions('page.js', ['rounded', 'number', 'percent', 'bytes', 'hasWord'], {}), rounded = brimPage.rounded;
const dashboard = functions('dashboard/base.js', ['isNumber', 'number', 'isShare', 'metric', 'bytes'], { names, dash: '-', brimPage });
const plot = functions('lab/lab_plot.js', ['format'], { brimPage });
const lab = functions('lab/lab.js', ['valueText'], { brimPage, format: plot.format });
const report = functions('report/report.js', ['msText'], { rounded });
const shown = {
  percent1: [(v) => dashboard.metric('p1', v), (v) => lab.valueText({ percent: 1 }, v)],
  percent2: [(v) => dashboard.metric('p2', v), (v) => lab.valueText({ percent: 2 }, v)],
  bytes: [dashboard.bytes, brimPage.bytes], ms: [report.msText], number: [dashboard.number],
};

let wrong = 0, count = 0;
for (const row of rows) {
  const [, kind, value, text] = /^(\w+) (\S+) (.*)$/.exec(row) || [];
  if (!kind) continue;
  for (const show of shown[kind]) {
    count++;
    if (show(Number(value)) === text) continue;
    console.log(kind + ' ' + value + ': ' + show(Number(value)) + ', not ' + text);
    wrong++;
  }
}
if (count < 40) { console.log('only ' + count + ' values'); wrong++; }

// A finding with its Korean, an old one without, and a text alone.
let language = 'en';
const h = (name, given, ...inside) => inside.flat().filter(Boolean).join(' ');
const one = functions('dashboard/one.js', ['findingsOf'], { h, t: (key) => key, brim: { language: () => language, number: String } });
const findings = [{ text: 'a', remedy: 'b', ko: { text: '가', remedy: '나' } }, { text: 'c', remedy: 'd' }, { text: 'e', remedy: 'f', ko: { text: '마' } }, 'g'];
for (const [reader, wanted] of [['en', 'a b|c d|e f|g'], ['ko', '가 나|c d|마 f|g']]) {
  language = reader;
  const got = one.findingsOf(findings).map((x) => x.trim()).join('|');
  if (got !== wanted) { console.log('findings in ' + reader + ': ' + got); wrong++; }
}
process.exitCode = wrong ? 1 : 0;
