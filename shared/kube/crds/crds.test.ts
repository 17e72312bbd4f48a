import { describe, expect, it } from '@jest/globals';
import { load } from 'js-yaml';
import { resources } from '../resources.ts';
import { crds, crdYaml } from './index.ts';

interface Crd {
  readonly metadata: { readonly name: string };
  readonly spec: {
    readonly group: string;
    readonly scope: string;
    readonly names: { readonly kind: string; readonly plural: string; readonly shortNames: readonly string[] };
    readonly versions: readonly {
      readonly name: string;
      readonly schema: { readonly openAPIV3Schema: Schema };
      readonly additionalPrinterColumns?: readonly { readonly name: string }[];
    }[];
  };
}
interface Schema {
  readonly type?: string;
  readonly properties?: Record<string, Schema>;
  readonly items?: Schema;
  readonly additionalProperties?: Schema;
  readonly [key: string]: unknown;
}

const all = crds() as Crd[];
const schemaOf = (kind: string): Schema => {
  const found = all.find((crd) => crd.spec.names.kind === kind)?.spec.versions[0]?.schema.openAPIV3Schema;
  if (found === undefined) throw new Error(`no CRD of ${kind}`);
  return found;
};

function walk(schema: Schema, path: string, visit: (schema: Schema, path: string) => void): void {
  visit(schema, path);
  for (const [name, child] of Object.entries(schema.properties ?? {})) walk(child, `${path}.${name}`, visit);
  if (schema.items !== undefined) walk(schema.items, `${path}[]`, visit);
  if (schema.additionalProperties !== undefined) walk(schema.additionalProperties, `${path}.*`, visit);
}

describe('CRDs', () => {
  it('are served where the resources say', () => {
    for (const { spec, metadata } of all) {
      const resource = Object.values(resources).find((one) => one.kind === spec.names.kind && one.group === spec.group);
      expect(resource).toMatchObject({
        plural: spec.names.plural,
        version: spec.versions[0]?.name,
        namespaced: spec.scope === 'Namespaced',
      });
      expect(metadata.name).toBe(`${spec.names.plural}.${spec.group}`);
    }
    expect(all).toHaveLength(9);
  });

  it('are structural: every node has a type, or is an int-or-string', () => {
    for (const crd of all) {
      walk(schemaOf(crd.spec.names.kind), crd.spec.names.kind, (schema, path) => {
        const typed = typeof schema.type === 'string' || schema['x-kubernetes-int-or-string'] === true;
        expect(`${path} ${typed}`).toBe(`${path} true`);
        if (schema.type === 'array') expect(schema.items).toBeDefined();
      });
    }
  });

  it('prune nothing of a rule: the operator says what it does not know', () => {
    for (const kind of ['CiliumNetworkPolicy', 'CiliumClusterwideNetworkPolicy']) {
      const { spec, specs } = schemaOf(kind).properties ?? {};
      for (const rule of [spec, specs?.items]) {
        if (rule === undefined) throw new Error('no rule schema');
        walk(rule, kind, (schema, path) => {
          if (schema.type === 'object' && schema.additionalProperties === undefined) {
            expect(`${path} ${String(schema['x-kubernetes-preserve-unknown-fields'])}`).toBe(`${path} true`);
          }
        });
      }
    }
  });

  it('hold a node to as many failures as it may list', () => {
    const { failures } = schemaOf('NodePolicyStatus').properties?.status?.properties ?? {};
    expect(failures).toMatchObject({ maxItems: 2000 });
  });

  it('print what a user wants to know first', () => {
    const cnp = all.find((crd) => crd.spec.names.kind === 'CiliumNetworkPolicy');
    expect(cnp?.spec.names.shortNames).toEqual(['cnp', 'ciliumnp']);
    expect(cnp?.spec.versions[0]?.additionalPrinterColumns?.map((column) => column.name)).toEqual([
      'Ready',
      'Programmed',
      'Reason',
      'Generation',
      'Observed',
      'Nodes',
      'Endpoints',
      'Rules',
      'Valid',
      'Age',
      'Message',
    ]);
  });

  it('give a ResolvedPolicy ports by number or by name, and a status that is written alone', () => {
    const version = all.find((crd) => crd.spec.names.kind === 'ResolvedPolicy')?.spec.versions[0];
    expect(version).toMatchObject({ subresources: { status: {} } });
    const { spec, status } = schemaOf('ResolvedPolicy').properties ?? {};
    const port = spec?.properties?.rules?.items?.properties?.ports?.items;
    expect(Object.keys(port?.properties ?? {})).toEqual(['protocol', 'from', 'to', 'each', 'name']);
    expect(port?.required).toEqual(['protocol']);
    expect(Object.keys(status?.properties ?? {})).toEqual(
      Object.keys(schemaOf('CiliumNetworkPolicy').properties?.status?.properties ?? {}),
    );
  });

  it('as YAML read back as the same objects', () => {
    const files = crdYaml();
    expect(Object.keys(files)).toContain('ciliumnetworkpolicies.cilium.io.yaml');
    expect(Object.values(files).map((text) => load(text))).toEqual(crds());
  });
});
