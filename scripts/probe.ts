/** Prints what the kernel can do as JSON, for `doctor.mjs`. */
import { probe } from 'libbpf-ts';

process.stdout.write(JSON.stringify(probe()));
