// Stands in for lodash/isEqual (16 KB minified), the one lodash function in use:
// base asks it whether an attribute changed. underscore's function of the same
// name, which Backbone brings along anyway, answers alike for numbers (NaN equals
// NaN), strings, arrays, plain objects, dates, DataViews and typed arrays.
export { default } from 'underscore/modules/isEqual.js';
