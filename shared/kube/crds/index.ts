/** Every CustomResourceDefinition of Weir. */
import { dump } from 'js-yaml';
import { ciliumCrds } from './cilium.ts';
import { weirCrds } from './weir.ts';

/** The CustomResourceDefinitions that Weir needs, new objects on each call. */
export function crds(): object[] {
  return [...ciliumCrds(), ...weirCrds()];
}

/** The same as YAML documents, by file name `<plural>.<group>.yaml`. */
export function crdYaml(): Record<string, string> {
  const files: Record<string, string> = {};
  for (const crd of crds()) {
    const { name } = (crd as { metadata: { name: string } }).metadata;
    files[`${name}.yaml`] = dump(crd, { noRefs: true, lineWidth: 120 });
  }
  return files;
}
