/** Flags of a program made of parts: each part declares its own, and the type of the configuration follows from them. */
import { isAbsolute } from 'node:path';
import { type Command, CommanderError, InvalidArgumentError, Option } from 'commander';

/** A flag, and the type of its value. */
export class Flag<Value> extends Option {
  /** Of the type only: values are in the configuration. */
  declare readonly value: Value;
  /** A second flag that says no, with a line of its own in --help. */
  opposite: Option | undefined;

  /** Of a boolean flag `--x`: adds `--no-x`. */
  orNot(description: string): this {
    this.opposite = new Option(this.flags.replace('--', '--no-'), description);
    return this;
  }
}

/** Each by the name that its value has in the configuration: `--pod-cidr` is `podCidr`, `--no-kubernetes` is `kubernetes`. */
export type Flags = Readonly<Record<string, Flag<unknown>>>;

export type ConfigOf<F extends Flags> = {
  readonly [Name in keyof F]: F[Name] extends Flag<infer Value> ? Value : never;
};

/** What a part says of its flags. */
export interface FlagTraits<Base, F extends Flags> {
  readonly flags?: F;
  /** What is wrong with the values of flags that do not go together: throws the program's error of its configuration. */
  readonly checkFlags?: (config: Base & ConfigOf<F>) => void;
}

/** The same of a part in a list, which does not know the types of the values. */
export interface Flagged {
  readonly flags?: Flags;
  readonly checkFlags?: (config: never) => void;
}

/** @param flags as commander reads them: `--pod-cidr <prefix>` */
export function flag<Value>(flags: string, description: string): Flag<Value> {
  return new Flag<Value>(flags, description);
}

/** Names of Kubernetes' objects. */
const NAME = /^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$/;

export interface NamespacedName {
  readonly namespace: string;
  readonly name: string;
}

/** Parses the name of an object in a namespace, `NAMESPACE/NAME`; `example` is one. */
export function namespacedName(example: string): (text: string) => NamespacedName {
  return (text) => {
    const [namespace = '', name = '', ...more] = text.split('/');
    if (!NAME.test(namespace) || !NAME.test(name) || more.length > 0)
      throw new InvalidArgumentError(`It must be NAMESPACE/NAME, such as ${example}.`);
    return { namespace, name };
  };
}

/** The value of `--cluster-name`, which is part of every identity: what one program takes, the other must. */
export function clusterName(text: string): string {
  if (!/^[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?$/.test(text))
    throw new InvalidArgumentError('Write at most 32 lower-case letters, digits and hyphens.');
  return text;
}

/**
 * Adds flags to a command, in their order.
 * @param variables where a flag is absent its variable counts: with `WEIR`, that of `--node-name` is WEIR_NODE_NAME. Default: there are none
 */
export function addFlags(command: Command, all: readonly Flags[], variables?: string): void {
  for (const [name, each] of all.flatMap((flags) => Object.entries(flags))) {
    if (each.attributeName() !== name)
      throw new TypeError(`flag ${each.flags} is ${each.attributeName()} in the configuration, not ${name}`);
    const variable = variables && variableOf(each, variables);
    if (variable === undefined || saysNo(command, each, variable)) delete each.envVar;
    else each.env(variable);
    command.addOption(each);
    if (each.opposite !== undefined) command.addOption(each.opposite);
  }
}

/** The variable that counts where the flag is absent. @param prefix of all variables of the program: `WEIR` */
export function variableOf({ long }: Pick<Option, 'long'>, prefix: string): string {
  return `${prefix}_${(long ?? '').replace(/^--/, '').toUpperCase().replaceAll('-', '_')}`;
}

/** Whether the variable of a flag without a value says that the flag is absent: commander looks only whether it is set. */
function saysNo(command: Command, { required, optional }: Option, variable: string): boolean {
  const text = process.env[variable]?.toLowerCase();
  if (required || optional || text === undefined || text === 'true' || text === '1') return false;
  if (text !== '' && text !== 'false' && text !== '0')
    command.error(`error: the variable ${variable} is '${text}'. It must be true or false.`);
  return true;
}

/** Has each part look at the values of its flags. */
export function checkFlags(parts: readonly Flagged[], config: object): void {
  for (const part of parts) part.checkFlags?.(config as never);
}

export function path(text: string): string {
  if (!isAbsolute(text)) throw new InvalidArgumentError('It must be an absolute path.');
  return text;
}

export interface HostPort {
  /** Undefined: all addresses, of both families. */
  readonly host: string | undefined;
  readonly port: number;
}

/** Parses the value of a flag: `host:port`, `[v6]:port` or `:port`. */
export function hostPort(text: string): HostPort {
  const match = /^(?:\[([0-9a-f:.]+)\]|([^:[\]]*)):(\d{1,5})$/i.exec(text);
  const port = Number(match?.[3]);
  if (match === null || port > 65535)
    throw new InvalidArgumentError('It must be HOST:PORT, such as 127.0.0.1:9879 or [::1]:9879.');
  return { host: match[1] ?? (match[2] || undefined), port };
}

/**
 * Reads arguments into a command with these flags, which prints nothing and ends no process. `variables`: as of `addFlags`.
 * @returns undefined: they are read. `printed`: they ask for help or the version. `complaint`: what is wrong, in a sentence
 */
export function parseArguments(
  command: Command,
  args: readonly string[],
  flags: readonly Flags[],
  variables?: string,
): { readonly printed: string } | { readonly complaint: string } | undefined {
  let printed = '';
  let complaint = '';
  command.exitOverride().configureOutput({
    writeOut: (text) => {
      printed += text;
    },
    writeErr: (text) => {
      complaint += text;
    },
  });
  try {
    addFlags(command, flags, variables);
    command.allowExcessArguments(false).parse([...args], { from: 'user' });
    return undefined;
  } catch (error) {
    if (!(error instanceof CommanderError)) throw error;
    if (error.exitCode === 0) return { printed };
    const said = (complaint || error.message).trim().replace(/^error: /, '');
    return { complaint: `${said} (--help lists the flags)` };
  }
}
