// Builds book/_static/widgets from src/ and the packages that package-lock.json
// pins. The same sources give the same bytes on every run and in any folder.
//
//   node build.mjs                write the files
//   node build.mjs --check        build in memory, compare with the files, write nothing
//   node build.mjs --out FOLDER   write them somewhere else
//   ... --sizes                   say also what each package weighs
//   ... --metafile FILE           say also, as JSON, what esbuild read
import { build } from 'esbuild';
import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readFileSync, readdirSync, writeFileSync } from 'node:fs';
import { dirname, join, relative, resolve, sep } from 'node:path';
import { fileURLToPath } from 'node:url';
import { gzipSync } from 'node:zlib';

const here = dirname(fileURLToPath(import.meta.url));
const args = process.argv.slice(2);
const check = args.includes('--check');
const at = args.indexOf('--out');
const out = at < 0 ? join(here, '..', 'book', '_static', 'widgets') : resolve(args[at + 1]);
const modules = join(here, 'node_modules');

const fail = (message) => {
  console.error(`build: ${message}`);
  process.exit(1);
};

// ---- what is swapped for what (each file says why) -------------------------
const STAND_INS = {
  'sanitize-html': 'sanitize-html.js',
  jquery: 'jquery.js',
  underscore: 'underscore.js',
  'lodash/isEqual': 'lodash-is-equal.js',
  '@lumino/algorithm': 'lumino-algorithm.js',
  '@lumino/coreutils': 'lumino-coreutils.js',
  '@lumino/dragdrop': 'lumino-dragdrop.js',
  '@lumino/widgets': 'lumino-widgets.js',
  '@jupyter-widgets/controls': 'controls.js',
};
const used = new Set();
const standIn = (key, file) => (used.add(key), { path: join(here, 'src', 'stand-ins', file) });
const standIns = {
  name: 'stand-ins',
  setup(b) {
    b.onResolve({ filter: /^[@a-z]/ }, ({ path }) => (path in STAND_INS ? standIn(path, STAND_INS[path]) : undefined));
    b.onResolve({ filter: /^\.\/errorwidget$/ }, () => standIn('./errorwidget', 'error-widget.js'));
  },
};

// anywidget is published as an AMD module: one call of `define` with a factory that
// wants the base classes. Hand the factory over as an export, so that the page's
// own `define`, if any, is never touched. And a view that cannot be drawn is told
// so, where the original throws into the void: see `failed` in src/runtime.js.
const REWRITES = [
  ['define(["@jupyter-widgets/base"], widget_default);', 'export default widget_default;'],
  ['throwAnywidgetError(result.error);', 'view.failed(result.error);'],
  ['throwAnywidgetError(error));', 'view.failed(error));'],
  ['resolvers.reject(new Error("[anywidget] Failed to initialize model."));', 'resolvers.resolve();'],
];
const anywidget = {
  name: 'anywidget',
  setup(b) {
    b.onLoad({ filter: /[\\/]anywidget[\\/]dist[\\/]index\.js$/ }, ({ path }) => {
      let contents = readFileSync(path, 'utf8');
      for (const [from, to] of REWRITES) {
        if (contents.split(from).length !== 2) fail(`anywidget no longer has, exactly once: ${from}`);
        contents = contents.replace(from, to);
      }
      return { contents, loader: 'js' };
    });
  },
};

// The stylesheet travels in the script as a string. Rules for classes that the
// script never names (controls left out, names kept for older releases) go.
const prune = (css, names) => {
  let kept = '';
  let from = 0;
  for (let i = 0, depth = 0; i < css.length; i++) {
    if (css[i] === '{') depth++;
    else if (css[i] === '}' && --depth === 0) {
      const rule = css.slice(from, i + 1);
      const brace = rule.indexOf('{');
      from = i + 1;
      if (rule.startsWith('@')) kept += rule;
      else {
        const live = split(rule.slice(0, brace)).filter((selector) =>
          (selector.match(/\.-?[_a-zA-Z][\w-]*/g) || []).every((name) => names.has(name.slice(1))));
        if (live.length) kept += live.join(',') + rule.slice(brace);
      }
    }
  }
  return kept;
};
const split = (selectors) => {
  const list = [''];
  let depth = 0;
  for (const c of selectors) {
    if (c === '(') depth++;
    if (c === ')') depth--;
    if (c === ',' && !depth) list.push('');
    else list[list.length - 1] += c;
  }
  return list;
};

const MARK = '/*splitheads-css*/';
const common = { bundle: true, write: false, metafile: true, legalComments: 'none', charset: 'utf8', absWorkingDir: here, logLevel: 'warning' };
const js = await build({
  ...common,
  entryPoints: ['src/runtime.js'],
  outfile: 'runtime.js',
  format: 'iife',
  target: 'es2020',
  minify: true,
  platform: 'browser',
  // No module of the bundle may see or use a page's RequireJS.
  define: { define: 'undefined' },
  tsconfigRaw: { compilerOptions: { target: 'es2020', useDefineForClassFields: false, experimentalDecorators: true } },
  plugins: [standIns, anywidget, {
    name: 'css-mark',
    setup(b) {
      b.onLoad({ filter: /runtime\.css$/ }, () => ({ contents: `export default ${JSON.stringify(MARK)};`, loader: 'js' }));
    },
  }],
});
for (const key of [...Object.keys(STAND_INS), './errorwidget']) if (!used.has(key)) fail(`the stand-in for ${key} is no longer used`);
const sheet = await build({ ...common, entryPoints: ['src/runtime.css'], outfile: 'runtime.css', minify: true, loader: { '.svg': 'dataurl' } });

const script = js.outputFiles[0].text;
// Class names as the script may write them: any quoted word, and noUiSlider's,
// which are put together from a prefix.
const names = new Set();
for (const [word] of script.matchAll(/[\w-]+/g)) names.add(word).add(`noUi-${word}`);
const css = prune(sheet.outputFiles[0].text.trim(), names);
if (/url\((?!["']?data:)|@import/.test(css)) fail('the stylesheet asks for a file');
const quoted = JSON.stringify(MARK);
if (script.split(quoted).length !== 2) fail('the place of the stylesheet in the script is not there');
const runtime = script.replace(quoted, () => JSON.stringify(css));

// ---- licences --------------------------------------------------------------
const inputs = { ...js.metafile.inputs, ...sheet.metafile.inputs };
const packages = new Set();
for (const input of Object.keys(inputs)) {
  const found = /node_modules\/((?:@[^/]+\/)?[^/]+)\/(?!.*node_modules\/)/.exec(input);
  if (found) packages.add(found[1]);
}
// Published inside anywidget's one file.
for (const name of ['@lukeed/uuid', 'solid-js']) packages.add(name);

const read = (...path) => readFileSync(join(modules, ...path), 'utf8').replace(/\r\n/g, '\n').trim();
const JUPYTER = read('@jupyter-widgets', 'schema', 'LICENSE');
const between = (text, from, to) => {
  const a = text.indexOf(from);
  const b = text.indexOf(to, a);
  if (a < 0 || b < 0) fail(`no licence text from "${from}"`);
  return text.slice(a, b).trim();
};
const LUMINO = between(read('@jupyter-widgets', 'controls', 'css', 'lumino.css'), 'Copyright (c) 2019 Project Jupyter', '*/');
const licenceOf = (name) => {
  const file = readdirSync(join(modules, name)).filter((f) => /^(licen[cs]e|copying)(\.|$)/i.test(f)).sort()[0];
  if (file) return read(name, file);
  // These come from one repository each and are published without its licence file.
  if (name.startsWith('@jupyter-widgets/')) return JUPYTER;
  if (name.startsWith('@lumino/')) return LUMINO;
  return fail(`${name} has no licence file`);
};
const also = {
  '@jupyter-widgets/base': ['This package holds changed parts of Backbone and of Backbone.NativeView:',
    between(read('@jupyter-widgets', 'base', 'lib', 'backbone-patch.js'), 'Copyright (c) 2010-2015 Jeremy', '*/'),
    between(read('@jupyter-widgets', 'base', 'lib', 'nativeview.js'), '(c) 2015 Adam Krebs', '*/')],
  '@jupyter-widgets/controls': ['This package holds changed parts of Lumino and of noUiSlider:', LUMINO,
    between(read('@jupyter-widgets', 'controls', 'css', 'nouislider.css'), 'MIT License', '*/')],
};
const rule = `${'-'.repeat(78)}\n`;
const licences = [`runtime.js holds code of these packages, unchanged but for what js/src/stand-ins
leaves out or replaces, and for anywidget's last line and its answers to errors (js/build.mjs).\n`];
for (const name of [...packages].sort()) {
  const { version, license } = JSON.parse(read(name, 'package.json'));
  licences.push([`${rule}${name} ${version} (${license})\n${rule}`, licenceOf(name), ...(also[name] || [])].join('\n\n').replace(`${rule}\n\n`, `${rule}\n`) + '\n');
}

// ---- the manifest ties sources and outputs together -------------------------
const sha256 = (data) => createHash('sha256').update(data).digest('hex');
const walk = (folder) => readdirSync(folder, { withFileTypes: true })
  .flatMap((e) => (e.isDirectory() ? walk(join(folder, e.name)) : [join(folder, e.name)]));
const sources = ['build.mjs', 'package.json', 'package-lock.json', ...walk(join(here, 'src')).map((f) => relative(here, f).split(sep).join('/'))].sort();
const files = { 'runtime.js': runtime.trimEnd() + '\n', 'THIRD-PARTY-LICENSES.txt': licences.join('\n') };
const gzip = (data) => gzipSync(data, { level: 9 }).length;
files['manifest.json'] = JSON.stringify({
  about: 'Written by js/build.mjs: SHA-256 of every source and every output.',
  sources: Object.fromEntries(sources.map((f) => [`js/${f}`, sha256(readFileSync(join(here, f)))])),
  outputs: Object.fromEntries(Object.keys(files).sort().map((f) => [f, sha256(files[f])])),
  packages: Object.fromEntries([...packages].sort().map((p) => [p, JSON.parse(read(p, 'package.json')).version])),
}, null, 2) + '\n';

for (const [name, text] of Object.entries(files)) {
  if (text.includes(here)) fail(`${name} holds the path of the folder it was built in`);
}
if (check) {
  const stale = Object.keys(files).filter((f) => !existsSync(join(out, f)) || readFileSync(join(out, f), 'utf8') !== files[f]);
  if (stale.length) fail(`${stale.join(', ')} ${stale.length > 1 ? 'are' : 'is'} not what the sources give; run: npm run build`);
  console.log('book/_static/widgets is what the sources give');
} else {
  mkdirSync(out, { recursive: true });
  for (const [name, text] of Object.entries(files)) writeFileSync(join(out, name), text);
  console.log(`runtime.js ${Buffer.byteLength(files['runtime.js'])} bytes, ${gzip(files['runtime.js'])} gzipped; stylesheet in it ${css.length}, ${gzip(css)} gzipped`);
}
if (args.includes('--metafile')) writeFileSync(args[args.indexOf('--metafile') + 1], JSON.stringify(Object.keys(inputs).sort()));
if (args.includes('--sizes')) {
  const sizes = {};
  for (const [file, { bytesInOutput }] of Object.entries(Object.values(js.metafile.outputs)[0].inputs)) {
    const found = /node_modules\/((?:@[^/]+\/)?[^/]+)/.exec(file);
    sizes[found ? found[1] : file] = (sizes[found ? found[1] : file] || 0) + bytesInOutput;
  }
  for (const [name, bytes] of Object.entries(sizes).sort((a, b) => b[1] - a[1])) console.log(String(bytes).padStart(8), name);
}
