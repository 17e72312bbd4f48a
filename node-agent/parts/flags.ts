import { isAbsolute } from 'node:path';
import { InvalidArgumentError, Option } from 'commander';

/** A flag of the agent, and the type of its value. The variable `WEIR_…` of the same name counts where the flag is absent. */
export class Flag<Value> extends Option {
  /** Of the type only: values are in the configuration. */
  declare readonly value: Value;
}

/** Each by the name that its value has in the configuration: `--pod-cidr` is `podCidr`, `--no-kubernetes` is `kubernetes`. */
export type Flags = Readonly<Record<string, Flag<unknown>>>;

export type ConfigOf<F extends Flags> = {
  readonly [Name in keyof F]: F[Name] extends Flag<infer Value> ? Value : never;
};

/** @param flags as commander reads them: `--pod-cidr <prefix>` */
export function flag<Value>(flags: string, description: string): Flag<Value> {
  const name = /^--([a-z-]+)/.exec(flags)?.[1] ?? '';
  return new Flag<Value>(flags, description).env(`WEIR_${name.toUpperCase().replaceAll('-', '_')}`);
}

export function path(text: string): string {
  if (!isAbsolute(text)) throw new InvalidArgumentError('It must be an absolute path.');
  return text;
}
