// Sliders under fingers and keys, the same for every official slider view.
const list = (x) => [].concat(x);
const isVertical = (view) => view.model.get('orientation') === 'vertical';

// Move one handle to a value; the view hears of it as of a drag.
const move = (view, handle, value) => view.$slider.noUiSlider.setHandle(handle, value, false);
// The hand is off: views that wait for this write their value now.
const settle = (view, handle) => view.handleSliderChangeEvent(list(view.$slider.noUiSlider.get()), handle);

// About a sixteenth of the way, and a power of two: 1024 of 16384, 16 of 256, 1 of 6.
function page({ range: { min, max }, step }) {
  const stride = step || (max - min) / 64;
  return stride * 2 ** Math.max(0, Math.floor(Math.log2(((max - min) / stride + 1) / 16 + 1e-9)));
}

export function keys(view) {
  view.$slider.addEventListener('keydown', (event) => {
    const slider = view.$slider.noUiSlider;
    const handle = event.target.closest('.noUi-handle');
    if (!handle || view.model.get('disabled')) return;
    // Those belong to the browser: Alt with an arrow goes back a page.
    if (event.altKey || event.ctrlKey || event.metaKey) return event.stopPropagation();
    const i = Number(handle.dataset.handle);
    const now = list(slider.get(true))[i];
    const { min, max } = slider.options.range;
    const to = { PageUp: now + page(slider.options), PageDown: now - page(slider.options), Home: min, End: max }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    event.stopPropagation();
    move(view, i, to);
    settle(view, i);
  }, true);
}

// Fingers and pens. noUiSlider moves at the first touch, when nobody can know yet whether
// the finger came to slide or to scroll the page, so it is not told of touches at all. The
// browser scrolls across the slider (`touch-action` in house.css) and then says
// `pointercancel`; until a finger has gone along the slider, or is lifted, nothing moves.
const SLACK = 6;

export function touch(view) {
  const { $slider, model } = view;
  const on = (type, listener) => $slider.addEventListener(type, listener, true);
  let held = null;

  const valueAt = ({ clientX, clientY }) => {
    const { min, max } = $slider.noUiSlider.options.range;
    const box = $slider.getBoundingClientRect();
    return min + (max - min) * (isVertical(view) ? (box.bottom - clientY) / box.height : (clientX - box.left) / box.width);
  };
  const drag = (event) => {
    const { min, max } = $slider.noUiSlider.options.range;
    const { moving, from, origin } = held;
    const by = Math.min(Math.max(valueAt(event) - origin, min - from[moving[0]]), max - from[moving.at(-1)]);
    // The one in front first, so that two that move together do not hinder each other.
    for (const i of by > 0 ? [...moving].reverse() : moving) move(view, i, from[i] + by);
  };
  const release = () => {
    const { moving } = held;
    held = null;
    for (const i of moving) settle(view, i);
  };
  const giveUp = () => {
    const { live, before } = held;
    if (!live) return (held = null);
    $slider.noUiSlider.set(before, false, true);
    release();
  };

  on('touchstart', (event) => event.stopPropagation());
  on('pointerdown', (event) => {
    if (event.pointerType === 'mouse') return;
    // No mouse events for a finger either: they would be a second tap.
    event.preventDefault();
    if (held) return giveUp();
    if (!event.isPrimary || model.get('disabled')) return;
    const before = list($slider.noUiSlider.get(true));
    const from = [...before];
    const origin = valueAt(event);
    const behaviour = model.get('behavior') ?? 'tap';
    const handle = event.target.closest('.noUi-handle');
    let moving;
    if (handle) moving = [Number(handle.dataset.handle)];
    else if (event.target.closest('.noUi-draggable')) moving = [0, 1];
    else if (/tap|snap/.test(behaviour)) {
      const far = from.map((x) => Math.abs(x - origin));
      // Two handles on one spot: the one that can go there.
      const nearest = far[1] < far[0] || (far[1] === far[0] && origin > from[1]) ? 1 : 0;
      moving = [nearest];
      from[nearest] = origin;
    } else return;
    held = { id: event.pointerId, x: event.clientX, y: event.clientY, before, from, origin, moving, tapped: !handle && moving.length === 1, live: false };
    // A finger stays with the slider by itself, a pen does not.
    if (event.pointerType === 'pen') $slider.setPointerCapture(event.pointerId);
  });
  on('pointermove', (event) => {
    if (event.pointerId !== held?.id) return;
    const moved = [Math.abs(event.clientX - held.x), Math.abs(event.clientY - held.y)];
    const [along, across] = isVertical(view) ? moved.reverse() : moved;
    held.live ||= along > SLACK;
    if (held.live) drag(event);
    else if (across > SLACK) held = null;
  });
  on('pointerup', (event) => {
    if (event.pointerId !== held?.id) return;
    $slider.querySelectorAll('.noUi-handle')[held.moving[0]].focus({ preventScroll: true });
    if (held.live || held.tapped) {
      drag(event);
      release();
    } else held = null;
  });
  on('pointercancel', (event) => event.pointerId === held?.id && giveUp());
}
