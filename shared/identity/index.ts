export * from './allocator.ts';
export * from './errors.ts';
export * from './reserved.ts';
export * from './scope.ts';
export * from './sorted.ts';
export * from './types.ts';
