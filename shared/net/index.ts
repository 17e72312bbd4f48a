export * from './address.ts';
export * from './addresses.ts';
export * from './errors.ts';
export * from './ports.ts';
export * from './prefix.ts';
export * from './types.ts';
