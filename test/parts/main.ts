/** The agent with one part more. */
import { AGENT_PARTS } from '../../node-agent/part-list.ts';
import { runAgent } from '../../node-agent/run.ts';
import { samplePart } from './sample.ts';

await runAgent(process.argv.slice(2), [...AGENT_PARTS, samplePart]);
