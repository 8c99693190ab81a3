// Stands in for the whole of underscore: the official functions, but only those
// that Backbone names (Backbone mixes further ones into its classes when they are
// there and leaves them out when they are not; widgets use none of those).
export { default as clone } from 'underscore/modules/clone.js';
export { default as create } from 'underscore/modules/create.js';
export { default as defaults } from 'underscore/modules/defaults.js';
export { default as defer } from 'underscore/modules/defer.js';
export { default as each } from 'underscore/modules/each.js';
export { default as escape } from 'underscore/modules/escape.js';
export { default as extend } from 'underscore/modules/extend.js';
export { default as functions } from 'underscore/modules/functions.js';
export { default as has } from 'underscore/modules/has.js';
export { default as isArray } from 'underscore/modules/isArray.js';
export { default as isEmpty } from 'underscore/modules/isEmpty.js';
export { default as isEqual } from 'underscore/modules/isEqual.js';
export { default as isFunction } from 'underscore/modules/isFunction.js';
export { default as isObject } from 'underscore/modules/isObject.js';
export { default as isRegExp } from 'underscore/modules/isRegExp.js';
export { default as isString } from 'underscore/modules/isString.js';
export { default as iteratee } from 'underscore/modules/iteratee.js';
export { default as keys } from 'underscore/modules/keys.js';
export { default as map } from 'underscore/modules/map.js';
export { default as matches } from 'underscore/modules/matcher.js';
export { default as once } from 'underscore/modules/once.js';
export { default as pick } from 'underscore/modules/pick.js';
export { default as reduce } from 'underscore/modules/reduce.js';
export { default as result } from 'underscore/modules/result.js';
export { default as some } from 'underscore/modules/some.js';
export { default as uniqueId } from 'underscore/modules/uniqueId.js';
