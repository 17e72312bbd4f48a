import { existsSync, readFileSync } from 'node:fs';
import { isBpffs } from './bpffs.ts';
import { mapFlags } from './constants.ts';
import { createMap } from './map.ts';
import { libbpfFunction } from './native.ts';
import { hasTcx } from './tcx.ts';
import type { CreateMapOptions } from './types.ts';

/** The types and functions of the running kernel. */
const KERNEL_BTF = '/sys/kernel/btf/vmlinux';

/** Something that the kernel can do, or cannot. */
export interface Feature {
  readonly feature: string;
  readonly ok: boolean;
  /** Why it is missing and what to do; empty when ok. */
  readonly fix: string;
}

/**
 * What this machine offers, by trying each: makes small maps and closes them, changes nothing else. Never throws for a
 * missing feature. tcx missing is not fatal: `attachTc` then uses clsact.
 */
export function probe(options: { readonly bpffs?: string } = {}): Feature[] {
  const bpffs = options.bpffs ?? '/sys/fs/bpf';
  return [
    check('libbpf', () => libbpfFunction('uint32_t libbpf_major_version()')() !== null, 'install the package libbpf1'),
    check('bpf system call', () => canMake({ type: 'array', keySize: 4 }), ''),
    check(
      'lpm_trie',
      () => canMake({ type: 'lpm_trie', keySize: 8, flags: mapFlags.NO_PREALLOC }),
      'Linux 4.11 has it',
    ),
    check('array_of_maps', canNest, 'Linux 4.12 has it'),
    check(
      'ring buffer',
      () => canMake({ type: 'ringbuf', keySize: 0, valueSize: 0, maxEntries: 65536 }),
      'Linux 5.8 has it; max_entries must be a multiple of the page size',
    ),
    check('tcx', hasTcx, 'Linux 6.6 has it; older kernels attach by clsact'),
    check(
      'bpffs',
      () => isBpffs(bpffs),
      `run "mount -t bpf bpf ${bpffs}" on the host, or mount the host's ${bpffs} into the container`,
    ),
    check(
      'BTF',
      () => existsSync(KERNEL_BTF),
      'the kernel was built without CONFIG_DEBUG_INFO_BTF: only programs that relocate by it need it',
    ),
  ];
}

/** Whether the kernel's BTF has a name, such as that of a function for programs (kfunc); false where it has no BTF. Reads some megabytes. */
export function kernelNames(name: string): boolean {
  return existsSync(KERNEL_BTF) && readFileSync(KERNEL_BTF).includes(`\0${name}\0`);
}

function check(feature: string, test: () => boolean, fix: string): Feature {
  try {
    return test() ? { feature, ok: true, fix: '' } : { feature, ok: false, fix };
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    return { feature, ok: false, fix: fix === '' ? reason : `${reason}; ${fix}` };
  }
}

function canMake(options: Partial<CreateMapOptions> & Pick<CreateMapOptions, 'type' | 'keySize'>): boolean {
  createMap({ name: 'probe', valueSize: 4, maxEntries: 1, ...options }).close();
  return true;
}

function canNest(): boolean {
  using inner = createMap({ name: 'probe_inner', type: 'hash', keySize: 4, valueSize: 4, maxEntries: 1 });
  return canMake({ type: 'array_of_maps', keySize: 4, inner });
}
