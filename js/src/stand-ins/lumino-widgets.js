// Stands in for the one-file build of @lumino/widgets (145 KB minified), which
// cannot be tree-shaken: the same official sources, but only the four modules that
// the views use. Docks, menus, palettes, split panels and scroll bars stay out.
export { Widget } from '@lumino/widgets/src/widget';
export { Panel } from '@lumino/widgets/src/panel';
export { PanelLayout } from '@lumino/widgets/src/panellayout';
export { TabBar } from '@lumino/widgets/src/tabbar';
