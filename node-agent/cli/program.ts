import { line } from '@weir/process/printable';
import { Command, CommanderError, Option } from 'commander';
import { type AddCommands, COMMANDS, JUDGES } from './commands.ts';
import { createContext, DEFAULT_SOCKET, type Output, terminal } from './context.ts';
import { CliError, UsageError } from './errors.ts';

export interface CliOptions {
  /** Arguments after the program's name. */
  readonly args: readonly string[];
  readonly version: string;
  /** Default: all of `weir`. */
  readonly commands?: readonly AddCommands[];
  /** How long the agent may take to answer, in milliseconds. Default 10,000. */
  readonly answerMs?: number;
  readonly out: Output;
  readonly err: Output;
  /** Ends the command. Its reason, when a CliError, says with which exit code. */
  readonly signal: AbortSignal;
}

/**
 * Runs one command; returns the exit code: 0, 1 for a failure, 2 for wrong arguments (64 of commands that judge files, which have codes of their own), 124 when `--timeout` is over before what was
 * waited for, 130 and 143 when SIGINT or SIGTERM ended it. `monitor --timeout` that ends in time: 0.
 */
export async function runCli(options: CliOptions): Promise<number> {
  let exitCode = 0;
  const [out, err] = [terminal(options.out), terminal(options.err)];
  const context = createContext({
    out,
    err,
    signal: options.signal,
    answerMs: options.answerMs,
    setExitCode: (code) => {
      exitCode = code;
    },
  });
  const program = new Command('weir')
    .description('Talks to the Weir agent of this node')
    .version(options.version)
    .addOption(new Option('--socket <path>', "the agent's unix socket").env('WEIR_SOCKET').default(DEFAULT_SOCKET))
    .addOption(
      new Option('-o, --output <format>', 'how to print; sarif: `policy validate` only')
        .choices(['text', 'json', 'sarif'])
        .default('text'),
    )
    .addHelpText(
      'after',
      '\nExit codes: 0 done, 1 failed (also: the agent ends, or does not answer within 10 s or --timeout), 2 wrong arguments (64 of commands that judge files), 124 --timeout is over ' +
        'before what was waited for (`monitor --timeout`: 0), 130 or 143 ended by SIGINT or SIGTERM',
    )
    .showHelpAfterError('(add --help for usage)')
    .exitOverride()
    .configureOutput({ writeOut: (text) => out.write(text), writeErr: (text) => err.write(text) });
  program.hook('preAction', (_, command) => {
    if (command.optsWithGlobals().output === 'sarif' && command.name() !== 'validate')
      throw new UsageError('--output sarif is for `policy validate` only', usageCode(options.args));
  });
  for (const add of options.commands ?? COMMANDS) add(program, context, options.version);
  addHelpCommand(program);
  inherit(program);
  try {
    await program.parseAsync([...options.args], { from: 'user' });
    return exitCode;
  } catch (error) {
    // commander has printed its own message; help and version are no errors.
    if (error instanceof CommanderError) return error.exitCode === 0 ? 0 : usageCode(options.args);
    // Nobody reads what is printed any more.
    if (error === options.signal.reason && !(error instanceof CliError)) return exitCode;
    if (!(error instanceof CliError)) throw error;
    err.write(line(`weir: ${error.message}`));
    return error.exitCode;
  }
}

/** Exit code for wrong arguments. */
function usageCode(args: readonly string[]): number {
  const words = args.filter((arg) => !arg.startsWith('-')).join(' ');
  return JUDGES.some((name) => ` ${words} `.includes(` ${name} `)) ? 64 : 2;
}

/** For commands of commands, too: commander's own looks at the first word only. */
function addHelpCommand(program: Command): void {
  program
    .helpCommand(false)
    .command('help')
    .description('Help on a command')
    .argument('[command...]', 'as `policy wait`')
    .action((names: readonly string[]) => {
      let found: Command | undefined = program;
      for (const name of names) found = found?.commands.find((each) => each.name() === name);
      if (found === undefined)
        throw new UsageError(`there is no command "${names.join(' ')}"; \`weir help\` shows them`);
      found.help();
    });
}

/** commander copies these settings to a subcommand only when it is added ready-made. */
function inherit(command: Command): void {
  for (const child of command.commands) {
    child.copyInheritedSettings(command);
    inherit(child);
  }
}
