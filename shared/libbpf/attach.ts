import { attachClsact } from './clsact.ts';
import { attachTcx, hasTcx } from './tcx.ts';
import type { AttachOptions, BpfProgram, TcLink } from './types.ts';

/**
 * Attaches a tc program: by a tcx link where the kernel has them (6.6), else by clsact. Look at `kind` of the result: a
 * tcx link must be pinned to outlive the process.
 */
export function attachTc(program: BpfProgram, options: AttachOptions): TcLink {
  return hasTcx() ? attachTcx(program, options) : attachClsact(program, options);
}
