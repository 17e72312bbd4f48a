import { statfsSync } from 'node:fs';
import { dirname } from 'node:path';
import { PreflightError } from './errors.ts';

// linux/magic.h
const BPF_FS_MAGIC = 0xcafe4a11;

/** Checks what the agent cannot do without, before it touches anything. Throws `PreflightError`. */
export function preflight(options: { readonly bpfRoot: string }): void {
  if (process.platform !== 'linux')
    throw new PreflightError(`Weir enforces with eBPF and runs on Linux only, not on ${process.platform}`);
  if (process.getuid?.() !== 0)
    throw new PreflightError('the agent must run as root: it loads eBPF programs and makes network interfaces');
  if (!onBpfFs(options.bpfRoot)) {
    throw new PreflightError(
      `--bpf-root ${options.bpfRoot} is not on a BPF filesystem; run: mount -t bpf bpf /sys/fs/bpf`,
    );
  }
}

/** Whether the path, or its nearest existing parent, is on bpffs. */
function onBpfFs(path: string): boolean {
  let at = path;
  for (;;) {
    try {
      return statfsSync(at).type === BPF_FS_MAGIC;
    } catch (error) {
      const parent = dirname(at);
      if (parent === at) throw error;
      at = parent;
    }
  }
}
