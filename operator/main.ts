#!/usr/bin/env node
/** Entry of the operator. */
import { OPERATOR_PARTS } from './part-list.ts';
import { runOperator } from './run.ts';

await runOperator(process.argv.slice(2), process.env, OPERATOR_PARTS);
