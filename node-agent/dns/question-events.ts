/** Questions of pods as events, and names of addresses in those of flows (`weir monitor`). */
import { RESERVED_ID } from '@weir/identity';
import { familyOf, fullPrefix, parseAddress } from '@weir/net';
import type { StateDB } from '@weir/statedb';
import { map, type Observable, Subject } from 'rxjs';
import type { Core } from '../core.ts';
import type { EventNames, EventSource, FlowEvent, FlowPeer, PeerNaming } from '../parts/contract.ts';
import type { DnsQuery } from './protocol.ts';
import type { FqdnTable } from './types.ts';

const DNS = 'dns';
const WHY: Readonly<Record<DnsQuery['verdict'], (rcode: string) => string>> = {
  answered: (rcode) => `the server answered ${rcode}`,
  refused: () => 'no rule lets the pod ask for it',
  dropped: () => 'the pod or its rules are not known, or it asks for more at a time than it may',
  failed: () => 'the server did not answer',
};

export class QuestionEvents implements EventSource {
  readonly verdict = DNS;
  readonly #core: Pick<Core, 'db' | 'tables' | 'naming'>;
  readonly #asked = new Subject<DnsQuery>();

  constructor(core: Pick<Core, 'db' | 'tables' | 'naming'>) {
    this.#core = core;
  }

  tell(query: DnsQuery): void {
    this.#asked.next(query);
  }

  events(names: EventNames): Observable<FlowEvent> {
    return this.#asked.pipe(map((query) => this.#event(query, names)));
  }

  #event(query: DnsQuery, names: EventNames): FlowEvent {
    const { endpoint, name, qtype, server, port, protocol, verdict, rcode = '', micros } = query;
    const ms = (micros / 1000).toFixed(1);
    const known = this.#core.naming.endpoint(endpoint);
    const identity = known?.identity ?? 0;
    const own = known?.row.addresses.find((address) => familyOf(address) === familyOf(server));
    return {
      time: new Date().toISOString(),
      verdict: DNS,
      direction: 'egress',
      endpoint,
      source: own === undefined ? { address: '', identity } : names.peer(parseAddress(own).bytes, identity),
      destination: this.#server(server, names),
      protocol: protocol.toUpperCase(),
      destinationPort: port,
      reason: verdict,
      message: `${qtype} ${name}: ${WHY[verdict](rcode)} (${ms} ms)`,
      policies: [],
      revision: 0,
      question: { name, type: qtype, ...(rcode === '' ? {} : { rcode }), milliseconds: Number(ms) },
    };
  }

  /** A server outside is of the world here, also where a CIDR of a rule holds it. */
  #server(address: string, names: EventNames): FlowPeer {
    const { db, tables } = this.#core;
    using snapshot = db.read();
    const identity = snapshot.get(tables.ipcache, fullPrefix(address))?.identity ?? worldOf(address);
    return names.peer(parseAddress(address).bytes, identity);
  }
}

function worldOf(address: string): number {
  return familyOf(address) === 4 ? RESERVED_ID.world : RESERVED_ID['world-ipv6'];
}

/** The names that endpoints of this node have looked an address up by. */
export class LookedUpNames implements PeerNaming {
  readonly #db: StateDB;
  readonly #names: FqdnTable;

  constructor(db: StateDB, names: FqdnTable) {
    this.#db = db;
    this.#names = names;
  }

  backendOf(): readonly string[] {
    return [];
  }

  hostNames(address: string): readonly string[] {
    using snapshot = this.#db.read();
    return [...new Set(Array.from(snapshot.list(this.#names, 'address', address), ({ name }) => name))].sort();
  }
}
