export * from './errors.ts';
export { createOperator, type Operator, type OperatorOptions } from './operator.ts';
export * from './types.ts';
