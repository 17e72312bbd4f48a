/** Runs cases on a target. */
import { randomBytes } from 'node:crypto';
import { Client } from './client.ts';
import { CaseSession } from './session.ts';
import type { Case, Step, Target, Transcript } from './types.ts';

/** The transcript of `cases`, run one after another. A case that throws ends the run: it then says nothing at all. */
export async function transcriptOf(target: Target, cases: readonly Case[]): Promise<Transcript> {
  const client = new Client(target);
  const run = `x${randomBytes(4).toString('hex')}`;
  const out: Record<string, Step[]> = {};
  try {
    for (const [i, one] of cases.entries()) {
      if (out[one.name] !== undefined) throw new Error(`two cases are named ${one.name}: give one another name`);
      const session = await CaseSession.open(client, target, one.name, `${run}${i}`);
      try {
        await one.run(session);
      } catch (error) {
        throw new Error(`case ${one.name} on ${target.url} could not be done`, { cause: error });
      } finally {
        out[one.name] = await session.close();
      }
    }
  } finally {
    client.close();
  }
  return out;
}
