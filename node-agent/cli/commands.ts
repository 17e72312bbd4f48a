import type { Command } from 'commander';
import type { CliContext } from './context.ts';
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
  addMonitorCommand,
  addMapCommands,
  addIdentityCommands,
  addServiceCommands,
  addTableCommands,
];
