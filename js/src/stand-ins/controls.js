// Stands in for the index of @jupyter-widgets/controls: the same official modules
// without those that cannot work, or make no sense, on a page with no kernel
// (Controller, which reads game pads; FileUpload; TagsInput and its kin, which
// bring the colour libraries; Audio and Video), and without the index's
// `require('../package.json')`. A page that holds one of those says so in one
// sentence in its place.
export * from '@jupyter-widgets/controls/lib/widget_description';
export * from '@jupyter-widgets/controls/lib/widget_link';
export * from '@jupyter-widgets/controls/lib/widget_bool';
export * from '@jupyter-widgets/controls/lib/widget_button';
export * from '@jupyter-widgets/controls/lib/widget_box';
export * from '@jupyter-widgets/controls/lib/widget_image';
export * from '@jupyter-widgets/controls/lib/widget_int';
export * from '@jupyter-widgets/controls/lib/widget_float';
export * from '@jupyter-widgets/controls/lib/widget_selection';
export * from '@jupyter-widgets/controls/lib/widget_selectioncontainer';
export * from '@jupyter-widgets/controls/lib/widget_string';
