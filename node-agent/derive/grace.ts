/**
 * How long what packets may look at stays in the kernel after nothing points at it any more, in milliseconds. A packet runs
 * in an RCU read section, which lasts microseconds; a second is far beyond any of them.
 */
export const GRACE_MS = 1000;
