/** The node agent: resolved rules in, BPF maps out. */
export * from './core.ts';
export { createCore } from './create-core.ts';
export { createTables, tableKey } from './create-tables.ts';
export * from './errors.ts';
export { type RemoveDatapathOptions, removeDatapath } from './remove-datapath.ts';
export { STATE_FILES } from './state-files.ts';
export * from './tables.ts';
