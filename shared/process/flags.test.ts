import { describe, expect, it } from '@jest/globals';
import { Command } from 'commander';
import { addFlags, checkFlags, type Flags, flag } from './flags.ts';

function parsed(flags: Flags, args: readonly string[], variables?: string): object {
  const command = new Command('x').exitOverride();
  addFlags(command, [flags], variables);
  return command.parse([...args], { from: 'user' }).opts();
}

describe('flags', () => {
  it('have their values in the configuration, and --no-… where they say so', () => {
    const flags = {
      most: flag<number>('--most <count>', 'how many').default(2).argParser(Number),
      elect: flag<boolean>('--elect', 'do').default(true).orNot('do not'),
    };
    expect(parsed(flags, [])).toEqual({ most: 2, elect: true });
    expect(parsed(flags, ['--most', '3', '--no-elect'])).toEqual({ most: 3, elect: false });
    const command = new Command('x');
    addFlags(command, [flags]);
    expect(command.helpInformation()).toMatch(/--elect +do \(.*\n +--no-elect +do not\n/);
  });

  it('have variables where the program has', () => {
    process.env.FLAGS_TEST_MOST = '7';
    try {
      const flags = { most: flag<string>('--most <count>', '') };
      expect(parsed(flags, [])).toEqual({});
      expect(parsed({ most: flag<string>('--most <count>', '') }, [], 'FLAGS_TEST')).toEqual({ most: '7' });
      expect(parsed({ most: flag<string>('--most <count>', '') }, ['--most=1'], 'FLAGS_TEST')).toEqual({ most: '1' });
    } finally {
      delete process.env.FLAGS_TEST_MOST;
    }
  });

  it('by another name than the configuration has are refused', () => {
    expect(() => parsed({ more: flag('--most <count>', '') }, [])).toThrow('is most in the configuration, not more');
  });

  it('are looked at together by the parts that they are of', () => {
    const seen: object[] = [];
    checkFlags([{}, { checkFlags: (config: object) => void seen.push(config) }], { most: 1 });
    expect(seen).toEqual([{ most: 1 }]);
  });
});
