/**
 * Test helper: what an object keeps, counted. It follows fields, private ones too, which only the inspector shows; not what closures hold,
 * nor what the runtime's own objects do.
 */
import { Session } from 'node:inspector';
import v8 from 'node:v8';

/** Fields that hold something, as `Class.field`, to how many things they hold in all instances; `new Class` to how many instances there are. */
export type Kept = Readonly<Record<string, number>>;

interface Property {
  readonly name: string;
  readonly value?: { readonly objectId?: string };
}

/** Where the inspector, which knows the main context only, and this module hand objects to each other. */
const HAND = Symbol.for('weir.test.hand');
const hand: { given?: object; take?: (...values: unknown[]) => void } = {};
(v8 as unknown as Record<symbol, unknown>)[HAND] = hand;

class Inspector {
  readonly #session = new Session();

  constructor() {
    this.#session.connect();
  }

  /** Values of the private fields of `object` that are objects. */
  privateFields(object: object): readonly (readonly [name: string, value: object])[] {
    hand.given = object;
    const expression = `process.getBuiltinModule('node:v8')[Symbol.for('weir.test.hand')]`;
    const given = this.#post('Runtime.evaluate', { expression: `${expression}.given` }).result;
    const { objectId } = given as { readonly objectId: string };
    const shown = this.#post('Runtime.getProperties', { objectId, ownProperties: true });
    const fields = ((shown.privateProperties ?? []) as readonly Property[]).filter(({ value }) => value?.objectId);
    let values: readonly unknown[] = [];
    hand.take = (...taken) => {
      values = taken;
    };
    this.#post('Runtime.callFunctionOn', {
      objectId,
      functionDeclaration: `(...values) => ${expression}.take(...values)`,
      arguments: fields.map(({ value }) => ({ objectId: value?.objectId })),
    });
    this.#post('Runtime.releaseObjectGroup', { objectGroup: '' });
    return fields.map(({ name }, index) => [name, values[index] as object]);
  }

  stop(): void {
    this.#session.disconnect();
    delete hand.given;
    delete hand.take;
  }

  #post(method: string, params: object): Record<string, unknown> {
    let answer: Record<string, unknown> | undefined;
    this.#session.post(method, params, (error: Error | null, result?: object) => {
      if (error !== null) throw new Error(`${method}: ${JSON.stringify(error)}`);
      answer = result as Record<string, unknown>;
    });
    if (answer === undefined || 'exceptionDetails' in answer)
      throw new Error(`${method}: ${JSON.stringify(answer?.exceptionDetails)}`);
    return answer;
  }
}

/** Counts what `roots` keep. Of classes whose name `skip` has nothing is looked at. */
export function kept(roots: Readonly<Record<string, unknown>>, skip: ReadonlySet<string>): Kept {
  const inspector = new Inspector();
  const counts: Record<string, number> = {};
  const seen = new Set<unknown>();
  const queue: (readonly [path: string, value: object])[] = [];
  const meet = (path: string, value: unknown): void => {
    if (typeof value !== 'object' || value === null || seen.has(value)) return;
    seen.add(value);
    queue.push([path, value]);
  };
  const count = (path: string, by: number): void => {
    if (by > 0) counts[path] = (counts[path] ?? 0) + by;
  };
  try {
    for (const [name, root] of Object.entries(roots)) meet(name, root);
    for (let at = 0; at < queue.length; at += 1) {
      const [path, value] = queue[at] as (typeof queue)[number];
      if (ArrayBuffer.isView(value)) count(path, value.byteLength);
      else if (isMap(value)) {
        count(path, value.size);
        for (const [key, item] of value) {
          meet(`${path}[]`, key);
          meet(`${path}[]`, item);
        }
      } else if (isSet(value) || Array.isArray(value)) {
        const items = [...value];
        count(path, items.length);
        for (const item of items) meet(`${path}[]`, item);
      } else {
        const name = className(value);
        if (name !== undefined && skip.has(name)) continue;
        if (name !== undefined) count(`new ${name}`, 1);
        const owner = name ?? path;
        for (const key of Reflect.ownKeys(value))
          meet(`${owner}.${String(key)}`, Object.getOwnPropertyDescriptor(value, key)?.value);
        if (name !== undefined)
          for (const [field, held] of inspector.privateFields(value)) meet(`${owner}.${field}`, held);
      }
    }
  } finally {
    inspector.stop();
  }
  return counts;
}

const tag = (value: object): string => Object.prototype.toString.call(value);
const isMap = (value: object): value is Map<unknown, unknown> => tag(value) === '[object Map]';
const isSet = (value: object): value is Set<unknown> => tag(value) === '[object Set]';

/** undefined for a plain object. */
function className(value: object): string | undefined {
  const prototype = Object.getPrototypeOf(value) as { readonly constructor?: { readonly name?: string } } | null;
  if (prototype === null || Object.getPrototypeOf(prototype) === null) return undefined;
  return prototype.constructor?.name ?? 'anonymous';
}
