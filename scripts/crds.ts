/** `node scripts/crds.ts`: writes the CRDs into the chart. A test compares, so that the chart never lags behind. */
import { writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { crdYaml } from '@weir/kube';

const folder = join(dirname(dirname(fileURLToPath(import.meta.url))), 'charts/weir/crds');
for (const [name, text] of Object.entries(crdYaml())) writeFileSync(join(folder, name), text);
