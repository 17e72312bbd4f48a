/** What goes wrong with what an agent keeps: its files, their disk, its socket, its pins. */
import { execFileSync } from 'node:child_process';
import { existsSync, readFileSync, rmSync, truncateSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { STATE_FILES } from '@weir/node-agent/state/state-files.ts';
import type { Random } from '../random.ts';
import type { Stage } from '../stage.ts';
import { type Action, action } from './action.ts';
import { anyNode } from './programs.ts';

/** What is left of the state disk is written full. */
async function fillDisk(stage: Stage, random: Random): Promise<void> {
  const node = anyNode(stage, random);
  const file = join(stage.node(node).stateDir, 'filler');
  stage.note(`fill the state disk of node-${node}`);
  stage.faults.add(`disk of node-${node} full`, () => rmSync(file, { force: true }));
  let full = 0;
  for (let size = 1 << 20; size >= 1; size >>= 1)
    try {
      writeFileSync(file, Buffer.alloc(size), { flag: 'a' });
    } catch (error) {
      // Another fault may have made it read-only before.
      if (!['ENOSPC', 'EROFS'].includes((error as NodeJS.ErrnoException).code ?? '')) throw error;
      full += 1;
    }
  if (full > 0 && existsSync(file)) stage.ledger.took('disk full');
}

/** Nothing can be written to the state disk. */
async function lockDisk(stage: Stage, random: Random): Promise<void> {
  const node = anyNode(stage, random);
  const { stateDir } = stage.node(node);
  const remount = (how: 'ro' | 'rw'): unknown =>
    execFileSync('mount', ['-o', `remount,${how}`, stateDir], { stdio: 'pipe' });
  stage.note(`the state disk of node-${node} is read-only`);
  try {
    remount('ro');
  } catch (error) {
    // A file is being written just now.
    if (String(error).includes('busy')) return;
    throw error;
  }
  stage.ledger.took('disk read-only');
  stage.faults.add(`disk of node-${node} read-only`, () => void remount('rw'));
}

const WAYS = ['lost', 'torn', 'older', 'empty'] as const;

function spoil(stage: Stage, node: number, name: string, how: (typeof WAYS)[number]): boolean {
  const path = join(stage.node(node).stateDir, name);
  if (!existsSync(path)) return false;
  const before = readFileSync(path);
  if (how === 'lost') rmSync(path);
  else if (how === 'torn') truncateSync(path, Math.floor(before.length / 2));
  else if (how === 'empty') truncateSync(path);
  else {
    const older = stage.olderFile(node, name);
    if (older === undefined || older.equals(before)) return false;
    writeFileSync(path, older);
  }
  return true;
}

/** The agent ends, and finds files gone, cut, emptied, or as they once were, when it starts again. */
const spoilState =
  (how: (typeof WAYS)[number]): Action['play'] =>
  async (stage, random) => {
    const node = anyNode(stage, random);
    const names = random.some(STATE_FILES, random.between(1, STATE_FILES.length));
    stage.note(`kill the agent of node-${node}, and its ${names.join(', ')} are ${how}`);
    await stage.faults.kill({ agent: node });
    stage.stateLost(node);
    for (const how of ['read-only', 'full']) stage.faults.mend(`disk of node-${node} ${how}`);
    for (const name of names)
      if (spoil(stage, node, name, how)) {
        stage.ledger.took(`state file ${how}`);
        stage.ledger.took(`${name} spoiled`);
      }
  };

async function removeSocket(stage: Stage, random: Random): Promise<void> {
  const node = anyNode(stage, random);
  stage.note(`remove the socket of the agent of node-${node}`);
  const { socket } = stage.node(node);
  if (existsSync(socket)) stage.ledger.took('socket removed');
  rmSync(socket, { force: true });
}

async function removeLinks(stage: Stage, random: Random): Promise<void> {
  const node = anyNode(stage, random);
  stage.note(`remove the pinned links of node-${node}`);
  stage.removeLinks(node);
}

const MAPS = [
  'endpoint_array',
  'endpoints',
  'ipcache',
  'policy_classes',
  'policy_verdicts',
  'ct4',
  'settings',
] as const;

async function removeMapPin(stage: Stage, random: Random): Promise<void> {
  const node = anyNode(stage, random);
  const map = random.pick(MAPS);
  stage.note(`remove the pin of map ${map} of node-${node}`);
  stage.removeMapPin(node, map);
}

export const STORAGE: readonly Action[] = [
  action('disk-full', 2, fillDisk, 'disk full'),
  action('disk-read-only', 1, lockDisk, 'disk read-only'),
  ...WAYS.map((how, index) =>
    // Each file is a target: whichever came up already, this one is the duty of this way.
    action(`state-${how}`, 1, spoilState(how), `state file ${how}`, `${STATE_FILES[index]} spoiled`),
  ),
  action('socket', 1, removeSocket, 'socket removed'),
  action('links', 1, removeLinks, 'link removed'),
  action('map-pins', 1, removeMapPin, 'map pin removed'),
];
