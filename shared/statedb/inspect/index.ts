export { UnserialisableError } from './codec.ts';
export * from './dump.ts';
export * from './print.ts';
