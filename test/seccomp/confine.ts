/**
 * `confine.ts PROFILE PROGRAM [ARG]...`: becomes the program, under a seccomp profile of the chart, as a container runtime applies it (libseccomp, no
 * new privileges).
 */
import { readFileSync } from 'node:fs';
import koffi from 'koffi';

interface Profile {
  readonly defaultAction: string;
  readonly defaultErrnoRet: number;
  readonly syscalls: readonly {
    readonly names: readonly string[];
    readonly action: string;
    readonly errnoRet?: number;
    readonly args?: readonly {
      readonly index: number;
      readonly value: number;
      readonly valueTwo?: number;
      readonly op: string;
    }[];
  }[];
}

/** seccomp.h of libseccomp. */
const COMPARISONS: Readonly<Record<string, number>> = { SCMP_CMP_EQ: 4, SCMP_CMP_MASKED_EQ: 7 };
const NO_SUCH_SYSCALL = -1;

const library = koffi.load('libseccomp.so.2');
koffi.struct('scmp_arg_cmp', { arg: 'uint32_t', op: 'int', a: 'uint64_t', b: 'uint64_t' });
const init = library.func('void *seccomp_init(uint32_t action)');
const resolve = library.func('int seccomp_syscall_resolve_name(const char *name)');
const addRule = library.func(
  'int seccomp_rule_add_array(void *filter, uint32_t action, int syscall, unsigned int count, const scmp_arg_cmp *arguments)',
);
const load = library.func('int seccomp_load(void *filter)');

function actionOf(name: string, errno = 1): number {
  if (name === 'SCMP_ACT_ALLOW') return 0x7fff0000;
  if (name === 'SCMP_ACT_ERRNO') return 0x00050000 | errno;
  throw new Error(`action ${name} is not known here`);
}

function must(result: number, what: string): void {
  if (result !== 0) throw new Error(`${what}: libseccomp answers ${result}`);
}

function confine(profile: Profile): void {
  const filter: unknown = init(actionOf(profile.defaultAction, profile.defaultErrnoRet));
  for (const { names, action, errnoRet, args = [] } of profile.syscalls) {
    const compared = args.map(({ index, value, valueTwo = 0, op }) => {
      const comparison = COMPARISONS[op];
      if (comparison === undefined) throw new Error(`comparison ${op} is not known here`);
      return { arg: index, op: comparison, a: value, b: valueTwo };
    });
    for (const name of names) {
      const number: number = resolve(name);
      if (number === NO_SUCH_SYSCALL) throw new Error(`there is no system call ${name}`);
      // Smaller numbers are of calls that this architecture does not have.
      if (number >= 0) must(addRule(filter, actionOf(action, errnoRet), number, compared.length, compared), name);
    }
  }
  must(load(filter), 'load the filter');
}

const [path = '', program = '', ...args] = process.argv.slice(2);
confine(JSON.parse(readFileSync(path, 'utf8')) as Profile);
const environment = Object.entries(process.env).flatMap(([name, value]) =>
  value === undefined ? [] : [[name, value]],
);
process.execve?.(program, [program, ...args], Object.fromEntries(environment) as Record<string, string>);
