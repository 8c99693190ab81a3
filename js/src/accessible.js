// What the official views lack on a page of prose: accessible names, roles, values
// and keys. `improve` is called once for every view the manager makes, nested ones
// too, and again after each change of its model, when the view has redrawn itself.
import { box, field, typed } from './numbers.js';
import { keys, touch } from './sliders.js';

const set = (el, attributes) => {
  for (const [name, value] of Object.entries(attributes)) {
    if (value == null) el.removeAttribute(name);
    else if (el.getAttribute(name) !== String(value)) el.setAttribute(name, String(value));
  }
};
const short = (x) => Number(Number(x).toPrecision(12));
let count = 0;

// A description may hold markup, so the drawn label is what counts.
const nameOf = (view) =>
  (view.label?.style.display !== 'none' && view.label?.textContent.trim()) || view.model.get('description') || view.model.get('tooltip') || '';

function slider(view) {
  const { model, $slider, readout } = view;
  const name = nameOf(view) || 'value';
  const disabled = model.get('disabled') || null;
  const labels = model.get('_options_labels');
  const log = model.get('base');
  const word = (x) => {
    if (labels) return labels[Math.round(x)];
    return model.readout_formatter ? model.readout_formatter(log ? log ** x : x) : String(short(x));
  };
  const handles = [...$slider.querySelectorAll('.noUi-handle')];
  const values = () => {
    const now = [].concat($slider.noUiSlider.get(true));
    handles.forEach((handle, i) => {
      const low = i ? now[i - 1] : labels ? 0 : model.get('min');
      const high = i + 1 < handles.length ? now[i + 1] : labels ? labels.length - 1 : model.get('max');
      set(handle, {
        'aria-label': handles.length > 1 ? `${name} (${i ? 'upper' : 'lower'} end)` : name,
        'aria-valuemin': short(low),
        'aria-valuemax': short(high),
        'aria-valuenow': short(now[i]),
        'aria-valuetext': word(now[i]),
        'aria-disabled': disabled,
      });
    });
  };
  // noUiSlider writes its own values ("12.0", "12.00") on each update, right before
  // this listener; a slider that was made anew needs the listener anew.
  view.splitheadsValues = values;
  if (view.splitheadsHandle !== handles[0]) {
    view.splitheadsHandle = handles[0];
    $slider.noUiSlider.on('update.splitheads', () => view.splitheadsValues());
  }
  values();
  // The readout is a field to type in when the view can read what was typed;
  // SelectionSlider's cannot, so there it is plain text.
  const isField = Boolean(view.handleTextChange);
  if (isField) field(view);
  else readout.contentEditable = 'false';
  set(readout, {
    role: isField ? 'textbox' : null,
    'aria-label': isField ? `${name}, typed value` : null,
    'aria-disabled': isField ? disabled : null,
    'aria-hidden': isField ? null : true,
  });
}

const choices = (view, role, name) => {
  const group = view.buttongroup || view.container;
  view.el.classList.add('widget-inline-hbox');
  set(group, { role, 'aria-label': name || 'choice' });
  for (const button of group.querySelectorAll('button')) set(button, { 'aria-pressed': button.classList.contains('mod-active') });
  // One name makes the arrow keys move between the radio buttons.
  view.splitheadsGroup ||= `splitheads-group-${++count}`;
  for (const radio of group.querySelectorAll('input')) radio.name = view.splitheadsGroup;
};

function accordion(view) {
  for (const { _header, _content, collapsed } of view.luminoWidget.collapseWidgets) {
    _content.node.id ||= `splitheads-panel-${++count}`;
    set(_header.node, { role: 'button', tabindex: 0, 'aria-expanded': !collapsed, 'aria-controls': _content.node.id });
  }
}

function describe(view) {
  const name = nameOf(view);
  // The official view turns a missing tooltip into the word.
  if (view.label?.title === 'null') view.label.removeAttribute('title');
  if (view.$slider?.noUiSlider) slider(view);
  else if (view.buttongroup) choices(view, 'group', name);
  else if (view.container?.classList.contains('widget-radio-box')) choices(view, 'radiogroup', name);
  else if (view.playPauseButton) {
    set(view.playPauseButton, { 'aria-label': view.model.get('playing') ? 'Pause' : 'Play' });
    set(view.stopButton, { 'aria-label': 'Stop' });
    set(view.repeatButton, { 'aria-label': 'Repeat', 'aria-pressed': view.model.get('repeat') });
  } else if (view.luminoWidget?.collapseWidgets) accordion(view);
  else if (view.el?.classList.contains('widget-toggle-button')) set(view.el, { 'aria-pressed': view.model.get('value') });
  else if (view.bar) {
    set(view.progress || view.bar.parentElement, {
      role: 'progressbar', 'aria-label': name || 'progress',
      'aria-valuemin': view.model.get('min'), 'aria-valuemax': view.model.get('max'), 'aria-valuenow': view.model.get('value'),
    });
  } else if (view.el?.tagName === 'IMG') set(view.el, { alt: name });
  else {
    const field = view.listbox || view.textbox;
    if (field) set(field, { 'aria-label': view.label?.style.display === 'none' ? name || 'value' : null });
  }
}

export function improve(view) {
  if (!view.el || !view.model.get('_view_module')?.endsWith('/controls')) return;
  // Some official views forget the class that carries the common look.
  view.el.classList.add('jupyter-widgets');
  // Play and Valid keep hold of their icons and change them later. A theme that
  // swaps icons for pictures (Font Awesome's script) would break that: this
  // attribute tells it to leave them, and our stylesheet draws them.
  for (const icon of view.el.matches('.widget-play, .widget-valid') ? view.el.querySelectorAll('i') : []) icon.dataset.faI2svg = '';
  describe(view);
  view.listenTo(view.model, 'change', () => describe(view));
  if (view.$slider) {
    keys(view);
    touch(view);
    if (view.handleTextChange) typed(view);
  }
  box(view);
  if (view.luminoWidget?.collapseWidgets) {
    view.displayed.then(() => describe(view));
    view.luminoWidget.selection.selectionChanged.connect(() => describe(view));
    view.el.addEventListener('keydown', (event) => {
      if (!event.target.classList.contains('jupyter-widget-Collapse-header') || !/^(Enter| )$/.test(event.key)) return;
      event.preventDefault();
      event.target.click();
    });
  }
}
