/** Map `stages`: programs that others go on with by a tail call (bpf/stage.h). Written by descriptor, read by id. */
import { STAGES } from '@weir/bpf';
import type { BpfMap, BpfProgram } from 'libbpf-ts';

export function number(value: number): Uint8Array {
  const bytes = new Uint8Array(4);
  new DataView(bytes.buffer).setUint32(0, value, true);
  return bytes;
}

/** Id of the stage's program; undefined where it has none. */
export function stageProgram(stages: BpfMap, stage: keyof typeof STAGES): number | undefined {
  const id = stages.lookup(number(STAGES[stage]));
  return id === undefined ? undefined : new DataView(id.buffer, id.byteOffset).getUint32(0, true);
}

/** Takes the place of the stage's program at once. */
export function setStage(stages: BpfMap, stage: keyof typeof STAGES, program: BpfProgram): void {
  if (stageProgram(stages, stage) !== program.info().id) stages.update(number(STAGES[stage]), number(program.fd));
}
