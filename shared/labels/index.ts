export * from './canonical.ts';
export * from './errors.ts';
export * from './identity-labels.ts';
export * from './label.ts';
export * from './matches.ts';
export * from './selector.ts';
export * from './selector-key.ts';
export * from './types.ts';
