// The doctor: one configuration, from fields, menus or pasted JSON, and everything that follows from it.
// `doctor` is Python's own code, translated (translate.py): this view asks it, and decides nothing.
import { el, assign, say, opening, settle, linkState, fragment, growOnly, onSite, perFrame, TEXT_LIMIT } from "./kit.js";

const KINDS = { config: "text" };
const BADGES = { reject: "✗", warn: "▲", ok: "✓", incomplete: "○", unreadable: "?" };
const SIGNS = { error: "✗", warning: "▲", note: "●" };
/** Longer JSON than this is no line to paste into a terminal. */
const LINE_LIMIT = 700;
/** Characters, levels and digits that a configuration has at most; the last two are the command's. */
const LONGEST = 1_000_000;
const DEEPEST = 200;
const DIGITS = 400;
/** What a derived value means, where its name does not tell. */
const MEANS = {
  scale: "factor of the scores, before softmax",
  decode_intensity: "FLOPs per byte read, one token at a time",
  prefill_intensity: "FLOPs per byte moved, the whole prompt at once",
  backend: "what computes the attention call",
  d_kernel: "columns of a head as the kernel gets them",
  bucket: "columns that the compiled kernel works on",
  useful_share: "part of its work that is not padding",
};

/** Python's json.dumps, in one line. No text in JSON holds a line end. */
const line = (value) => doctor.dumps(value, 0).replace(/,\n/g, ", ").replace(/\n/g, "");
/** JSON for a reader: in one line, which wraps, where that is short. */
const written = (value) => { const one = line(value); return one.length <= 240 ? one : doctor.dumps(value); };

/** Where the string that begins at `at` ends: [place behind it, ""], or [place of the fault, what is expected there]. */
function stringEnd(text, at) {
  for (let i = at + 1; ; i++) {
    const code = text.charCodeAt(i);
    if (code === 34) return [i + 1, ""];
    if (!(code >= 32)) return [i, 'a closing "']; // a line end, another control character, or the end of the text
    if (code !== 92) continue;
    const next = text[i + 1] ?? "";
    if (next && '"\\/bfnrtu'.includes(next) && (next !== "u" || /^[\da-fA-F]{4}$/.test(text.slice(i + 2, i + 6)))) i += next === "u" ? 5 : 1;
    else return [i, "an escape that JSON has"];
  }
}

/**
 * Where a text stops being JSON: {at: offset, expected: words}; {wrong: message} where it is JSON that no configuration is;
 * null where nothing is wrong. Browsers word this differently, and some give no position. Two equal keys in one object count, too:
 * Python's command refuses them. One pass by index, so that it takes no time and no stack that the text can drive up.
 */
export function misplaced(text) {
  const number = /-?(?:0|[1-9]\d*)(\.\d+)?([eE][-+]?\d+)?(?![\w.])/y;
  const word = /(?:true|false|null)\b/y;
  const open = []; // for each object a Set of its keys, for each list null
  let due = "value";
  for (let at = 0; ;) {
    while (" \t\n\r".includes(text[at] ?? "x")) at++;
    const c = text[at];
    const inside = open.at(-1);
    const words = { value: "a value", "value or ]": "a value or ]", "key or }": 'a key in double quotes or }', key: "a key in double quotes", ":": "a colon", end: "nothing more",
      next: inside ? "a comma or }" : "a comma or ]" }[due];
    if (c === undefined) return due === "end" ? null : { at, expected: words };
    if ((c === "{" || c === "[") && due.startsWith("value")) {
      if (open.length === DEEPEST) return { wrong: `This is nested more than ${DEEPEST} levels deep. A configuration is one object.` };
      open.push(c === "{" ? new Set() : null);
      due = c === "{" ? "key or }" : "value or ]";
      at++;
      continue;
    }
    if (c === ":" && due === ":") { due = "value"; at++; continue; }
    if (c === "," && due === "next") { due = inside ? "key" : "value"; at++; continue; }
    if (c === "}" ? due === "key or }" || (due === "next" && inside) : c === "]" && (due === "value or ]" || (due === "next" && !inside))) {
      open.pop();
      at++;
    } else if (c === '"' && /^(value|key)/.test(due)) {
      const [end, expected] = stringEnd(text, at);
      if (expected) return { at: end, expected };
      if (due.startsWith("key")) {
        const raw = text.slice(at + 1, end - 1);
        const key = raw.includes("\\") ? JSON.parse(`"${raw}"`) : raw;
        if (inside.has(key)) return { at, expected: "a key that is not there yet" };
        inside.add(key);
        due = ":";
        at = end;
        continue;
      }
      at = end;
    } else if (due.startsWith("value")) {
      number.lastIndex = word.lastIndex = at;
      const found = number.exec(text) ?? word.exec(text);
      if (!found) return { at, expected: words };
      const digits = found[0].length;
      if (/^-?\d/.test(found[0]) && !found[1] && !found[2] && digits > DIGITS) {
        return { wrong: `A number of ${digits} digits is no value of a configuration. Give one of at most 8.` };
      }
      at += digits;
    } else return { at, expected: words };
    due = open.length ? "next" : "end";
  }
}

/** What is wrong with a text that cannot be a configuration, in one line with the place; "" where it may be one. */
export function complaint(text) {
  if (text.length > LONGEST) {
    const size = text.length / 1e6;
    return `This is ${size < 10 ? Math.ceil(10 * size) / 10 : Math.round(size)} MB; a configuration is at most 1 MB.`;
  }
  const found = misplaced(text);
  if (!found) return "";
  if (found.wrong) return found.wrong;
  const before = text.slice(0, found.at).split("\n");
  const near = text.slice(found.at, found.at + 12).replace(/\s+/g, " ").trim();
  const what = found.expected.startsWith("a key that") ? "this key is there twice" : `${found.expected} is expected`;
  const hint = /^(?:['‘’“”]|(?:True|False|None)\b)/.test(near) ? " JSON wants double quotes, true, false, null." : "";
  return `This is not JSON: ${what} at line ${before.length}, column ${before.at(-1).length + 1}, ${near ? `at ‹${near}›` : "where it ends"}.${hint}`;
}

/** What the words of a suggestion may say of a key that takes no number. */
const WORDS = "none|[Tt]rue|[Ff]alse|mha|gqa|mqa|mla|bf16|fp\\d+|int8|sdpa|eager|flex_attention|flash_attention_2|vllm|hf|ulysses";

/**
 * The changes that a suggestion names, each a list of [key, value], undefined to take the key away. Only what it says for certain:
 * its beginning must be read to the end of the clause, or there are none.
 * "n_heads = 25, n_layers = 48." is one change, "n_heads = 8 or 16." are two, "d_head = 96 and d_head_v = 96 or d_head = 128 and ..." are two.
 */
export function changes(text, known, object = {}) {
  const dropped = /^Drop (\w+)[:.,]/.exec(text)?.[1];
  if (known.includes(dropped)) return [[[dropped, undefined]]];
  const unpadded = /^Leave d_head = \d+ unpadded\./.test(text);
  if (unpadded) return [[["pad_d_head_to", undefined]]];
  const instead = /^If it is .{3,20}, give (n_heads|d_head)(?: = (\d+))?(?: \(and (\w+) = (\d+)\))? instead\.$/.exec(text);
  if (instead) {
    const [, key, value = object.attention_head_dim, other, second] = instead;
    if (!/^\d{1,8}$/.test(String(value)) || (other && !known.includes(other))) return [];
    return [[[key, Number(value)], ...(other ? [[other, Number(second)]] : []), ["attention_head_dim", undefined]]];
  }
  const start = /^(?:Use |Give |Set |Pass |Or )?(?=\w+ = )/.exec(text);
  if (!start) return [];
  const part = new RegExp(`(?:(\\w+) = )?(\\d+(?:\\.\\d+)*|(?:${WORDS})\\b)(?: \\([^()]*(?:\\([^()]*\\)[^()]*)*\\)|, by \\w+\\(\\d*\\))?`, "y");
  const more = /(, and | and |, or | or |, )(?=\w+ = |\d+(?! more\b))/y;
  const stop = /$|[.:;](?: |$)|, (?:as|for|given|which)\b| (?:fills?|is|are|has|have|with|turns|at most|or more|and \d+ more)\b/y;
  const found = [];
  let joint = "";
  for (let at = start[0].length; ;) {
    part.lastIndex = at;
    const [whole, key, value] = part.exec(text) ?? [];
    if (!whole || !(key ? known.includes(key) : joint && /^\d/.test(value))) return [];
    const last = found.at(-1);
    const pair = [key ?? last?.[0][0], meant(key ?? last?.[0][0], value)];
    if (!key) {
      if (last.length > 1) return [];
      found.push([pair]);
    } else if (!last || joint.includes("or")) found.push([pair]);
    else {
      if (found.length > 1 && !found.at(-2).some(([other]) => other === key)) return [];
      last.push(pair);
    }
    at += whole.length;
    more.lastIndex = stop.lastIndex = at;
    joint = more.exec(text)?.[1] ?? "";
    if (!joint) return stop.test(text) ? found.slice(0, 12) : [];
    at += joint.length;
  }
}

/** A suggestion's word as JSON has it. */
function meant(key, value) {
  if (key === "torch") return value;
  if (/^\d/.test(value)) return /^\d+(\.\d+)?$/.test(value) ? Number(value) : value;
  return { none: undefined, true: true, false: false }[value.toLowerCase()] ?? (/^none$|^true$|^false$/i.test(value) ? undefined : value);
}

/** What was typed into a field, as JSON has it: a number where it is one, nothing where it is empty, else the text. */
export function typed(text) {
  const plain = text.trim();
  if (!plain) return undefined;
  const digits = /^\d{1,3}(?:([ ,_'’\u00a0\u2009\u202f])\d{3}(?:\1\d{3})*)$/.test(plain) ? plain.replace(/\D/g, "") : plain;
  if (/^-?\d{1,400}$/.test(digits)) return doctor.parse(digits.replace(/^(-?)0+(?=\d)/, "$1"));
  return /^-?\d{1,20}\.\d{1,20}$/.test(digits) ? Number(digits) : plain;
}

/** A value as a field shows it. */
const shown = (value) => (value == null ? "" : typeof value === "object" ? "see config" : String(value));
const same = (a, b) => (a ?? undefined) === (b ?? undefined) || (typeof a !== "string" && typeof b !== "string" && a != null && b != null && typeof a !== "object" && typeof b !== "object" && a == b);
const plainObject = (value) => value !== null && typeof value === "object" && !Array.isArray(value);

/** Names of public threads in a source, as links: "owner/repo#12", "owner/repo PR 12". */
export function cited(source) {
  const parts = [];
  let last = 0;
  for (const found of source.matchAll(/\b([A-Za-z][\w-]*\/[\w.-]*\w)(?:#| issue | PR )(\d{1,6})\b/g)) {
    parts.push(source.slice(last, found.index), el("a", { href: `https://github.com/${found[1]}/issues/${found[2]}` }, found[0]));
    last = found.index + found[0].length;
  }
  return [...parts, source.slice(last)];
}

function render({ model, el: host }) {
  host.classList.add("sh-view", "sh-doctor");
  const { fields, menus, cases, known, aliases, chapters, brings } =
    Object.fromEntries(["fields", "menus", "cases", "known", "aliases", "chapters", "brings"].map((name) => [name, model.get(name)]));
  // The outcome of the question takes the place of the default only, never of what a reader has written.
  const asked = opening(model, (outcome) => {
    if (model.get("config") === model.get("start")) return show(outcome);
    asked.append(el("p", {}, el("button", { type: "button", class: "sh-chip sh-show", onclick: () => show(outcome) }, "show this case")));
  });
  const show = (outcome) => { if (typeof outcome.config === "string") swap(outcome.config); assign(model, outcome); };
  const site = onSite();

  // The verdict stands above the form: on a phone it stays in sight while a field is typed.
  const badge = el("span", { class: "sh-badge", "aria-hidden": "true" });
  const verdict = el("strong");
  const said = el("span");
  const status = el("p", { class: "sh-status sh-verdict-line", tabindex: -1 }, badge, verdict, said);
  // A screen reader is told when the hand rests, not at every key.
  const heardLine = el("p", { role: "status", class: "sh-heard" });
  const lostLine = el("p", { role: "alert", class: "sh-error sh-lost", hidden: true });
  const undo = el("p", { class: "sh-undo", hidden: true }, el("button", { type: "button", class: "sh-chip", onclick: () => back() }, "Undo: back to the configuration before"));
  const note = el("p", { class: "sh-label sh-note" });
  const stale = el("p", { class: "sh-error sh-stale", hidden: true });
  const findings = el("ul", { class: "sh-findings", "aria-label": "Findings" });
  const derived = el("dl", { class: "sh-derived" });
  const derivedPart = el("div", {}, el("p", { class: "sh-head" }, "What follows; shapes are [out, in]"), derived);
  const factors = el("dl", { class: "sh-factors" });
  const factorsPart = el("div", {}, el("p", { class: "sh-head" }, "Every factor"), factors);
  const effect = el("code", { class: "sh-effect" });
  const effectPart = el("details", { class: "sh-fold" }, el("summary", {}, "All keys in effect"), el("p", { class: "sh-code" }, effect));
  const command = el("code", { class: "sh-command" });
  const terminal = el("div", {}, el("p", { class: "sh-head" }, "The same in your terminal"), el("p", { class: "sh-code" }, command));
  const copied = el("span", { class: "sh-label", "aria-live": "polite" });
  const byHand = el("textarea", { class: "sh-by-hand", readonly: true, rows: 3, hidden: true, "aria-label": "Text to copy" });
  const press = (words, text, label) => el("button", { type: "button", class: "sh-chip", "aria-label": label, onclick: () => copy(words, text()) }, words);
  const ofReport = [press("Copy report as JSON", () => line(now.report), "Copy report as JSON (copy as JSON)"), press("Copy command", () => command.textContent)];
  const report = el("div", {}, findings, derivedPart, factorsPart, effectPart);
  const tools = el("div", { class: "sh-chips", role: "group", "aria-label": "Copy" },
    ...ofReport,
    ...(site ? [press("Copy link", () => location.href.split("#")[0] + fragment(model, "doctor", KINDS))] : []), copied);
  const body = el("div", { class: "sh-result" }, undo, note, stale, report, terminal);
  host.append(body, tools, byHand, heardLine);
  host.prepend(status, lostLine);
  if (asked) host.prepend(asked);

  /** The latest text, and what is wrong with it; the last object that was read, what follows from it, and the last report. */
  let now = { text: null, wrong: "", locked: false, object: {}, effect: {}, derived: {}, report: null };
  /** A text that is no object is the reader's work: nothing but the reader's hand writes over it. */
  let reminded = false;
  const remind = () => { reminded = true; redraw(); };

  /** The text that one press replaces, and the one that takes its place: while that stands, the way back is open. */
  let former = null;
  const swap = (text) => { if (text !== model.get("config")) former = { before: model.get("config"), after: text }; };
  function back() {
    const { before } = former;
    former = null;
    toFocus = true;
    fresh();
    assign(model, { config: before });
  }
  /** Whether the button that was pressed is about to be drawn anew, and its focus with it. */
  let toFocus = false;

  async function copy(words, text) {
    byHand.hidden = true;
    const tooLong = words === "Copy link" && !text.includes("?");
    try {
      if (tooLong) throw new Error("too long");
      await navigator.clipboard.writeText(text);
      say(copied, "Copied.");
    } catch {
      say(copied, tooLong ? "This configuration is too long for a link. Copy it as text." : "Press Ctrl+C (or Cmd+C) to copy the marked text.");
      byHand.value = tooLong ? model.get("config") : text;
      byHand.hidden = false;
      byHand.focus();
      byHand.select();
    }
  }

  // ---- one configuration: the text is the truth, fields and menus are ways to read and to write it ----

  const isFile = (object) => doctor.looks_like_huggingface(object);
  const names = Object.fromEntries(Object.entries(aliases).reduce((all, [alias, key]) => { (all.get(key) ?? all.set(key, [key]).get(key)).push(alias); return all; }, new Map()));
  const own = (object, key) => (Object.hasOwn(object, key) ? object[key] : undefined);
  const spellings = (key) => (Object.hasOwn(names, key) ? names[key] : [key]);

  /** The value that the configuration itself gives for a key, under any of its names, or in a config.json. */
  function given(object, key) {
    const file = isFile(object);
    for (const name of file ? [] : spellings(key)) if (own(object, name) != null) return own(object, name);
    return file || Object.hasOwn(object, "config") ? own(now.effect, key) : undefined;
  }

  /** The configuration with some keys set, or removed where the value is undefined. */
  function put(object, values) {
    const base = isFile(object) ? doctor._apart(object) : object;
    const left = new Set(Object.keys(values).flatMap((key) => spellings(key).filter((name) => name !== key || values[key] === undefined)));
    const kept = Object.entries(base).filter(([key]) => !left.has(key)).map(([key, value]) => [key, Object.hasOwn(values, key) ? values[key] : value]);
    const added = Object.entries(values).filter(([key, value]) => value !== undefined && !kept.some(([other]) => other === key));
    return Object.fromEntries([...kept, ...added]);
  }

  const changed = (values) => written(put(now.object ?? {}, values));
  const change = (values) => assign(model, { config: changed(values) });

  /** Put a control back, once the link that has just brought its value is done: it takes none on its way. */
  const restore = (values) => queueMicrotask(() => assign(model, values()));

  /** A field was typed into. */
  function edited({ trait, key }) {
    const text = model.get(trait);
    const value = typed(text);
    const current = given(now.object ?? {}, key);
    if (same(value, current) || text === shown(current)) return;
    if (now.locked) {
      restore(() => ({ [trait]: shown(current) }));
      return void remind();
    }
    // A config.json that was pasted has the value still: the field is empty, and shows it in grey.
    if (value === undefined && isFile(now.object) && !spellings(key).some((name) => doctor._apart(now.object)[name] !== undefined)) return;
    hand = trait;
    change({ [key]: value });
    hand = null;
  }
  /** The field that is being typed into, which is not filled again while it is empty. */
  let hand = null;

  /** The option of a menu that says what the configuration says; the last one where none does. */
  function placed({ keys, options }) {
    const object = now.object ?? {};
    const at = options.findIndex(([, values]) => keys.every((key) => {
      const value = given(object, key);
      const meant = value == null ? undefined : own(now.effect, key) ?? value;
      return same(own(values, key), meant);
    }));
    return at < 0 ? options.length : at;
  }

  /** An option was picked. The last one ("see config") is for what no option says, and cannot be picked. */
  function picked(menu) {
    const at = model.get(menu.trait);
    if (at === placed(menu)) return;
    if (now.locked) remind();
    if (now.locked || at >= menu.options.length) return restore(() => ({ [menu.trait]: placed(menu) }));
    const values = Object.fromEntries(menu.keys.map((key) => [key, own(menu.options[at][1], key)]));
    // A named model brings its own numbers: those that stand there would be said to override it.
    const replaced = menu.trait === "model" && at ? Object.fromEntries(brings.map((key) => [key, undefined])) : {};
    fresh();
    if (menu.trait === "model") swap(changed({ ...replaced, ...values }));
    change({ ...replaced, ...values });
  }

  const sorted = (object) => line(Object.fromEntries(Object.entries(object).sort()));
  const wholes = cases.map(({ config }) => sorted(doctor.parse(config)));
  /** The place of the public report whose configuration this is, in whatever order its keys stand; 0 for none. */
  const current = () => (now.object ? wholes.indexOf(sorted(now.object)) + 1 : 0);
  function chosen() {
    const at = model.get("case");
    if (at === current()) return;
    if (!at) return restore(() => ({ case: current() }));
    fresh();
    swap(cases[at - 1].config);
    assign(model, { config: cases[at - 1].config });
  }

  /** Another configuration altogether: the room that the last one needed is given back. */
  const fresh = () => { body.style.minHeight = ""; };

  // ---- reading ----

  function read() {
    const whole = model.get("config");
    if (whole === now.text) return;
    const text = whole.replace(/^\uFEFF/, "");
    let object = null;
    let wrong = "";
    let told = null;
    try {
      wrong = text.trim() ? complaint(text) : "";
      if (!wrong) {
        object = text.trim() ? doctor.parse(text) : {};
        told = doctor.diagnose_plain(object);
        wrong = told.error ?? "";
      }
    } catch (error) {
      [object, told] = [null, null];
      wrong = `This cannot be read: ${error instanceof RangeError ? "it is too much for this page" : error.message}.`;
    }
    const sound = plainObject(object); // a text that is no configuration leaves the form as it was
    now = {
      text: whole, wrong, locked: !sound, report: told?.report ?? now.report, object: sound ? object : now.object,
      effect: sound ? told?.report?.config ?? {} : now.effect, derived: sound ? told?.report?.derived ?? {} : now.derived,
    };
    reminded = false;
    lostLine.hidden = true;
    host.dataset.verdict = wrong ? "unreadable" : now.report.verdict;
    for (const button of ofReport) button.disabled = Boolean(wrong); // there is no report of this text
    redraw();
    const traits = {};
    for (const { trait, key } of fields) {
      const value = given(now.object, key);
      const emptied = trait === hand && !model.get(trait).trim();
      if (!emptied && !same(typed(model.get(trait)), value)) traits[trait] = shown(value);
      // An empty field shows in grey what is in effect without it.
      traits[`${trait}_hint`] = shown(own(now.effect, key) ?? own(now.derived, key)) || "none";
    }
    for (const menu of menus) traits[menu.trait] = placed(menu);
    traits.case = current();
    assign(model, traits);
  }

  // ---- drawing: text nodes only, whatever was pasted ----

  /** A suggestion, with a button for each change that it names. */
  function way(text) {
    const buttons = changes(text, known, now.object).map((pairs) => {
      const [set, off] = [pairs.filter(([, value]) => value !== undefined), pairs.filter(([, value]) => value === undefined)];
      const words = [...set.map(([key, value]) => `${key} = ${value}`), ...off.map(([key]) => `no ${key}`)].join(", ");
      const values = Object.fromEntries(pairs);
      const act = () => { toFocus = true; swap(changed(values)); change(values); };
      return el("button", { type: "button", class: "sh-chip sh-way", "data-set": words, disabled: Boolean(now.wrong), onclick: act,
        "data-change": line(Object.fromEntries(pairs.map(([key, value]) => [key, value ?? null]))) }, set.length ? `set ${words}` : `drop ${off.map(([key]) => key).join(", ")}`);
    });
    return el("li", {}, text, ...(buttons.length ? [" ", ...buttons] : []));
  }

  function chapter(name) {
    if (!name) return [];
    const title = own(chapters, name) ?? name;
    const here = site && location.pathname.endsWith(`/${name}.html`);
    return [" ", site && !here && Object.hasOwn(chapters, name) ? el("a", { href: `${name}.html` }, `chapter: ${title}`) : el("span", {}, here ? "this chapter" : `chapter: ${title}`)];
  }

  const finding = ({ id, severity, message, suggestions, source, chapter: where }) => el("li", { "data-id": id, "data-severity": severity },
    el("p", {}, el("span", { class: "sh-sign", "aria-hidden": "true" }, SIGNS[severity] ?? "●"), el("strong", {}, `${severity}: `), message),
    ...(suggestions.length ? [el("ul", { class: "sh-ways" }, ...suggestions.map(way))] : []),
    el("p", { class: "sh-source" }, ...(source ? ["Source: ", ...cited(source), "."] : []), ...chapter(where)));

  /** A long name that may be broken at its underscores. */
  const breakable = (name) => name.split("_").flatMap((part, i) => (i ? ["_", el("wbr"), part] : [part]));

  /** A derived value: shapes as a checkpoint prints them, counts in threes, shares in percent. */
  function told(key, value) {
    if (Array.isArray(value)) return key.endsWith("_proj") || !value.length ? `[${value.join(", ")}]` : value.join(", ");
    if (typeof value === "number" && key.endsWith("share")) return `${Math.round(1000 * value) / 10} %`;
    if (typeof value === "bigint" || Number.isInteger(value)) {
      const threes = String(value).replace(/\B(?=(\d{3})+(?!\d))/g, "\u202f");
      return key.includes("bytes") && value >= 1024 ? `${threes} (${doctor.size_text(value)})` : threes;
    }
    if (typeof value === "number") return String(Number(value.toPrecision(4)));
    return value === null ? "not known" : String(value);
  }

  function draw() {
    const { report: last, wrong, object } = now;
    const incomplete = !wrong && last.verdict === "ok" && (last.derived.d_head == null || last.derived.q_proj == null);
    const state = wrong ? "unreadable" : incomplete ? "incomplete" : last.verdict;
    status.dataset.verdict = state;
    say(badge, BADGES[state] ?? "");
    const heading = last?.findings.find(({ severity }) => severity !== "note") ?? last?.findings[0];
    if (wrong) {
      say(verdict, "not readable: ");
      say(said, reminded ? `${wrong} First mend the text: until then, fields and menus change nothing.` : wrong);
    } else {
      const more = last.findings.filter(({ severity }) => severity !== "note").length - 1;
      say(verdict, `${state}: `);
      say(said, `${last.verdict === "ok" ? summary(last, incomplete) : first(heading?.message ?? "")}${more > 0 ? ` And ${more === 1 ? "1 more finding" : `${more} more findings`} below.` : ""}`);
    }
    const preset = cases[current() - 1];
    note.replaceChildren(...(preset ? [...cited(preset.note)] : []));
    note.hidden = !preset;
    stale.hidden = !(wrong && last);
    undo.hidden = former?.after !== now.text;
    say(stale, wrong && last ? "What follows is the report of the last configuration that could be read." : "");
    report.classList.toggle("sh-old", Boolean(wrong));
    report.hidden = !last;
    if (last) {
      findings.replaceChildren(...last.findings.map(finding));
      findings.hidden = !last.findings.length;
      const rows = Object.entries(last.derived);
      derived.replaceChildren(...rows.map(([key, value]) => el("div", {}, el("dt", { "data-key": key }, ...breakable(key), ...(Object.hasOwn(MEANS, key) ? [el("small", {}, MEANS[key])] : [])), el("dd", {}, told(key, value)))));
      derivedPart.hidden = !rows.length;
      factors.replaceChildren(...last.factors.flatMap(({ name, text }) => [el("dt", {}, name), el("dd", {}, text)]));
      factorsPart.hidden = !last.factors.length;
      say(effect, Object.entries(last.config).map(([key, value]) => `${key} = ${typeof value === "string" ? value : line(value)}`).join(", ") || "none");
    }
    const one = object && !wrong ? line(object) : "";
    terminal.hidden = !one;
    say(command, one.length <= LINE_LIMIT ? `python -m splitheads doctor --json '${one.replaceAll("'", "'\\''")}'` : "python -m splitheads doctor --json config.json");
    say(copied, "");
    byHand.hidden = true;
    say(hardware, `Hardware, versions, sharding${inMenus()}`);
    clearTimeout(silence);
    silence = setTimeout(() => say(heardLine, status.textContent.slice(badge.textContent.length)), heardLine.textContent ? 400 : 0);
    if (toFocus) (findings.querySelector(".sh-way") ?? status).focus();
    toFocus = false;
  }
  let silence;

  // ---- on a phone, what is seldom changed is folded away; on a wide page the fold is not shown ----

  const hardware = el("summary");
  const fold = el("details", { class: "sh-fold sh-menu-fold" }, hardware);
  const folded = menus.filter(({ trait }) => trait !== "model");
  /** What the folded menus say: " (A100, bf16)". */
  function inMenus() {
    const words = folded.map((menu) => [placed(menu), menu.options]).filter(([at]) => at > 0).map(([at, options]) => options[at]?.[0] ?? "other");
    return words.length ? ` (${words.join(", ")})` : "";
  }

  /** The first sentence: the rest stands below. */
  const first = (message) => /^.*?\.(?= [A-Z])/.exec(message)?.[0] ?? message;

  /** What is worth saying where nothing is wrong; what is missing where there are no shapes yet. */
  function summary({ derived: facts, findings: found }, incomplete) {
    const missing = incomplete && found.find(({ id }) => id === "incomplete");
    if (missing) return missing.message;
    const parts = [];
    if (facts.d_head != null) parts.push(`d_head = ${facts.d_head}`);
    if (facts.q_proj) parts.push(`q_proj ${told("q_proj", facts.q_proj)}`);
    if (facts.kv_bytes_per_token != null) parts.push(`KV cache ${doctor.size_text(facts.kv_bytes_per_token)} per token`);
    if (facts.backend) parts.push(`${facts.backend} is selected`);
    return `${parts.length ? `${parts.join(", ")}; ` : ""}${incomplete ? "too little is given for the shapes." : "nothing to warn of."}`;
  }

  const redraw = perFrame(draw);
  const heard = fields.map((field) => [`change:${field.trait}`, () => edited(field)])
    .concat(menus.map((menu) => [`change:${menu.trait}`, () => picked(menu)]), [["change:case", chosen], ["change:config", read]]);
  heard.forEach(([event, act]) => model.on(event, act));
  const unGrow = growOnly(body, status);
  read();
  draw();

  let unLink = () => {};
  settle(host, "doctor", asked).then((root) => {
    if (root !== host) (asked ?? root.firstChild)[asked ? "after" : "before"](status, lostLine);
    // The menus stay where ipywidgets has put them; the fold before them hides them (doctor.css).
    root.querySelector(".sh-menus")?.before(fold);
    // Phones: a keypad for what is a number, no capitals and no corrections in JSON.
    for (const input of root.querySelectorAll(".sh-numbers input")) Object.assign(input, { inputMode: "numeric", autocomplete: "off" });
    for (const area of root.querySelectorAll(".widget-textarea textarea")) Object.assign(area, { spellcheck: false, autocapitalize: "off" });
    const pasted = () => fresh();
    root.querySelector(".widget-textarea textarea")?.addEventListener("paste", pasted);
    unLink = linkState(model, "doctor", KINDS, {}, root, (values, lost) => {
      if (values.config !== undefined && inMenus()) fold.open = true;
      lostLine.hidden = !lost.length;
      say(lostLine, lost.length ? `The configuration in this link is too long to be read from it: ${TEXT_LIMIT} characters at most. Paste it into config.` : "");
    });
  });
  return () => {
    heard.forEach(([event, act]) => model.off(event, act));
    unGrow();
    unLink();
    asked?.remove();
    clearTimeout(silence);
    status.remove();
    lostLine.remove();
    fold.remove();
  };
}

export default { render };
