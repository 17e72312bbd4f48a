/**
 * State is in tables, and nowhere beside them: whatever a later decision depends on can be printed, dumped, watched and counted.
 * A collection that a class or module keeps is one of the exceptions below, each for one of four reasons.
 */
import { globSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from '@jest/globals';

const root = join(import.meta.dirname, '..');

type Reason =
  /** Keys that the round under way has yet to look at. */
  | 'marks'
  /** Descriptors, timers, streams, callbacks, parts that run. */
  | 'handles'
  /** Between a request and its answer. */
  | 'in flight'
  /** What follows from an object that never changes. */
  | 'memo';

const EXCEPTIONS: Readonly<Record<string, Reason>> = {
  'node-agent/api/context.ts #inKernel': 'in flight',
  'node-agent/api/context.ts #wanted': 'in flight',
  'node-agent/api/endpoint-model.ts #directions': 'in flight',
  'node-agent/api/socket-guard.ts #later': 'handles',
  'node-agent/cni/service.ts #queues': 'in flight',
  'node-agent/datapath/conntrack.ts #flows': 'in flight',
  'node-agent/datapath/conntrack.ts #spent': 'in flight',
  'node-agent/datapath/part-programs.ts #hooks': 'handles',
  'node-agent/datapath/part-programs.ts #objects': 'handles',
  'node-agent/datapath/slot-store.ts #open': 'handles',
  'node-agent/datapath/sync-loop.ts #bodies': 'in flight',
  'node-agent/derive/addresses.ts #pairs': 'in flight',
  'node-agent/derive/cidr-peers.ts #left': 'marks',
  'node-agent/derive/derivers.ts #sets': 'in flight',
  'node-agent/derive/in-force.ts #dirtyCidrs': 'marks',
  'node-agent/derive/in-force.ts POLICIES_OF': 'memo',
  'node-agent/derive/inputs.ts #streams': 'handles',
  'node-agent/derive/ipcache.ts dirty': 'marks',
  'node-agent/derive/local-endpoints.ts #dirty': 'marks',
  'node-agent/derive/local-endpoints.ts #namespacesChanged': 'marks',
  'node-agent/derive/local-endpoints.ts #podsChanged': 'marks',
  'node-agent/derive/namespace-rows.ts #used': 'in flight',
  'node-agent/derive/peer-port-names.ts #arrived': 'marks',
  'node-agent/derive/peer-port-names.ts #dirty': 'marks',
  'node-agent/derive/node-peers.ts #dirty': 'marks',
  'node-agent/derive/peer-set-views.ts #dirtyIdentities': 'marks',
  'node-agent/derive/peer-set-views.ts #dirtySets': 'marks',
  'node-agent/derive/policies.ts #dirty': 'marks',
  'node-agent/derive/remote-endpoints.ts #dirty': 'marks',
  'node-agent/derive/shape-compiler.ts LAST_CHANGES': 'memo',
  'node-agent/derive/slots.ts #dirty': 'marks',
  'node-agent/dns/known-names.ts #told': 'in flight',
  'node-agent/dns/proxy/conversation.ts #said': 'in flight',
  'node-agent/dns/proxy/datagrams.ts #known': 'memo',
  'node-agent/dns/proxy/judge.ts #asked': 'in flight',
  'node-agent/dns/proxy/learning.ts #lacking': 'in flight',
  'node-agent/dns/proxy/learning.ts #wanted': 'in flight',
  'node-agent/dns/proxy/libc.ts koffiModule': 'handles',
  'node-agent/dns/proxy/poller.ts #handlers': 'handles',
  'node-agent/dns/proxy/proxy.ts #oddities': 'in flight',
  'node-agent/dns/proxy/tcp-frames.ts #parts': 'in flight',
  'node-agent/dns/proxy/tcp.ts #connections': 'handles',
  'node-agent/dns/proxy/tcp.ts #listeners': 'handles',
  'node-agent/dns/proxy/tcp.ts #open': 'in flight',
  'node-agent/dns/proxy/tcp.ts #waiting': 'in flight',
  'node-agent/dns/proxy/udp.ts #kept': 'handles',
  'node-agent/dns/proxy/udp.ts #listeners': 'handles',
  'node-agent/dns/proxy/udp.ts #senders': 'handles',
  'node-agent/dns/proxy/udp.ts #upstreams': 'handles',
  'node-agent/dns/proxy/udp.ts #waiting': 'in flight',
  'node-agent/kubernetes/connection.ts #timers': 'handles',
  'node-agent/kubernetes/source.ts #reflectors': 'handles',
  'node-agent/realised/policy-failures.ts LACKING': 'memo',
  'node-agent/services/health.ts #running': 'handles',
  'operator/kubernetes/attempts.ts #waiting': 'handles',
  'operator/kubernetes/inputs.ts #reflectors': 'handles',
  'operator/kubernetes/places.ts #asked': 'in flight',
  'operator/kubernetes/places.ts #queues': 'in flight',
  'operator/kubernetes/places.ts #tickets': 'in flight',
  'operator/model/marks.ts #of': 'marks',
  'operator/kubernetes/target.ts #leaving': 'in flight',
  'operator/kubernetes/target.ts #writing': 'in flight',
};

const COLLECTION = /\b(Map|Set|WeakMap|WeakSet|Array)<|\bnew (Map|Set|WeakMap|WeakSet|Array)\b|= \[|= \{\}|\[\](;| =)/;
const FIELD =
  /^ {2}(?:(?:static|private|protected|public|readonly|override|declare) )*(#?\w+)(?:[?!]?: .*?)?(?: =.*)?;$/;
const VARIABLE = /^(?:export )?let (\w+)/;
const CONSTANT = /^(?:export )?const (\w+)(?:: [^=]*)? = new (?:Map|Set|WeakMap|WeakSet)(?:<[^>]*>)?\(\);/;
/** Neither can be changed where it is. */
const FIXED = /: (Readonly(Map|Set|Array)<|readonly .*\[\])/;

/** Collections that `source` keeps beyond a call: fields of classes, variables of the module. */
function kept(source: string): string[] {
  const found: string[] = [];
  let inClass = false;
  for (const line of source.split('\n')) {
    if (/^(export )?(abstract )?class /.test(line)) inClass = true;
    else if (line === '}') inClass = false;
    if (FIXED.test(line)) continue;
    const variable = (VARIABLE.exec(line) ?? CONSTANT.exec(line))?.[1];
    // What a function returns, nobody keeps.
    const type = line.replace(/\([^()]*\) => [^=]*;$/, ';');
    const field = inClass && COLLECTION.test(type) ? FIELD.exec(line)?.[1] : undefined;
    found.push(...[variable, field].filter((name) => name !== undefined));
  }
  return found;
}

it('finds what is kept', () => {
  const source = [
    'let count = 0;',
    'const cache = new Map<string, number>();',
    'export const NAMES: ReadonlySet<string> = new Set();',
    "const FIXED = new Set(['a']);",
    'interface Row {',
    '  readonly map: Map<string, number>;',
    '}',
    'export class Book {',
    '  readonly #rows = new Map<string, Row>();',
    '  #list: Row[] = [];',
    '  #later: Set<string> | undefined;',
    '  readonly #running: { readonly name: string; stop(): Promise<void> }[] = [];',
    '  readonly #given: ReadonlyMap<string, Row>;',
    '  readonly #read: () => readonly Row[];',
    '  #names: readonly string[] = [];',
    '  readonly #table: Table<Row>;',
    '  method(all: Map<string, Row>): void {',
    '    const local = new Map();',
    '  }',
    '}',
  ].join('\n');
  expect(kept(source)).toEqual(['count', 'cache', '#rows', '#list', '#later', '#running']);
});

it('no component keeps state beside its tables', () => {
  const files = globSync(['operator/**/*.ts', 'node-agent/**/*.ts'], { cwd: root })
    .filter((file) => !/node_modules|\.test\.ts$|testing/.test(file))
    .sort();
  expect(files.length).toBeGreaterThan(100);
  const found = files.flatMap((file) => kept(readFileSync(join(root, file), 'utf8')).map((name) => `${file} ${name}`));
  expect(found.sort()).toEqual(Object.keys(EXCEPTIONS).sort());
});
