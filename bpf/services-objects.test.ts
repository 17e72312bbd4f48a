/** What kernels before this one must be able to load of Services. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from '@jest/globals';
import { buildDatapath, SKB_ACCESS } from './build.ts';
import { deepest } from './testing/stack.ts';

const SOURCE = join(import.meta.dirname, '../node-agent/services/bpf/services.c');
/** bpf_task_pt_regs: the last one of Linux 5.15. */
const LAST_HELPER = 175;
const SET_RETVAL = 187;
const [EXECUTABLE, CALL] = [4n, 0x85];

/** Functions of the kernel that the object's programs call, by number. */
function helpers(object: Buffer): Set<number> {
  const found = new Set<number>();
  const sections = Number(object.readBigUInt64LE(40));
  for (let at = sections, left = object.readUInt16LE(60); left > 0; at += 64, left--) {
    if ((object.readBigUInt64LE(at + 8) & EXECUTABLE) === 0n) continue;
    const [offset, size] = [Number(object.readBigUInt64LE(at + 24)), Number(object.readBigUInt64LE(at + 32))];
    for (let next = offset; next < offset + size; next += 8)
      if (object[next] === CALL && (object.readUInt8(next + 1) & 0xf0) === 0) found.add(object.readInt32LE(next + 4));
  }
  return found;
}

it.each(SKB_ACCESS)('Linux 5.15 has what programs call (%s), but for a call that they ask for before', (access) => {
  const called = helpers(readFileSync(buildDatapath({ access, source: SOURCE }).objectPath));
  expect(called).toContain(1);
  expect([...called].filter((helper) => helper > LAST_HELPER)).toEqual([SET_RETVAL]);
  const asked = readFileSync(join(SOURCE, '../sockets.h'), 'utf8');
  expect(asked).toContain('if (bpf_core_enum_value_exists(enum bpf_func_id, BPF_FUNC_set_retval))');
});

it.each(SKB_ACCESS)('the stack (%s) fits kernels that round each frame up to 32 bytes', (access) => {
  const object = readFileSync(buildDatapath({ access, source: SOURCE }).objectPath);
  for (const program of ['svc_from_pod', 'svc_to_pod', 'svc_connect4', 'svc_sendmsg6'])
    expect(deepest(object, program, 32).bytes).toBeLessThanOrEqual(512);
});
