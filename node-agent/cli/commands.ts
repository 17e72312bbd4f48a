import type { Command } from 'commander';
import type { CliContext } from './context.ts';
import { addExplainCommand } from './explain-command.ts';
import { addFqdnCommands } from './fqdn-commands.ts';
import { addMonitorCommand } from './monitor-command.ts';
import { addPolicyCommands } from './policy-commands.ts';
import { addServiceCommands } from './service-commands.ts';
import { addEndpointCommands, addIdentityCommands, addMapCommands, addStatusCommands } from './status-commands.ts';
import { addTableCommands } from './table-commands.ts';

/** Adds a part's commands to `weir`. @param version of the command */
export type AddCommands = (program: Command, context: CliContext, version: string) => void;

/** The commands of `weir`, in the order of its help. */
export const COMMANDS: readonly AddCommands[] = [
  addStatusCommands,
  addEndpointCommands,
  addPolicyCommands,
  addExplainCommand,
  addMonitorCommand,
  addMapCommands,
  addIdentityCommands,
  addServiceCommands,
  addFqdnCommands,
  addTableCommands,
];

/** Those that judge files: their exit codes are for scripts, and 1 and 2 are verdicts. */
export const JUDGES: readonly string[] = ['policy validate', 'policy diff', 'explain'];
