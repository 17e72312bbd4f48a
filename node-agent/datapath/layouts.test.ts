import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from '@jest/globals';
import { MAPS } from '@weir/bpf';

/** What bpf/layout.h says, without comments and spaces, and the versions that stand for it. */
const RECORDED = {
  bytes: 'f750cec410dd45d1',
  versions:
    'endpoint_array=1 endpoints=1 ipcache=3 names=1 policy_classes=1 policy_verdicts=4 ct4=6 ct6=3 ct_shares=2 ct_recent=1 frags=3 events=1 event_budgets=2 metrics=1 proxy_budgets=1 settings=2 stages=1',
};

describe('versions of the map layouts', () => {
  it('were raised with the last change of the bytes', () => {
    const source = readFileSync(join(import.meta.dirname, '../../bpf/layout.h'), 'utf8');
    const text = source.replace(/\/\*[\s\S]*?\*\//g, '').replace(/\s+/g, ' ');
    const bytes = createHash('sha256').update(text).digest('hex').slice(0, 16);
    const versions = Object.entries(MAPS)
      .map(([name, { version }]) => `${name}=${version}`)
      .join(' ');
    // Where this fails: raise the version of each map whose bytes mean something else now, then record both here.
    expect({ bytes, versions }).toEqual(RECORDED);
  });
});
