/** The server without a network: kinds, objects and the rules that tie them together. */
import { builtinResources } from './builtin.ts';
import { BuiltinSchemas } from './builtin-schema.ts';
import { definedResources, definitionStrategy } from './crd.ts';
import { Decoder } from './decode.ts';
import { Deletes } from './deletes.ts';
import { Evictions } from './evictions.ts';
import { type JsonObject, text } from './json.ts';
import { OpenApi } from './openapi.ts';
import { OpenApiV2 } from './openapi-v2.ts';
import { ProtobufReader } from './protobuf.ts';
import { Reads } from './reads.ts';
import { Registry } from './registry.ts';
import { serviceStrategy } from './service-addresses.ts';
import { type Change, Store } from './store.ts';
import { type WriteContext, Writes } from './writes.ts';

const CRDS = 'apiextensions.k8s.io/customresourcedefinitions';
const NAMESPACES = ['default', 'kube-node-lease', 'kube-public', 'kube-system'];
/** Events older than this are dropped when others are written, as the real server's time to live does. */
const EVENT_LIFETIME = 3_600_000;
const EVENT_SWEEP = 500;

export class Core {
  readonly store: Store;
  readonly registry = new Registry();
  readonly reads: Reads;
  readonly writes: Writes;
  readonly deletes: Deletes;
  readonly evictions: Evictions;
  readonly openApi: OpenApi;
  readonly openApiV2: OpenApiV2;
  readonly protobuf: ProtobufReader;
  readonly now: () => Date;
  #eventsSinceSweep = 0;

  constructor(now: () => Date, watchHistory: number) {
    this.now = now;
    const schemas = new BuiltinSchemas();
    this.store = new Store(watchHistory);
    this.reads = new Reads(this.store);
    this.deletes = new Deletes(this.store, this.reads, this.registry, now);
    this.evictions = new Evictions(this.store, this.reads, this.deletes);
    this.writes = new Writes(this.store, this.reads, new Decoder(schemas), now, (resource, object) =>
      this.deletes.finalize(resource, object),
    );
    this.openApi = new OpenApi(this.registry, schemas);
    this.openApiV2 = new OpenApiV2(this.registry, this.openApi);
    this.protobuf = new ProtobufReader(schemas);
    const strategies = {
      Service: serviceStrategy(() => this.store.list('/services', '')),
      CustomResourceDefinition: definitionStrategy(now),
    };
    for (const resource of builtinResources(schemas, strategies)) this.registry.add(resource);
    this.store.subscribe(CRDS, (change) => this.#definitionChanged(change));
    this.store.subscribe('/namespaces', (change) => {
      if (change.type === 'ADDED') this.#defaultAccount(text(change.object, 'metadata', 'name'));
    });
    this.store.subscribe('/events', (change) => {
      if (change.type === 'ADDED') this.#sweepEvents();
    });
    this.#bootstrap();
    this.store.begin();
  }

  /** Creates an object of a built-in kind as the server itself. */
  createInternal(group: string, version: string, plural: string, namespace: string, body: object): void {
    const resource = this.registry.find(group, version, plural);
    if (resource === undefined) throw new Error(`${plural}.${version}.${group} is not a built-in resource`);
    this.writes.create(resource, namespace, body, internalContext());
  }

  #bootstrap(): void {
    for (const name of NAMESPACES) this.createInternal('', 'v1', 'namespaces', '', { metadata: { name } });
    this.createInternal('', 'v1', 'services', 'default', {
      metadata: { name: 'kubernetes', labels: { component: 'apiserver', provider: 'kubernetes' } },
      spec: { clusterIP: '10.96.0.1', ports: [{ name: 'https', port: 443, targetPort: 6443 }] },
    });
  }

  #defaultAccount(namespace: string): void {
    this.createInternal('', 'v1', 'serviceaccounts', namespace, { metadata: { name: 'default' } });
  }

  #definitionChanged(change: Change): void {
    const previous = change.previous;
    if (change.type === 'DELETED') {
      this.#dropInstances(change.object);
      this.registry.removeAll(text(change.object, 'spec', 'group'), text(change.object, 'spec', 'names', 'plural'));
      return;
    }
    if (previous !== undefined) {
      if (previous.spec === change.object.spec) return;
      this.registry.removeAll(text(previous, 'spec', 'group'), text(previous, 'spec', 'names', 'plural'));
    }
    for (const resource of definedResources(change.object)) this.registry.add(resource);
  }

  #dropInstances(definition: JsonObject): void {
    const storage = `${text(definition, 'spec', 'group')}/${text(definition, 'spec', 'names', 'plural')}`;
    for (const object of this.store.list(storage, '')) this.store.remove(storage, object);
  }

  #sweepEvents(): void {
    this.#eventsSinceSweep += 1;
    if (this.#eventsSinceSweep < EVENT_SWEEP) return;
    this.#eventsSinceSweep = 0;
    const oldest = this.now().getTime() - EVENT_LIFETIME;
    for (const event of this.store.list('/events', '')) {
      if (Date.parse(text(event, 'metadata', 'creationTimestamp')) < oldest) this.store.remove('/events', event);
    }
  }
}

function internalContext(): WriteContext {
  return {
    fieldManager: 'kube-apiserver',
    dryRun: false,
    fieldValidation: 'Strict',
    subresource: '',
    force: false,
    warnings: [],
  };
}
