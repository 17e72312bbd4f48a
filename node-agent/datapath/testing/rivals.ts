/** Programs of somebody else on the hooks that Weir uses. */
import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type BpfObject, loadObject } from 'libbpf-ts';

const SOURCE = `
#include <linux/bpf.h>
#include <linux/pkt_cls.h>
#define SEC(name) __attribute__((section(name), used))
char _license[] SEC("license") = "GPL";
SEC("tc") int rival_ends(struct __sk_buff *skb) { return TC_ACT_OK; }
SEC("tc") int rival_goes_on(struct __sk_buff *skb) { return TC_ACT_UNSPEC; }
`;

/** `rival_ends` lets every packet through and ends the chain; `rival_goes_on` leaves it to the next program. */
export function loadRivals(): BpfObject {
  const folder = mkdtempSync(join(tmpdir(), 'weir-rivals-'));
  try {
    const machine = process.arch === 'arm64' ? 'aarch64' : 'x86_64';
    writeFileSync(join(folder, 'rivals.c'), SOURCE);
    const flags = ['-O2', '-g', '-target', 'bpf', `-I/usr/include/${machine}-linux-gnu`];
    execFileSync('clang', [...flags, '-c', 'rivals.c', '-o', 'rivals.o'], { cwd: folder });
    return loadObject(join(folder, 'rivals.o'));
  } finally {
    rmSync(folder, { recursive: true });
  }
}
