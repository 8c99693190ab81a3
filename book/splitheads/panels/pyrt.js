// What translated Python needs of Python (see translate.py): dictionaries, truth, whole numbers of any size, text.
// Whole numbers are JavaScript numbers while they are exact, and BigInts beyond 2 ** 53; a float up to there that is whole
// counts as a whole number. None is null; tuples are arrays. translate.py leaves out what a page does not call: declarations,
// and entries of the tables, which are told apart by their indentation. No template stands inside another here, because the
// minifier takes such a one apart.

class PyError extends Error {
  constructor(message = "", facts = {}) {
    super(message);
    Object.assign(this, facts);
  }
}
class Exception extends PyError {}
class ValueError extends Exception {}
class TypeError_ extends Exception {}
class LookupError extends Exception {}
class KeyError extends LookupError {}
class IndexError extends LookupError {}
class AssertionError extends Exception {}
class FileNotFoundError extends Exception {}
const RecursionError = RangeError; // what JavaScript throws where the stack is used up

class Dict {
  #pairs = new Map();
  static key = (key) => (Array.isArray(key) ? "\u0000" + JSON.stringify(key, (_, one) => (typeof one === "bigint" ? `\u0000${one}` : one)) : key);
  constructor(pairs = []) { for (const [key, value] of pairs) this.set(key, value); }
  has(key) { return this.#pairs.has(Dict.key(key)); }
  at(key) { return this.#pairs.get(Dict.key(key))[1]; }
  set(key, value) { this.#pairs.set(Dict.key(key), [this.has(key) ? this.#pairs.get(Dict.key(key))[0] : key, value]); }
  drop(key) { this.#pairs.delete(Dict.key(key)); }
  pairs() { return [...this.#pairs.values()].map(([key, value]) => [key, value]); }
  get length() { return this.#pairs.size; }
}

class Range {
  constructor(start, stop, step) { Object.assign(this, { start, stop, step }); }
  get length() { return Math.max(0, Math.ceil((this.stop - this.start) / this.step)); }
  *[Symbol.iterator]() { for (let i = 0; i < this.length; i++) yield this.start + i * this.step; }
}

const $ = (() => {
  const big = (x) => typeof x === "bigint";
  const isInt = (x) => big(x) || Number.isSafeInteger(x);
  const isNumber = (x) => typeof x === "number" || typeof x === "boolean" || big(x);
  /** A whole number as a number where that is exact. */
  const small = (x) => (x >= -9007199254740991n && x <= 9007199254740991n ? Number(x) : x);
  const num = (x) => (typeof x === "boolean" ? Number(x) : x);

  function arithmetic(exact, inexact) {
    return (a, b) => {
      [a, b] = [num(a), num(b)];
      if (!big(a) && !big(b)) {
        const found = inexact(a, b);
        if (Number.isSafeInteger(found) || !(isInt(a) && isInt(b))) return found;
      }
      if (!isInt(a) || !isInt(b)) return inexact(Number(a), Number(b));
      return small(exact(BigInt(a), BigInt(b)));
    };
  }
  const plus = arithmetic((a, b) => a + b, (a, b) => a + b);
  const times = arithmetic((a, b) => a * b, (a, b) => a * b);
  const sub = arithmetic((a, b) => a - b, (a, b) => a - b);
  const nonzero = (b) => { if (num(b) == 0) throw new ValueError("division by zero"); };
  /** The remainder has the sign of b. */
  const rest = (a, b) => { const left = a % b; return left != 0 && left < 0 !== b < 0 ? left + b : left; };
  const modulo = arithmetic(rest, rest);
  const floordiv = arithmetic(
    (a, b) => (a - rest(a, b)) / b,
    (a, b) => (isInt(a) && isInt(b) ? (a - rest(a, b)) / b : Math.round((a - rest(a, b)) / b)));
  /** a / b, rounded once, as Python divides whole numbers. */
  function divide(a, b) {
    if (!(big(a) || big(b)) || !isInt(a) || !isInt(b)) return Number(a) / Number(b);
    const [over, under] = [BigInt(a), BigInt(b)];
    const [top, bottom] = [over < 0n ? -over : over, under < 0n ? -under : under];
    const shift = Math.max(0, 66 + bottom.toString(2).length - top.toString(2).length);
    const [scaled, width] = [top << BigInt(shift), 2 ** -shift];
    // The last bit stands for all that is left over, so that the one rounding below goes the right way.
    const whole = Number((scaled / bottom) | (scaled % bottom ? 1n : 0n)) * width;
    return over < 0n === under < 0n ? whole : -whole;
  }
  const power = arithmetic((a, b) => a ** b, (a, b) => a ** b);

  function add(a, b) {
    if (typeof a === "string") return a + b;
    return Array.isArray(a) ? [...a, ...iter(b)] : plus(a, b);
  }
  function mul(a, b) {
    if (typeof a === "string") return a.repeat(Math.max(0, b));
    if (Array.isArray(a)) return Array.from({ length: b }, () => a).flat();
    return times(a, b);
  }

  function iter(x) {
    if (typeof x === "string") return Array.from(x);
    return x instanceof Dict ? x.pairs().map(([key]) => key) : x;
  }
  const list = (x) => (x === undefined ? [] : [...iter(x)]);
  const len = (x) => (typeof x === "string" ? Array.from(x).length : x.length);

  /** Truth as Python has it. */
  function t(x) {
    if (x == null) return false;
    if (typeof x === "object") return "length" in x ? x.length > 0 : true;
    return Boolean(x);
  }

  function eq(a, b) {
    if (a == null || b == null) return a == b;
    if (isNumber(a) && isNumber(b)) return num(a) == num(b);
    if (Array.isArray(a) && Array.isArray(b)) return a.length === b.length && a.every((one, i) => eq(one, b[i]));
    if (a instanceof Dict && b instanceof Dict) {
      return a.length === b.length && a.pairs().every(([key, value]) => b.has(key) && eq(value, b.at(key)));
    }
    if (typeof a === "object" && typeof b === "object" && a.constructor === b.constructor) {
      return Object.keys(a).every((key) => eq(a[key], b[key]));
    }
    return a === b;
  }
  /** Below zero, zero or above: a against b. Text goes by code points. */
  function order(a, b) {
    if (Array.isArray(a)) {
      for (let i = 0; i < Math.min(a.length, b.length); i++) if (!eq(a[i], b[i])) return order(a[i], b[i]);
      return a.length - b.length;
    }
    if (typeof a === "string") return order2(Array.from(a, (c) => c.codePointAt(0)), Array.from(b, (c) => c.codePointAt(0)));
    if (!isNumber(a) || !isNumber(b)) throw new TypeError_("these values have no order");
    return order2([num(a)], [num(b)]);
  }
  function order2(a, b) {
    for (let i = 0; i < Math.min(a.length, b.length); i++) if (a[i] != b[i]) return a[i] < b[i] ? -1 : a[i] > b[i] ? 1 : NaN;
    return a.length - b.length;
  }
  const lt = (a, b) => order(a, b) < 0;
  const le = (a, b) => order(a, b) <= 0;
  const gt = (a, b) => order(a, b) > 0;
  const ge = (a, b) => order(a, b) >= 0;

  function has(box, x) {
    if (typeof box === "string") return box.includes(x);
    return box instanceof Dict ? box.has(x) : [...iter(box)].some((one) => eq(one, x));
  }
  function item(x, i) {
    if (x instanceof Dict) {
      if (!x.has(i)) throw new KeyError(repr(i));
      return x.at(i);
    }
    const found = (typeof x === "string" ? Array.from(x) : x instanceof Range ? [...x] : x).at(Number(i));
    if (found === undefined) throw new IndexError("index out of range");
    return found;
  }
  function set(x, key, value) {
    if (x instanceof Dict) x.set(key, value);
    else if (Array.isArray(x)) x[key < 0 ? x.length + key : key] = value;
    else x[key] = value;
  }
  function slice(x, from, to) {
    const cut = (typeof x === "string" ? Array.from(x) : [...iter(x)]).slice(from ?? undefined, to ?? undefined);
    return typeof x === "string" ? cut.join("") : cut;
  }

  // Text.
  function float(x) {
    if (!Number.isFinite(x)) return Number.isNaN(x) ? "nan" : x > 0 ? "inf" : "-inf";
    const size = Math.abs(x);
    const text = size >= 1e16 || (size && size < 1e-4) ? x.toExponential() : String(x); // where Python changes the form
    return text.replace(/e([+-])(\d)$/, "e$10$2");
  }
  function str(x) {
    if (typeof x === "string") return x;
    if (x instanceof PyError) return x.message;
    return typeof x?.__str__ === "function" ? x.__str__() : repr(x);
  }
  function repr(x) {
    if (x == null) return "None";
    if (typeof x === "boolean") return x ? "True" : "False";
    if (typeof x === "string") return quoted(x);
    if (isNumber(x)) return isInt(x) ? BigInt(x).toString() : float(x);
    if (x instanceof Dict) return `{${x.pairs().map((pair) => pair.map(repr).join(": ")).join(", ")}}`;
    return `[${list(x).map(repr).join(", ")}]`;
  }
  function quoted(text) {
    const mark = text.includes("'") && !text.includes('"') ? '"' : "'";
    const inside = Array.from(text, (c) => {
      if (c === mark || c === "\\") return `\\${c}`;
      const short = { "\n": "\\n", "\r": "\\r", "\t": "\\t" }[c];
      if (short) return short;
      const code = c.codePointAt(0);
      if (c === " " || !/[\p{C}\p{Z}]/u.test(c)) return c;
      if (code < 256) return `\\x${code.toString(16).padStart(2, "0")}`;
      return code < 65536 ? `\\u${code.toString(16).padStart(4, "0")}` : `\\U${code.toString(16).padStart(8, "0")}`;
    });
    return mark + inside.join("") + mark;
  }
  const pick = (x, first, last) => Array.from(x).slice(0, first).join("") + (last ? Array.from(x).slice(-last).join("") : "");
  /** reprlib's short repr, as partition._show has it, and record._show with `most` = 60. */
  function brief(x, most = 30, level = 6) {
    if (typeof x === "string") {
      // 30 is reprlib's own limit: its __init__ sets it over the class's.
      const whole = quoted(pick(x, most));
      if (len(whole) <= most) return whole;
      const [first, last] = [Math.floor((most - 3) / 2), Math.ceil((most - 3) / 2)];
      const cut = quoted(len(x) < first + last ? pick(x, first) + slice(x, Math.max(0, len(x) - last)) : pick(x, first, last));
      return `${pick(cut, first)}...${slice(cut, -last)}`;
    }
    if (isInt(x)) {
      // Python counts the digits by the bits.
      const bits = (x < 0 ? -BigInt(x) : BigInt(x)).toString(2).length;
      const about = Math.floor(bits * 0.30103) + 1;
      return about <= 20 ? BigInt(x).toString() : `<integer of about ${about} digits>`;
    }
    if (Array.isArray(x)) {
      if (level <= 0 && x.length) return "[...]";
      const parts = x.slice(0, 6).map((one) => brief(one, most, level - 1));
      return `[${[...parts, ...(x.length > 6 ? ["..."] : [])].join(", ")}]`;
    }
    if (x instanceof Dict) {
      if (!x.length) return "{}";
      if (level <= 0) return "{...}";
      const keys = x.pairs().map(([key]) => key).sort(order);
      const parts = keys.slice(0, 4).map((key) => `${brief(key, most, level - 1)}: ${brief(x.at(key), most, level - 1)}`);
      return `{${[...parts, ...(keys.length > 4 ? ["..."] : [])].join(", ")}}`;
    }
    return repr(x);
  }
  function show(x) {
    const text = brief(x);
    return len(text) <= 80 ? text : `${pick(text, 77)}...`;
  }

  const threes = (digits) => digits.replace(/\B(?=(\d{3})+(?!\d))/g, ",");
  function fixed(x, places) {
    const value = Number(x);
    const halves = Math.abs(value) * 2 ** (places + 1);
    if (Number.isInteger(halves)) {
      // Only such a number can lie half-way. It goes to the even digit; toFixed takes the larger one.
      const [top, bottom] = [BigInt(halves) * 10n ** BigInt(places), 2n ** BigInt(places + 1)];
      const [whole, left] = [top / bottom, (top % bottom) * 2n];
      const digits = String(whole + (left > bottom || (left === bottom && whole % 2n) ? 1n : 0n)).padStart(places + 1, "0");
      const cut = digits.length - places;
      return (value < 0 ? "-" : "") + digits.slice(0, cut) + (places ? `.${digits.slice(cut)}` : "");
    }
    return value.toFixed(places);
  }
  function general(x, digits) {
    const value = Number(x);
    if (!Number.isFinite(value)) return float(value);
    if (value === 0) return "0";
    if (isInt(x)) {
      // Only a whole number can lie half-way between two that are written with an exponent. It goes to the even one.
      const whole = BigInt(x);
      const unit = 10n ** BigInt(Math.max(0, String(whole).replace("-", "").length - digits));
      const left = whole % unit;
      if (left && (left === unit / 2n || left === -unit / 2n) && whole / unit % 2n === 0n) return general(whole - left, digits);
    }
    const [mantissa, exponent] = value.toExponential(digits - 1).split("e");
    const strip = (text) => (text.includes(".") ? text.replace(/\.?0+$/, "") : text);
    const e = Number(exponent);
    if (e < -4 || e >= digits) return `${strip(mantissa)}e${e < 0 ? "-" : "+"}${String(Math.abs(e)).padStart(2, "0")}`;
    return strip(fixed(value, Math.max(0, digits - 1 - e)));
  }
  function format(x, spec) {
    const [, aligned, width, comma, places, kind] = /^([<>]?)(\d*)(,?)(?:\.(\d+))?([dfgs%]?)$/.exec(spec) ?? [];
    if (kind === undefined) throw new ValueError(`no such format: ${spec}`);
    let text = str(x);
    if (kind === "g" || (kind === "" && places !== undefined && typeof x !== "string")) text = general(x, Math.max(1, Number(places ?? 6)));
    else if (kind === "f") text = fixed(x, Number(places ?? 6));
    else if (kind === "%") text = `${fixed(Number(x) * 100, Number(places ?? 6))}%`;
    else if (places !== undefined) text = pick(text, Number(places));
    if (comma) text = text.replace(/^-?\d+/, threes);
    const right = aligned === ">" || (aligned === "" && typeof x !== "string");
    const room = " ".repeat(Math.max(0, Number(width) - len(text)));
    return right ? room + text : text + room;
  }
  const formatted = (text, facts) => text.replace(/\{\{|\}\}|\{(\w+)(?::([^}]*))?\}/g, (whole, name, spec) =>
    name === undefined ? whole[0] : spec ? format(item(facts, name), spec) : str(item(facts, name)));

  // Types.
  function name(x) {
    if (x == null) return "NoneType";
    if (typeof x === "boolean") return "bool";
    if (typeof x === "string") return "str";
    if (isInt(x)) return "int";
    if (typeof x === "number") return "float";
    if (x instanceof Dict) return "dict";
    return Array.isArray(x) ? "list" : x.constructor.name.split("$").at(-2) ?? x.constructor.name;
  }
  function isinstance(x, kinds) {
    if (Array.isArray(kinds)) return kinds.some((kind) => isinstance(x, kind));
    if (typeof kinds === "function") return x instanceof kinds;
    const own = name(x);
    return own === kinds || (own === "bool" && kinds === "int") || (own === "list" && kinds === "tuple");
  }

  // Regular expressions: patterns that mean the same in both languages.
  const regex = (pattern, flags = "") => new RegExp(pattern, `${flags}u`.replace("uu", "u"));
  const match = (found) => found && Object.assign([...found].map((part) => part ?? null), { match: true });
  const re_search = (pattern, text) => match(regex(pattern).exec(text));
  const re_match = (pattern, text) => match(regex(`^(?:${pattern})`).exec(text));
  const re_fullmatch = (pattern, text) => match(regex(`^(?:${pattern})$`).exec(text));
  const re_sub = (pattern, by, text) => text.replace(regex(pattern, "g"), by.replace(/\\(\d)/g, "$$$1"));

  // Functions.
  const all = (x) => [...iter(x)].every(t);
  const any = (x) => [...iter(x)].some(t);
  const sum = (x, start = 0) => [...iter(x)].reduce(add, start);
  function extreme(better) {
    return (values, { key, default: missing } = {}) => {
      let found;
      let best;
      for (const one of iter(values)) {
        const mark = key ? key(one) : one;
        if (best === undefined || better(mark, best)) [found, best] = [one, mark];
      }
      if (best !== undefined) return found;
      if (missing !== undefined) return missing;
      throw new ValueError("this is empty, so it has no least or most");
    };
  }
  function sorted(values, { key = (x) => x, reverse = false } = {}) {
    const marked = list(values).map((one, i) => [key(one), i, one]);
    marked.sort((a, b) => (reverse ? order(b[0], a[0]) : order(a[0], b[0])) || a[1] - b[1]);
    return marked.map((entry) => entry[2]);
  }
  function next(x, missing) {
    const iterator = typeof x?.next === "function" ? x : iter(x)[Symbol.iterator]();
    const { done, value } = iterator.next();
    if (!done) return value;
    if (missing !== undefined) return missing;
    throw new LookupError("there is no next one");
  }
  function int(x = 0) {
    if (typeof x === "string") {
      if (!/^\s*[+-]?\d+\s*$/.test(x)) throw new ValueError(`invalid literal for int() with base 10: ${repr(x)}`);
      return small(BigInt(x.trim()));
    }
    if (big(x)) return x;
    return small(BigInt(Math.trunc(num(x))));
  }
  function toFloat(x) {
    if (typeof x !== "string") return Number(x);
    const text = x.trim().toLowerCase();
    if (/^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/.test(text)) return Number(text);
    throw new ValueError(`could not convert string to float: ${repr(x)}`);
  }
  function round(x, places) {
    if (isInt(x)) return x;
    return places == null ? Number(fixed(x, 0)) : Number(fixed(x, places));
  }
  function isqrt(n) {
    let root = BigInt(Math.floor(Math.sqrt(Number(n))));
    while (root * root > BigInt(n)) root -= 1n;
    while ((root + 1n) * (root + 1n) <= BigInt(n)) root += 1n;
    return small(root);
  }
  function gcd(...values) {
    return values.reduce((a, b) => { while (num(b) != 0) [a, b] = [b, modulo(a, b)]; return a < 0 ? sub(0, a) : a; }, 0);
  }
  /** What Python calls a space: not JavaScript's \s. */
  const SPACE = /[\t-\r\x1c-\x20\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]/;
  function strip(text, marks, left, right) {
    const letters = Array.from(text);
    const off = (c) => (marks == null ? SPACE.test(c) : marks.includes(c));
    while (left && letters.length && off(letters[0])) letters.shift();
    while (right && letters.length && off(letters.at(-1))) letters.pop();
    return letters.join("");
  }

  const TEXT = {
    join: (s, parts) => list(parts).join(s),
    split: (s, by, most) => {
      if (by == null) return s.split(RegExp(`${SPACE.source}+`)).filter(Boolean);
      const parts = s.split(by);
      return most == null || parts.length <= most + 1 ? parts : [...parts.slice(0, most), parts.slice(most).join(by)];
    },
    strip: (s, marks) => strip(s, marks, true, true),
    lstrip: (s, marks) => strip(s, marks, true, false),
    rstrip: (s, marks) => strip(s, marks, false, true),
    lower: (s) => s.toLowerCase(),
    upper: (s) => s.toUpperCase(),
    title: (s) => s.toLowerCase().replace(/\p{L}+/gu, (word) => word[0].toUpperCase() + word.slice(1)),
    replace: (s, from, to) => s.split(from).join(to),
    startswith: (s, start) => (Array.isArray(start) ? start : [start]).some((one) => s.startsWith(one)),
    endswith: (s, end) => (Array.isArray(end) ? end : [end]).some((one) => s.endsWith(one)),
    removeprefix: (s, start) => (s.startsWith(start) ? s.slice(start.length) : s),
    removesuffix: (s, end) => (end && s.endsWith(end) ? s.slice(0, -end.length) : s),
    partition: (s, by) => { const at = s.indexOf(by); return at < 0 ? [s, "", ""] : [s.slice(0, at), by, s.slice(at + by.length)]; },
    isdigit: (s) => /^[\p{Nd}²³¹⁰-⁹₀-₉]+$/u.test(s),
    isalpha: (s) => /^\p{L}+$/u.test(s),
    isalnum: (s) => /^[\p{L}\p{N}]+$/u.test(s),
    find: (s, part) => s.indexOf(part),
    count: (s, part) => s.split(part).length - 1,
    format_map: formatted,
  };
  const LIST = {
    append: (x, one) => { x.push(one); return null; },
    extend: (x, more) => { x.push(...iter(more)); return null; },
    insert: (x, at, one) => { x.splice(at, 0, one); return null; },
    pop: (x, at = -1) => x.splice(at, 1)[0],
    count: (x, one) => x.filter((other) => eq(one, other)).length,
    index: (x, one) => { const at = x.findIndex((other) => eq(one, other)); if (at < 0) throw new ValueError("not in list"); return at; },
    groups: (x) => x.slice(1),
    group: (x, at = 0) => x[at],
  };
  const DICT = {
    get: (x, key, missing = null) => (x.has(key) ? x.at(key) : missing),
    items: (x) => x.pairs(),
    keys: (x) => x.pairs().map(([key]) => key),
    values: (x) => x.pairs().map(([, value]) => value),
    update: (x, more) => { for (const [key, value] of more instanceof Dict ? more.pairs() : iter(more)) x.set(key, value); return null; },
    pop: (x, key, missing) => {
      if (!x.has(key)) { if (missing !== undefined) return missing; throw new KeyError(repr(key)); }
      const value = x.at(key);
      x.drop(key);
      return value;
    },
    setdefault: (x, key, value = null) => { if (!x.has(key)) x.set(key, value); return x.at(key); },
  };
  const NUMBER = {
    is_integer: (x) => big(x) || Number.isInteger(x),
    bit_length: (x) => (num(x) == 0 ? 0 : BigInt(x).toString(2).replace("-", "").length),
  };
  /** Call a method: Python's on text, lists, dictionaries and numbers, its own on anything else. */
  function call(x, method, ...values) {
    const methods = typeof x === "string" ? TEXT : Array.isArray(x) ? LIST : x instanceof Dict ? DICT : isNumber(x) ? NUMBER : null;
    if (methods) {
      if (!Object.hasOwn(methods, method)) throw new TypeError_(`${name(x)} has no ${method} here`);
      return methods[method](x, ...values);
    }
    if (method === "update" && typeof x?.update !== "function") return Object.assign(x, object(values[0]));
    return x[method](...values);
  }
  /** A method with keywords, which go by the names that its class gives. */
  const keyed = (x, method, values, given) => call(x, method, ...values,
    ...x.constructor.named[method].slice(values.length).map((name) => given[name]));
  const object = (x) => (x instanceof Dict ? Object.fromEntries(x.pairs()) : x);

  /** What `functools.cache` does, for arguments that are no objects. */
  function cached(own, made, values) {
    if (values.some((one) => one !== null && typeof one === "object")) return made(...values);
    own.kept ??= new Map();
    const key = values.map((one) => `${typeof one} ${one}`).join("\u0000");
    if (!own.kept.has(key)) own.kept.set(key, made(...values));
    return own.kept.get(key);
  }

  /** JSON's values as translated Python has them, and back. */
  const wrap = (x) => {
    if (Array.isArray(x)) return x.map(wrap);
    return x && typeof x === "object" ? new Dict(Object.entries(x).map(([key, value]) => [key, wrap(value)])) : x;
  };
  const unwrap = (x) => {
    if (x instanceof Dict) {
      const plain = {};
      for (const [key, value] of x.pairs()) Object.defineProperty(plain, key, { value: unwrap(value), enumerable: true, writable: true, configurable: true });
      return plain;
    }
    return x != null && typeof x === "object" ? list(x).map(unwrap) : x ?? null;
  };
  /** JSON.parse that keeps whole numbers exact, where the browser shows their digits. */
  const parse = (text) => JSON.parse(text, (key, value, context) =>
    typeof value === "number" && !Number.isSafeInteger(value) && /^-?\d+$/.test(context?.source ?? "") ? BigInt(context.source) : value);
  /** Python's json.dumps(x, indent=2, ensure_ascii=False). */
  function dumps(x, indent = 2, pad = "") {
    const inner = pad + " ".repeat(indent);
    if (big(x)) return x.toString();
    if (typeof x === "number") return isInt(x) ? BigInt(x).toString() : Number.isFinite(x) ? float(x) : x > 0 ? "Infinity" : x < 0 ? "-Infinity" : "NaN";
    if (x == null || typeof x !== "object") return JSON.stringify(x ?? null);
    const parts = Array.isArray(x) ? x.map((one) => dumps(one, indent, inner))
      : Object.entries(x).map(([key, value]) => `${JSON.stringify(key)}: ${dumps(value, indent, inner)}`);
    const [open, close] = Array.isArray(x) ? "[]" : "{}";
    return parts.length ? `${open}\n${inner}${parts.join(",\n" + inner)}\n${pad}${close}` : open + close;
  }

  /** log of gamma, for x > 0: Stirling's series, from 10 on. */
  function lgamma(x) {
    let less = 0;
    for (; x < 10; x++) less += Math.log(x);
    const y = 1 / (x * x);
    const series = (1 / 12 - y * (1 / 360 - y * (1 / 1260 - y * (1 / 1680 - y * (1 / 1188 - (y * 691) / 360360))))) / x;
    return (x - 0.5) * Math.log(x) - x + 0.9189385332046728 + series - less;
  }
  /** Quantile of the normal distribution as Python's statistics has it (Wichura, algorithm AS 241). */
  function inv_cdf(p) {
    const q = p - 0.5;
    const of = (r, over, under) => [over, under].map((c) => c.reduce((sum, one) => sum * r + one, 0)).reduce((a, b) => a / b);
    if (Math.abs(q) <= 0.425) {
      return q * of(0.180625 - q * q,
        [2509.0809287301226727, 33430.575583588128105, 67265.770927008700853, 45921.953931549871457, 13731.693765509461125, 1971.5909503065514427, 133.14166789178437745, 3.387132872796366608],
        [5226.495278852545925, 28729.085735721942674, 39307.89580009271061, 21213.794301586595867, 5394.1960214247511077, 687.1870074920579083, 42.313330701600911252, 1]);
    }
    const r = Math.sqrt(-Math.log(q <= 0 ? p : 1 - p));
    const x = r <= 5
      ? of(r - 1.6,
        [7.7454501427834140764e-4, 0.0227238449892691845833, 0.24178072517745061177, 1.27045825245236838258, 3.64784832476320460504, 5.7694972214606914055, 4.6303378461565452959, 1.42343711074968357734],
        [1.05075007164441684324e-9, 5.475938084995344946e-4, 0.0151986665636164571966, 0.14810397642748007459, 0.68976733498510000455, 1.6763848301838038494, 2.05319162663775882187, 1])
      : of(r - 5,
        [2.01033439929228813265e-7, 2.71155556874348757815e-5, 0.0012426609473880784386, 0.026532189526576123093, 0.29656057182850489123, 1.7848265399172913358, 5.4637849111641143699, 6.6579046435011037772],
        [2.04426310338993978564e-15, 1.4215117583164458887e-7, 1.8463183175100546818e-5, 7.868691311456132591e-4, 0.0148753612908506148525, 0.13692988092273580531, 0.59983220655588793769, 1]);
    return q < 0 ? -x : x;
  }

  return {
    add,
    mul,
    sub,
    floordiv: (a, b) => { nonzero(b); return floordiv(a, b); },
    mod: (a, b) => { nonzero(b); return modulo(a, b); },
    div: (a, b) => { nonzero(b); return divide(num(a), num(b)); },
    pow: (a, b) => (b < 0 ? Number(a) ** Number(b) : power(a, b)),
    neg: (x) => sub(0, x),
    lshift: (a, b) => mul(a, power(2, b)),
    rshift: (a, b) => floordiv(a, power(2, b)),
    t,
    eq,
    lt,
    le,
    gt,
    ge,
    has,
    item,
    set,
    slice,
    iter,
    list,
    len,
    str,
    repr,
    show,
    brief,
    format,
    name,
    isinstance,
    call,
    keyed,
    object,
    and: (a, b) => (t(a) ? b() : a),
    or: (a, b) => (t(a) ? a : b()),
    all,
    any,
    sum,
    min: extreme(lt),
    max: extreme(gt),
    sorted,
    next,
    int,
    float: toFloat,
    round,
    abs: (x) => (x < 0 ? sub(0, x) : num(x)),
    bool: t,
    divmod: (a, b) => { nonzero(b); return [floordiv(a, b), modulo(a, b)]; },
    dict: (x) => new Dict(x === undefined ? [] : x instanceof Dict ? x.pairs() : list(x)),
    reversed: (x) => list(x).reverse(),
    range: (a, b, step = 1) => (b === undefined ? new Range(0, a, 1) : new Range(a, b, step)),
    enumerate: (x, start = 0) => list(x).map((one, i) => [i + start, one]),
    zip: (...lists) => { const all = lists.map(list); return Array.from({ length: Math.min(...all.map((one) => one.length)) }, (_, i) => all.map((one) => one[i])); },
    pairwise: (x) => { const all = list(x); return all.slice(1).map((one, i) => [all[i], one]); },
    filter: (f, x) => list(x).filter(f == null ? t : (one) => t(f(one))),
    fromkeys: (x, value = null) => new Dict(list(x).map((key) => [key, value])),
    map: (f, ...lists) => $.zip(...lists).map((values) => f(...values)),
    getattr: (x, name, missing) => (x[name] === undefined ? missing : x[name]),
    vars: (x) => x,
    replace: (x, changes) => { const copy = Object.create(Object.getPrototypeOf(x)); Object.assign(copy, x, changes); copy.__post_init__?.(); return copy; },
    index: (x) => { if (!isInt(x)) throw new TypeError_("not a whole number"); return x; },
    isqrt,
    gcd,
    sqrt: (x) => Math.sqrt(Number(x)),
    log2: (x) => Math.log2(Number(x)),
    ceil: (x) => Math.ceil(x),
    floor: (x) => Math.floor(x),
    isfinite: (x) => Number.isFinite(Number(x)),
    log: (x) => Math.log(Number(x)),
    exp: (x) => Math.exp(Number(x)),
    hypot: Math.hypot,
    lgamma: (x) => lgamma(Number(x)),
    inv_cdf,
    prod: (x) => [...iter(x)].reduce(times, 1),
    re_search,
    re_match,
    re_fullmatch,
    re_sub,
    cached,
    wrap,
    unwrap,
    parse,
    dumps,
    function: (f) => (...values) => unwrap(f(...values.map(wrap))),
  };
})();
