export type { Derivation, DeriveFailure, DeriveOptions } from './derive.ts';
export { derive } from './derive.ts';
export * from './errors.ts';
export type { DeriveReader } from './reads.ts';
