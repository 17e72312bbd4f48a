import { AGENT_PARTS } from './part-list.ts';
import { runAgent } from './run.ts';

await runAgent(process.argv.slice(2), AGENT_PARTS);
