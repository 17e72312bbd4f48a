/**
 * Which tests run when. A test file is `unit` unless a pattern here names it: a unit test starts no process, opens no socket and calls no
 * libbpf, and runs without root. `environment.ts` makes one that does any of that fail, and a test of `kernel` or `cluster` that does none of it.
 */
import { globSync } from 'node:fs';
import { join, matchesGlob } from 'node:path';

export type Project = 'unit' | 'kernel' | 'cluster' | 'release';

const ROOT = join(import.meta.dirname, '../..');

/** Patterns of test files, without `.test.ts`. The first that fits decides. */
export const PATTERNS: Readonly<Record<Exclude<Project, 'unit'>, readonly string[]>> = {
  /** What is handed out: packages, images, documents, the chart's rendering, and what lint holds. */
  release: [
    'test/{api-reference,chart,images,lint,package-readmes,packages,policy-hooks,readme,supply-chain}',
    'test/{contributing,docs,errors}',
    'test/chart/*',
  ],
  /** An API server, or a whole cluster. `list.test.ts` compares this with what they import. */
  cluster: [
    'node-agent/agent',
    'shared/kube/{client,leader,reflector,scrape-access,secrecy}',
    'test/bad-input',
    'test/{e2e,story}/*',
    'test/operator/!(limits)',
    'test/{chaos/chaos,fuzz/fuzz,memory/operator,parts/operator-sample}',
    'test/cluster/apiserver/!(crd|strategic-merge|watch-model)',
    'test/cluster/conformance/*',
  ],
  /** Programs, maps, interfaces, processes and sockets of this machine. */
  kernel: [
    'bpf/*',
    'node-agent/core/{audit,life,create-core,depth,faces,families,lost-state,named-ports,refused,row-budget,strays,gates}',
    'node-agent/state/state-files',
    'node-agent/dns/{delivery,proxy/hostile,proxy/kernel-maps,proxy/proxy,proxy/resolvers,proxy/store}',
    'node-agent/services/{health,churn,closing,kinds,outside,rewrite,sockets,veth}',
    'node-agent/masquerade/masquerade',
    'node-agent/{cli/cli,cli/cli-follow,explain/explain,routing/routing,uninstall/uninstall}',
    'node-agent/api/!(context|endpoint-model|follow)',
    'node-agent/cni/{dual-stack,installation,network,service,shim}',
    'node-agent/datapath/{conntrack,content-audit,endpoint-map,links,lock,part-programs,slot-store,testing/lab}',
    'node-agent/config/mount-bpffs',
    'operator/{health,webhooks/server}',
    'shared/libbpf/!(memory-map)',
    'shared/kube/access',
    'shared/process/{memory,metrics-server,supervised}',
    'test/{printing,bench/path-packets,fuzz/{datapath/datapath,policy/policy},parts/sample,seccomp/seccomp}',
    'test/cluster/{process,pod/pod}',
  ],
};

/** Every test file, relative to the checkout; those of a real Kubernetes have a configuration of their own. */
export function testFiles(): readonly string[] {
  return globSync('{bpf,node-agent,operator,shared,test}/**/*.test.ts', {
    cwd: ROOT,
    exclude: ['**/node_modules/**', 'test/real/**', 'test/cluster/real/**'],
  }).sort();
}

export function projectOf(file: string): Project {
  for (const project of ['release', 'cluster', 'kernel'] as const)
    if (PATTERNS[project].some((pattern) => matchesGlob(file, `${pattern}.test.ts`))) return project;
  return 'unit';
}
