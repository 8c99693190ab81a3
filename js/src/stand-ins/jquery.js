// Stands in for jQuery (90 KB minified). The official views only wrap their
// element as `this.$el = $(node)` and read `[0]` back, and anywidget calls
// `view.$el.empty()`; nothing else in the bundle reaches jQuery, since base ships
// its own Backbone.NativeView. Code that a page runs cannot see this object: an
// anywidget view is handed the bare element.
export default function $(node) {
  if (!(this instanceof $)) return new $(node);
  this[0] = node;
  this.length = node ? 1 : 0;
}
$.prototype.empty = function () {
  this[0].replaceChildren();
  return this;
};
