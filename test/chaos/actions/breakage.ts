/** What goes wrong in a cluster. What is broken stays so until the round's end, unless it mends itself before. */
import type { Action } from './action.ts';
import { API } from './api.ts';
import { PROGRAMS } from './programs.ts';
import { STORAGE } from './storage.ts';

export const BREAKAGE: readonly Action[] = [...PROGRAMS, ...API, ...STORAGE];
