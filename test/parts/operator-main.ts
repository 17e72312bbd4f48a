/** The operator with one part more. */
import { OPERATOR_PARTS } from '../../operator/part-list.ts';
import { runOperator } from '../../operator/run.ts';
import { operatorSamplePart } from './operator-sample.ts';

await runOperator(process.argv.slice(2), process.env, [...OPERATOR_PARTS, operatorSamplePart]);
