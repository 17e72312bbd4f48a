/** The chart as helm renders it. */
import { join } from 'node:path';
import { loadAll } from 'js-yaml';
import { ROOT, run } from '../cluster/run.ts';

export const CHART = join(ROOT, 'charts/weir');

export interface Rule {
  readonly apiGroups: readonly string[];
  readonly resources: readonly string[];
  readonly resourceNames?: readonly string[];
  readonly verbs: readonly string[];
}

export interface Probe {
  readonly httpGet: { readonly host?: string; readonly path: string; readonly port: number };
}

export interface Container {
  readonly name: string;
  readonly image: string;
  readonly args?: readonly string[];
  readonly command?: readonly string[];
  readonly env?: readonly { readonly name: string; readonly value?: string }[];
  readonly livenessProbe?: Probe;
  readonly readinessProbe?: Probe;
  readonly startupProbe?: Probe;
  readonly securityContext: {
    readonly privileged?: boolean;
    readonly allowPrivilegeEscalation?: boolean;
    readonly readOnlyRootFilesystem?: boolean;
    readonly appArmorProfile?: { readonly type: string; readonly localhostProfile?: string };
    readonly seccompProfile?: { readonly type: string; readonly localhostProfile?: string };
    readonly capabilities: { readonly drop: readonly string[]; readonly add?: readonly string[] };
  };
  readonly volumeMounts?: readonly {
    readonly name: string;
    readonly mountPath: string;
    readonly readOnly?: boolean;
    readonly mountPropagation?: string;
  }[];
}

export interface PodSpec {
  readonly hostNetwork?: boolean;
  readonly hostPID?: boolean;
  readonly automountServiceAccountToken?: boolean;
  readonly securityContext: {
    readonly runAsNonRoot?: boolean;
    readonly runAsUser?: number;
    readonly seccompProfile: { readonly type: string };
  };
  readonly initContainers?: readonly Container[];
  readonly containers: readonly Container[];
  readonly volumes?: readonly { readonly name: string; readonly hostPath?: { readonly path: string } }[];
}

/** A rendered object, with the fields that tests look at. */
export interface Rendered {
  readonly apiVersion: string;
  readonly kind: string;
  readonly metadata: {
    readonly name: string;
    readonly namespace?: string;
    readonly labels?: Readonly<Record<string, string>>;
    readonly annotations?: Readonly<Record<string, string>>;
  };
  readonly rules?: readonly Rule[];
  readonly roleRef?: { readonly kind: string; readonly name: string };
  readonly subjects?: readonly { readonly name: string; readonly namespace: string }[];
  readonly spec?: {
    readonly replicas?: number;
    readonly template?: { readonly spec: PodSpec };
  } & Partial<PodSpec>;
  readonly data?: Readonly<Record<string, string>>;
}

/** Every object of a YAML text, those in lists too. */
export function objects(yaml: string): readonly Rendered[] {
  const documents = loadAll(yaml) as readonly (
    | Rendered
    | { readonly kind: 'List'; readonly items: Rendered[] }
    | null
  )[];
  return documents.flatMap((each) => {
    if (each === null || each === undefined) return [];
    return 'items' in each ? each.items : [each];
  });
}

/** Text of `helm template` in namespace kube-system. `flags`: --set and the like. */
export async function template(flags: readonly string[] = []): Promise<string> {
  return (await run('helm', ['template', 'weir', CHART, '-n', 'kube-system', ...flags])).stdout;
}

export async function render(flags: readonly string[] = []): Promise<readonly Rendered[]> {
  return objects(await template(flags));
}

/** The pod of an object that runs one. */
export function podSpec(object: Rendered): PodSpec | undefined {
  return object.kind === 'Pod' ? (object.spec as PodSpec) : object.spec?.template?.spec;
}

export function find(rendered: readonly Rendered[], kind: string, name: string): Rendered {
  const found = rendered.find((each) => each.kind === kind && each.metadata.name === name);
  if (found === undefined) throw new Error(`the chart renders no ${kind} ${name}`);
  return found;
}
