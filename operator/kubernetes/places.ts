/**
 * Places for the requests of one writer: so many at once, and no more. Requests that wait are let in by owner in turns: who brings ten
 * thousand waits for ten thousand, who brings one for one of each of the others.
 *
 * Guarantees: an owner's requests go in the order in which they came, urgent ones first; a request that is asked for by several owners goes
 * with the turn that comes first.
 */

/** A request that waits. */
interface Ticket {
  readonly key: string;
  readonly urgent: boolean;
  readonly enter: () => void;
  readonly refuse: (why: Error) => void;
  /** It waits no more. */
  left: boolean;
}

/** What waits in the turns of one owner; tickets that have left in another's turn among it. */
interface Queue {
  readonly urgent: Ticket[];
  readonly others: Ticket[];
}

export interface Entry {
  /** Of the object; one request at a time has it. */
  readonly key: string;
  readonly owner: string;
  /** Goes before the owner's other requests. */
  readonly urgent?: boolean;
}

export class Places {
  readonly #most: number;
  /** By owner, in the order of their turns. */
  readonly #queues = new Map<string, Queue>();
  readonly #tickets = new Map<string, Ticket>();
  /** Owners that asked for requests that have not come yet, by key. */
  readonly #asked = new Map<string, Set<string>>();
  #taken = 0;
  #closed: Error | undefined;

  /** @param most requests at once, from 1 */
  constructor(most: number) {
    this.#most = most;
  }

  /** Resolves once the request has a place, which is to be left when it has ended. Rejects with the reason when that is closed before. */
  enter({ key, owner, urgent = false }: Entry): Promise<void> {
    const asking = this.#asked.get(key);
    this.#asked.delete(key);
    if (this.#closed !== undefined) return Promise.reject(this.#closed);
    if (this.#taken < this.#most) {
      this.#taken += 1;
      return Promise.resolve();
    }
    return new Promise((resolve, reject) => {
      const ticket: Ticket = { key, urgent, enter: resolve, refuse: reject, left: false };
      this.#tickets.set(key, ticket);
      this.#queue(ticket, owner);
      for (const other of asking ?? []) if (other !== owner) this.#queue(ticket, other);
    });
  }

  leave(): void {
    this.#taken -= 1;
    this.#next();
  }

  /** The request with this key, which waits or is about to come, goes in the turns of this owner, too. */
  ask(key: string, owner: string): void {
    const ticket = this.#tickets.get(key);
    if (ticket !== undefined) this.#queue(ticket, owner);
    else this.#asked.set(key, (this.#asked.get(key) ?? new Set()).add(owner));
  }

  /** Nobody asks any more for the request with this key, which may never come. */
  forget(key: string): void {
    this.#asked.delete(key);
  }

  /** Lets nobody in any more. */
  close(why: Error): void {
    this.#closed = why;
    for (const ticket of this.#tickets.values()) ticket.refuse(why);
    this.#tickets.clear();
    this.#queues.clear();
    this.#asked.clear();
  }

  #queue(ticket: Ticket, owner: string): void {
    const queue = this.#queues.get(owner) ?? { urgent: [], others: [] };
    (ticket.urgent ? queue.urgent : queue.others).push(ticket);
    this.#queues.set(owner, queue);
  }

  /** Lets in who is next, while there is a place. */
  #next(): void {
    while (this.#taken < this.#most) {
      const [first] = this.#queues;
      if (first === undefined) return;
      const [owner, queue] = first;
      const ticket = takeFrom(queue.urgent) ?? takeFrom(queue.others);
      this.#queues.delete(owner);
      if (ticket === undefined) continue;
      this.#queues.set(owner, queue);
      ticket.left = true;
      this.#tickets.delete(ticket.key);
      this.#taken += 1;
      ticket.enter();
    }
  }
}

function takeFrom(tickets: Ticket[]): Ticket | undefined {
  for (;;) {
    const ticket = tickets.shift();
    if (ticket === undefined || !ticket.left) return ticket;
  }
}
