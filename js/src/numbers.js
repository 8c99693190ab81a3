// Numbers that are typed. The official views read them with parseInt and parseFloat,
// which stop at the first strange character: "1,600" would be 1, and "12.7" 12. Here a
// number counts when all of it is a number, and anything else changes nothing.
const SIGN = /^[-+\u2212]/;
// 1600, or 1,600: one mark between groups of three (comma, space of any width, underscore, apostrophe).
const WHOLE = /^(?:\d+|[1-9]\d{0,2}([,_'\u2019]|[^\S\r\n])\d{3}(?:\1\d{3})*)$/;
const REAL = /^([^.e%]*)(\.\d*)?(e[-+\u2212]?\d+)?(%)?$/i;

// NaN for whatever is not one well-formed number.
export function parse(text, whole) {
  const sign = SIGN.exec((text = text.trim()))?.[0] ?? '';
  const [, digits, fraction = '', power = '', percent] = REAL.exec(text.slice(sign.length)) || [];
  if (digits == null || (whole && (fraction || power || percent))) return NaN;
  if (digits ? !WHOLE.test(digits) : fraction.length < 2) return NaN;
  const number = Number(digits.replace(/\D/g, '') + fraction + power.replace('\u2212', '-')) / (percent ? 100 : 1);
  return sign && sign !== '+' ? -number : number;
}

// "3 – 5", "3:5", "3-5": both ends well-formed and in order, or null.
function parseRange(text, whole) {
  const [, low, high] = /^(.*?[\d.%])\s*[-\u2013\u2014:]\s*(.+)$/s.exec(text.trim()) || [];
  const ends = low ? [parse(low, whole), parse(high, whole)] : [];
  return ends[0] <= ends[1] ? ends : null;
}

const isWhole = (view) => view._parse_value === parseInt;
const isRange = (view) => Array.isArray(view.model.get('value'));

const select = (readout) => getSelection().selectAllChildren(readout);

// Take what the readout says, or put back what it said.
function commit(view) {
  const { model, readout, $slider } = view;
  const shown = view.valueToString(model.get('value'));
  // What was only looked at stays as exact as it is, whatever the readout rounds it to.
  if (readout.textContent === shown) return;
  // `innerText` keeps lines apart, which are no number together.
  const typed = (isRange(view) ? parseRange : parse)(readout.innerText, isWhole(view));
  if (typed === null || Number.isNaN(typed)) {
    readout.textContent = shown;
    return;
  }
  const base = view.logCalc && model.get('base');
  const end = (name) => (base ? base ** model.get(name) : model.get(name));
  const inside = [].concat(typed).map((x) => Math.min(Math.max(x, end('min')), end('max')));
  // Through the slider, so that handle, readout and value agree.
  $slider.noUiSlider.set(base ? inside.map((x) => view.logCalc(x)) : inside, false);
  view.handleSliderChangeEvent([].concat($slider.noUiSlider.get()), 0);
}

// The readout as a field. Called after each redrawing, which sets `contentEditable`.
export function field(view) {
  const { model, readout } = view;
  if (!model.get('disabled')) {
    try {
      readout.contentEditable = 'plaintext-only';
    } catch {
      // An older browser: it stays 'true', and `paste` below brings plain text.
    }
  }
  // Keypads for numbers lack the sign and the dash.
  const keypad = isWhole(view) ? 'numeric' : 'decimal';
  readout.inputMode = isRange(view) || (model.get('min') < 0 && !view.logCalc) ? 'text' : keypad;
}

export function typed(view) {
  const { readout } = view;
  const on = (type, listener) => readout.addEventListener(type, listener);
  view.handleTextChange = () => commit(view);
  readout.spellcheck = false;
  readout.enterKeyHint = 'done';
  // As in any field that is reached with Tab: what is typed replaces what was there.
  on('focus', () => readout.isContentEditable && select(readout));
  on('blur', () => {
    commit(view);
    if (readout.contains(getSelection().anchorNode)) getSelection().removeAllRanges();
  });
  on('keydown', (event) => {
    if (event.isComposing) return;
    if (event.key === 'Enter') {
      event.preventDefault();
      commit(view);
      select(readout);
    } else if (event.key === 'Escape') {
      readout.textContent = view.valueToString(view.model.get('value'));
      readout.blur();
    }
  });
  on('paste', (event) => {
    event.preventDefault();
    document.execCommand('insertText', false, event.clipboardData.getData('text/plain').trim().replace(/[\r\n]+/g, ' '));
  });
}

// IntText and its kin swallow the keys of "12.7" one by one and make it 127; let them see
// the whole, and put back the former number when it is none of theirs.
export function box(view) {
  if (view.textbox?.type !== 'number' || !isWhole(view)) return;
  view._parse_value = (text) => (Number.isInteger(Number(text || NaN)) ? Number(text) : NaN);
  view.handleKeypress = view.handleKeyUp = () => {};
  view.delegateEvents();
}
