import { ApiError, type KubeClient, type KubeNode, type KubeObject, type Resource, type WatchEvent } from '@weir/kube';

/** Answers lists from `objects`, watches from nothing; records writes. */
export class FakeClient implements KubeClient {
  readonly objects = new Map<string, KubeObject[]>();
  readonly writes: {
    readonly verb: string;
    readonly plural: string;
    readonly object?: KubeObject;
    readonly name: string;
    readonly uid?: string;
  }[] = [];
  failure: Error | undefined;
  /** Lists of these are refused. */
  readonly forbidden = new Set<string>();
  onWrite: () => void = () => undefined;

  list<T extends KubeObject>(resource: Resource<T>) {
    if (this.failure !== undefined) return Promise.reject(this.failure);
    if (this.forbidden.has(resource.plural))
      return Promise.reject(new ApiError('may not', { status: 403, reason: 'Forbidden' }));
    return Promise.resolve({ items: (this.objects.get(resource.plural) ?? []) as T[], resourceVersion: '1' });
  }
  listPage<T extends KubeObject>(resource: Resource<T>) {
    return this.list(resource);
  }
  async *watch<T extends KubeObject>(
    _resource: Resource<T>,
    options: { readonly signal?: AbortSignal; readonly accepted?: () => void },
  ): AsyncGenerator<WatchEvent<T>> {
    if (this.failure !== undefined) throw this.failure;
    options.accepted?.();
    const { signal = this.#cut.signal } = options;
    await new Promise<void>((resolve) =>
      AbortSignal.any([signal, this.#cut.signal]).addEventListener('abort', () => resolve()),
    );
    if (!signal.aborted) throw this.failure;
  }
  #cut = new AbortController();
  /** Ends every watch, and fails requests from now on. */
  fail(error: Error): void {
    this.failure = error;
    this.#cut.abort();
    this.#cut = new AbortController();
  }
  nodeUid = 'node-uid';
  get<T extends KubeObject>({ plural }: Resource<T>, name: string): Promise<T> {
    if (plural !== 'nodes') {
      const known = this.objects.get(plural)?.find(({ metadata }) => metadata.name === name);
      const missing = new ApiError('none', { status: 404, reason: 'NotFound' });
      return known === undefined ? Promise.reject(missing) : Promise.resolve(known as T);
    }
    const { status } = (this.held.get(`nodes/${name}`) ?? {}) as KubeNode;
    const node: KubeNode = {
      apiVersion: 'v1',
      kind: 'Node',
      metadata: { name, uid: this.nodeUid },
      ...(status === undefined ? {} : { status }),
    };
    return Promise.resolve(node as KubeObject as T);
  }
  create<T extends KubeObject>(): Promise<T> {
    return Promise.reject(new Error('the agent creates nothing but by apply'));
  }
  replace<T extends KubeObject>(): Promise<T> {
    return Promise.reject(new Error('the agent replaces nothing'));
  }
  /** Applies asked for, refused ones too. */
  applied = 0;
  apply<T extends KubeObject>(resource: Resource<T>, object: T): Promise<T> {
    this.applied += 1;
    if (this.failure !== undefined) return Promise.reject(this.failure);
    this.writes.push({ verb: 'apply', plural: resource.plural, object, name: object.metadata.name });
    this.held.set(`${resource.plural}/${object.metadata.name}`, object);
    this.onWrite();
    return Promise.resolve({ ...object, metadata: { ...object.metadata, uid: `uid-${object.metadata.name}` } });
  }
  /** What the API server holds of what was applied. */
  readonly held = new Map<string, KubeObject>();
  delete<T extends KubeObject>(
    resource: Resource<T>,
    name: string,
    _namespace?: string,
    options?: { readonly uid?: string },
  ): Promise<void> {
    this.writes.push({
      verb: 'delete',
      plural: resource.plural,
      name,
      ...(options?.uid === undefined ? {} : { uid: options.uid }),
    });
    this.onWrite();
    return Promise.resolve();
  }
  close(): void {}

  /** Resolves once there are so many writes. */
  async written(count: number): Promise<void> {
    while (this.writes.length < count) await new Promise<void>((resolve) => (this.onWrite = resolve));
  }
}
