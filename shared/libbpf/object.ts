import { constants } from 'node:os';
import { mapTypeName } from './constants.ts';
import { ArgumentError, BpfError, BufferLengthError, VerifierError } from './errors.ts';
import { duplicateFd } from './fd.ts';
import { KernelMap } from './map.ts';
import {
  addressOf,
  lastErrno,
  libbpfFunction,
  type Native,
  type Pointer,
  stringAt,
  withLibbpfMessages,
} from './native.ts';
import { KernelProgram } from './program.ts';
import type { BpfMap, BpfObject, BpfProgram, LoadOptions } from './types.ts';

/** Room for the verifier's log; newer kernels keep the end when it is longer, which is the part that matters. */
const LOG_SIZE = 4 << 20;
const OPEN_OPTS_SIZE = 80;

/** The libbpf functions used here, by name. */
function functions() {
  const f = libbpfFunction;
  return {
    open: f('void *bpf_object__open_file(const char *path, void *opts)'),
    load: f('int bpf_object__load(void *object)'),
    close: f('void bpf_object__close(void *object)'),
    nextMap: f('void *bpf_object__next_map(void *object, void *previous)'),
    mapName: f('void *bpf_map__name(void *map)'),
    mapIsInternal: f('bool bpf_map__is_internal(void *map)'),
    mapFd: f('int bpf_map__fd(void *map)'),
    mapType: f('int bpf_map__type(void *map)'),
    mapKeySize: f('uint32_t bpf_map__key_size(void *map)'),
    mapValueSize: f('uint32_t bpf_map__value_size(void *map)'),
    mapMaxEntries: f('uint32_t bpf_map__max_entries(void *map)'),
    mapFlags: f('uint32_t bpf_map__map_flags(void *map)'),
    setMaxEntries: f('int bpf_map__set_max_entries(void *map, uint32_t count)'),
    setInitialValue: f('int bpf_map__set_initial_value(void *map, void *data, size_t size)'),
    reuseFd: f('int bpf_map__reuse_fd(void *map, int fd)'),
    nextProgram: f('void *bpf_object__next_program(void *object, void *previous)'),
    programName: f('void *bpf_program__name(void *program)'),
    programFd: f('int bpf_program__fd(void *program)'),
  };
}
type Functions = ReturnType<typeof functions>;

class LoadedObject implements BpfObject {
  readonly programs: Readonly<Record<string, BpfProgram>>;
  readonly maps: Readonly<Record<string, BpfMap>>;
  readonly #path: string;

  constructor(path: string, programs: Record<string, BpfProgram>, maps: Record<string, BpfMap>) {
    this.#path = path;
    this.programs = programs;
    this.maps = maps;
  }

  program(name: string): BpfProgram {
    return pick(this.programs, name, `${this.#path} has no program "${name}"`);
  }

  map(name: string): BpfMap {
    return pick(this.maps, name, `${this.#path} has no map "${name}"`);
  }

  close(): void {
    for (const program of Object.values(this.programs)) program.close();
    for (const map of Object.values(this.maps)) map.close();
  }

  [Symbol.dispose](): void {
    this.close();
  }
}

function pick<T>(from: Readonly<Record<string, T>>, name: string, absent: string): T {
  const found = Object.hasOwn(from, name) ? from[name] : undefined;
  if (found === undefined) throw new ArgumentError(`${absent}; it has: ${Object.keys(from).join(', ') || 'none'}`);
  return found;
}

/**
 * Opens an ELF object built for BPF and loads all of its maps and programs into the kernel.
 *
 * @throws VerifierError when the kernel's verifier refuses a program
 * @throws BpfError when the file cannot be read, a map cannot be made, or a reused map differs from the object's
 * @throws ArgumentError when the options name a map that the object has not; BufferLengthError for `.rodata`
 */
export function loadObject(path: string, options: LoadOptions = {}): BpfObject {
  const call = functions();
  const log = Buffer.alloc(LOG_SIZE);
  const opts = Buffer.alloc(OPEN_OPTS_SIZE);
  opts.writeBigUInt64LE(BigInt(OPEN_OPTS_SIZE), 0);
  opts.writeBigUInt64LE(addressOf(log), 56);
  opts.writeBigUInt64LE(BigInt(LOG_SIZE), 64);
  return withLibbpfMessages((messages) => {
    const object = call.open(path, opts) as Pointer;
    if (object === null) throw failed(`open BPF object ${path}`, lastErrno(), messages);
    try {
      const maps = sectionNames(call, namedList(call.nextMap, call.mapName, object));
      configure(path, call, maps, options);
      const result = Number(call.load(object));
      if (result < 0) {
        // `log` is read here, after the load, which also keeps it alive during the call.
        throw loadFailed(path, -result, messages, log.toString('utf8', 0, Math.max(0, log.indexOf(0))));
      }
      return adopt(path, call, maps, namedList(call.nextProgram, call.programName, object));
    } finally {
      call.close(object);
    }
  });
}

function namedList(next: Native, nameOf: Native, object: bigint): Map<string, bigint> {
  const found = new Map<string, bigint>();
  let at = next(object, null);
  while (typeof at === 'bigint') {
    found.set(stringAt(BigInt(nameOf(at) ?? 0n)), at);
    at = next(object, at);
  }
  return found;
}

/** libbpf names the maps of global data after the file (`program.rodata`): here they are named by section (`.rodata`). */
function sectionNames(call: Functions, maps: Map<string, bigint>): Map<string, bigint> {
  const renamed = new Map<string, bigint>();
  for (const [name, map] of maps) {
    renamed.set(call.mapIsInternal(map) ? name.slice(Math.max(0, name.indexOf('.'))) : name, map);
  }
  return renamed;
}

function configure(path: string, call: Functions, maps: Map<string, bigint>, options: LoadOptions): void {
  const find = (name: string): bigint => {
    const map = maps.get(name);
    if (map !== undefined) return map;
    throw new ArgumentError(`${path} has no map "${name}"; it has: ${[...maps.keys()].join(', ') || 'none'}`);
  };
  if (options.rodata !== undefined) {
    const map = find('.rodata');
    const size = Number(call.mapValueSize(map));
    if (options.rodata.length !== size) {
      throw new BufferLengthError(`.rodata of ${path}`, size, options.rodata.length);
    }
    const result = Number(call.setInitialValue(map, options.rodata, size));
    if (result < 0) throw new BpfError({ operation: `set .rodata of ${path}`, errno: -result });
  }
  for (const [name, count] of Object.entries(options.maxEntries ?? {})) {
    if (!Number.isInteger(count) || count < 1 || count > 0xffffffff) {
      throw new ArgumentError(`max_entries of map "${name}" must be a whole number from 1 to 4294967295, got ${count}`);
    }
    const result = Number(call.setMaxEntries(find(name), count));
    if (result < 0) throw new BpfError({ operation: `set max_entries of map "${name}"`, errno: -result });
  }
  for (const [name, map] of Object.entries(options.reuseMaps ?? {})) reuse(call, name, find(name), map);
  for (const [name, map] of Object.entries(options.sharedMaps ?? {})) {
    const target = maps.get(name);
    if (target === undefined) continue;
    // Programs do not depend on how much room there is.
    call.setMaxEntries(target, map.info.maxEntries);
    reuse(call, name, target, map);
  }
}

/** libbpf takes over whatever map it is given: a map of another shape would break the program's accesses silently. */
function reuse(call: Functions, name: string, target: bigint, map: BpfMap): void {
  const wanted = {
    type: mapTypeName(Number(call.mapType(target))),
    keySize: Number(call.mapKeySize(target)),
    valueSize: Number(call.mapValueSize(target)),
    maxEntries: Number(call.mapMaxEntries(target)),
    flags: Number(call.mapFlags(target)),
  };
  const operation = `reuse map "${map.info.name}" as "${name}"`;
  for (const field of ['type', 'keySize', 'valueSize', 'maxEntries', 'flags'] as const) {
    // A program opens ring buffers and maps of maps with sizes of 0 or 4 that the kernel fills in.
    if (wanted[field] === map.info[field] || (wanted[field] === 0 && field !== 'flags')) continue;
    throw new BpfError({
      operation,
      errno: constants.errno.EINVAL,
      fix: `its ${field} is ${map.info[field]}, the object wants ${wanted[field]}: remove the old pin and recreate the map`,
    });
  }
  const result = Number(call.reuseFd(target, map.fd));
  if (result < 0) throw new BpfError({ operation, errno: -result });
}

/** Takes descriptors of its own, so that nothing of libbpf outlives the load. */
function adopt(path: string, call: Functions, maps: Map<string, bigint>, programs: Map<string, bigint>): BpfObject {
  const ownMaps: Record<string, BpfMap> = {};
  const ownPrograms: Record<string, BpfProgram> = {};
  const object = new LoadedObject(path, ownPrograms, ownMaps);
  try {
    for (const [name, map] of maps) {
      const fd = Number(call.mapFd(map));
      if (fd >= 0) ownMaps[name] = new KernelMap(duplicateFd(fd, `map ${name}`), name);
    }
    for (const [name, program] of programs) {
      const fd = Number(call.programFd(program));
      if (fd >= 0) ownPrograms[name] = new KernelProgram(duplicateFd(fd, `program ${name}`), name);
    }
    return object;
  } catch (error) {
    object.close();
    throw error;
  }
}

function failed(operation: string, errno: number, messages: readonly string[]): BpfError {
  const said = messages.filter((message) => message.length > 0).join('\n');
  return said === ''
    ? new BpfError({ operation, errno })
    : new BpfError({ operation, errno, fix: `libbpf says:\n${said}` });
}

function loadFailed(path: string, errno: number, messages: readonly string[], log: string): BpfError {
  const refused = messages.map((message) => /prog '([^']+)': BPF program load failed/.exec(message)?.[1]).find(Boolean);
  if (refused !== undefined && log.trim() !== '') {
    return new VerifierError({ operation: `load BPF object ${path}`, errno, program: refused, log });
  }
  return failed(`load BPF object ${path}`, errno, messages);
}
