// The page manager: reads the widget state that the book's pages carry, makes the
// models and draws the views, with no kernel, no server and no module loader.
//
// What a page or a view may rely on (see js/README.md):
//   <html data-splitheads-site>      set before the first model is made
//   document 'splitheads:ready'      sent when every view is on the page
//   window.__splitheads              {manager, ready}; `ready` is a promise
import { ManagerBase } from '@jupyter-widgets/base-manager';
import { DOMWidgetModel, DOMWidgetView, ErrorWidgetView, LayoutModel, LayoutView, StyleModel, StyleView, createErrorWidgetModel } from '@jupyter-widgets/base';
import * as controls from '@jupyter-widgets/controls';
import { MessageLoop } from '@lumino/messaging';
import { Widget } from '@lumino/widgets';
import anywidget from 'anywidget';
import css from './runtime.css';
import { improve } from './accessible.js';

const STATE = 'script[type="application/vnd.jupyter.widget-state+json"]';
const VIEW = 'script[type="application/vnd.jupyter.widget-view+json"]';
const MODULES = {
  '@jupyter-widgets/base': { DOMWidgetModel, DOMWidgetView, ErrorWidgetView, LayoutModel, LayoutView, StyleModel, StyleView },
  '@jupyter-widgets/controls': controls,
  anywidget: anywidget({ DOMWidgetModel, DOMWidgetView }),
};

// What cannot be drawn says so in its place; the console has the reason.
function giveUp(el, error) {
  console.warn(error);
  el.classList.add('splitheads-notice');
  el.textContent = 'This control needs a running notebook: it could not be drawn on this page.';
}

// build.mjs makes anywidget call this where its module or its `render` fails.
MODULES.anywidget.AnyView.prototype.failed = function (error) {
  giveUp(this.el, error);
};

// anywidget resolves a view before its module has been imported; wait for its first
// element, but not for ever.
const drawn = ({ el, model }) =>
  new Promise((resolve) => {
    if (model.module !== 'anywidget' || el.firstChild) return resolve();
    new MutationObserver(resolve).observe(el, { childList: true });
    setTimeout(resolve, 2000);
  });

class PageManager extends ManagerBase {
  // The official views typeset labels through this hook when it is there. Without
  // it they call MathJax 2, which a page with MathJax 3 answers with an exception.
  _rendermime = {
    latexTypesetter: { typeset: (el) => /\$|\\[([]/.test(el.textContent) && window.MathJax?.typesetPromise?.([el]) },
  };

  async loadClass(name, module) {
    const found = MODULES[module]?.[name];
    if (!found) throw new Error(`${name} from ${module} is not in this page's widget runtime`);
    return found;
  }

  loadModelClass(name, module) {
    return this.loadClass(name, module).catch((error) => {
      console.warn(error.message);
      return createErrorWidgetModel(error, error.message);
    });
  }

  loadViewClass(name, module) {
    return this.loadClass(name, module).catch((error) => {
      console.warn(error.message);
      return ErrorWidgetView;
    });
  }

  create_view(model, options) {
    const view = super.create_view(model, options).then((view) => {
      try {
        improve(view);
      } catch (error) {
        console.warn(error);
      }
      return view;
    });
    this.drawn.push(view.then(drawn));
    return view;
  }

  // Resolves when no view is on its way any more, nested ones included.
  drawn = [];
  async settled() {
    for (let n = -1; n < this.drawn.length; ) {
      n = this.drawn.length;
      await Promise.allSettled(this.drawn);
    }
  }

  // Nothing listens at the other end: models get no comm, so `save_changes` and
  // `send` return at once, and links between models do all the work.
  _get_comm_info() {
    return Promise.resolve({});
  }

  _create_comm() {
    return Promise.reject(new Error('no kernel on a static page'));
  }
}

async function show(manager, script) {
  const el = document.createElement('div');
  el.className = 'splitheads-widget';
  script.replaceWith(el);
  try {
    const { model_id } = JSON.parse(script.textContent);
    if (!manager.has_model(model_id)) throw new Error(`the page's widget state has no model ${model_id}`);
    const view = await manager.create_view(await manager.get_model(model_id));
    Widget.attach(view.luminoWidget, el);
    addEventListener('resize', () => MessageLoop.postMessage(view.luminoWidget, Widget.ResizeMessage.UnknownSize));
    await view.displayed;
  } catch (error) {
    giveUp(el, error);
  }
}

async function start() {
  const manager = (window.__splitheads.manager = new PageManager());
  const states = document.querySelectorAll(STATE);
  const views = document.querySelectorAll(VIEW);
  if (views.length) {
    document.head.prepend(Object.assign(document.createElement('style'), { id: 'splitheads-widgets', textContent: css }));
    for (const state of states) {
      // A model that cannot be made turns into a notice by itself; a state that
      // cannot be read leaves the other ones alone.
      await Promise.resolve(state.textContent).then((text) => JSON.parse(text)).then((json) => manager.set_state(json)).catch((error) => console.warn(error));
    }
    await Promise.all([...views].map((script) => show(manager, script)));
    await manager.settled();
  }
  document.dispatchEvent(new CustomEvent('splitheads:ready', { detail: { manager } }));
  return manager;
}

// A second copy of the script on one page has nothing to do.
if (!window.__splitheads) {
  document.documentElement.dataset.splitheadsSite = '';
  window.__splitheads = {};
  window.__splitheads.ready = new Promise((resolve) => {
    if (document.readyState === 'loading') document.addEventListener('DOMContentLoaded', () => resolve(start()));
    else resolve(start());
  });
}
