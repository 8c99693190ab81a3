// Stands in for base's error widget (a broken-file picture that shows a JavaScript
// stack when clicked). Whatever cannot be drawn on a static page says so in one
// plain sentence instead, and the console has the reason.
import { DOMWidgetModel, DOMWidgetView } from '@jupyter-widgets/base/lib/widget';

export function createErrorWidgetModel(error, msg) {
  return class extends DOMWidgetModel {
    constructor(attributes, options) {
      super({ ...attributes, _view_name: 'ErrorWidgetView', _view_module: '@jupyter-widgets/base', msg, error }, options);
    }
  };
}

export class ErrorWidgetView extends DOMWidgetView {
  render() {
    this.el.classList.add('jupyter-widgets', 'splitheads-notice');
    const { name, module } = this.model;
    this.el.textContent = `This control needs a running notebook: ${name ? `${name} from ${module} is not` : 'it could not be drawn'} on this page.`;
  }
}

export const createErrorWidgetView = () => ErrorWidgetView;
