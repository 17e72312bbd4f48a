import type { KubeObject, ReflectorSink } from '@weir/kube';
import type { Core } from '../core.ts';

/** Notes which version of the ResolvedPolicies the policy inputs have. Call it after the sink that writes them. */
export class PolicyVersions implements ReflectorSink<KubeObject> {
  readonly #core: Pick<Core, 'db' | 'tables' | 'policyRevision'>;

  constructor(core: Pick<Core, 'db' | 'tables' | 'policyRevision'>) {
    this.#core = core;
  }

  replace(_items: readonly KubeObject[], version: string): void {
    this.#note(version);
  }

  upsert({ metadata }: KubeObject): void {
    this.#note(metadata.resourceVersion);
  }

  delete({ metadata }: KubeObject): void {
    this.#note(metadata.resourceVersion);
  }

  #note(version: string | undefined): void {
    if (version === undefined) return;
    const { db, tables } = this.#core;
    const row = { revision: this.#core.policyRevision(), version };
    db.write([tables.policyVersions], (txn) => txn.upsert(tables.policyVersions, row));
  }
}
