import { describe, expect, it } from '@jest/globals';
import { OracleInputError, oracleConnection } from './index.ts';
import { judgeFlow, parseObjects } from './testing/flows.ts';
import { WORKED_VERDICTS, WORKED_WORLD } from './worked-verdicts.ts';

describe('worked verdicts of the language', () => {
  it('has every row of the table, each judged, refused or outside', () => {
    const numbers = [...new Set(WORKED_VERDICTS.map(({ row }) => row))].sort((a, b) => a - b);
    expect(numbers).toEqual(Array.from({ length: 98 }, (_, index) => index + 1));
    const kinds = { judged: 0, warned: 0, partly: 0, rejected: 0, outside: 0 };
    for (const { flows, refused, outside } of WORKED_VERDICTS) {
      if (outside !== undefined) kinds.outside += 1;
      else if (refused === undefined) kinds.judged += (flows ?? []).length > 0 ? 1 : 0;
      else if (refused.code === 'InvalidSpec') kinds.rejected += 1;
      else if (refused.code === 'Warning') kinds.warned += (flows ?? []).length > 0 ? 1 : 0;
      else kinds.partly += (flows ?? []).length > 0 ? 1 : 0;
    }
    expect(kinds.judged + kinds.warned + kinds.partly + kinds.rejected + kinds.outside).toBe(WORKED_VERDICTS.length);
    expect(kinds).toEqual({ judged: 77, warned: 2, partly: 10, rejected: 17, outside: 1 });
  });

  for (const row of WORKED_VERDICTS) {
    it(`${row.row}: ${row.title}`, () => {
      const result = parseObjects(row.objects);
      const { rules, problems } = result;
      if (row.outside !== undefined) {
        const flow = { from: '203.0.113.9', to: '10.9.0.1', protocol: 6, port: 22 };
        expect(() => oracleConnection(WORKED_WORLD, rules, flow, { mode: 'always' })).toThrow(OracleInputError);
        return;
      }
      if (row.refused === undefined) expect(problems).toEqual([]);
      else expect(problems).toContainEqual(expect.objectContaining(row.refused));
      if (row.refused?.code === 'InvalidSpec') expect(result.refused).toBe(row.flows === undefined);
      if (row.refused !== undefined && row.refused.code !== 'InvalidSpec') {
        expect(problems.map(({ code }) => code)).toEqual(problems.map(() => row.refused?.code));
      }
      for (const flow of row.flows ?? []) {
        const { expected, oracle, compiled } = judgeFlow(rules, flow, row.mode === undefined ? {} : { mode: row.mode });
        expect({ flow, oracle, compiled }).toEqual({ flow, oracle: expected, compiled: expected });
      }
    });
  }
});
