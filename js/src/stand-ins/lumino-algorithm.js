// Stands in for the one-file build of @lumino/algorithm, so that helpers nobody
// calls can be left out: the same official sources.
export * from '@lumino/algorithm/src/index';
