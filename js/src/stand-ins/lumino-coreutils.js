// Stands in for the one-file build of @lumino/coreutils: the same official
// sources without its plugin registry and MIME helpers, which no view uses.
export * from '@lumino/coreutils/src/json';
export * from '@lumino/coreutils/src/promise';
export * from '@lumino/coreutils/src/token';
export * from '@lumino/coreutils/src/uuid.browser';
