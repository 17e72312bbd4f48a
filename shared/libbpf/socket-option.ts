import { BpfError } from './errors.ts';
import { lastErrno, libcFunction } from './native.ts';

const SOL_SOCKET = 1;

/**
 * An option of a socket as the kernel has it (getsockopt(2), level SOL_SOCKET), in `bytes` bytes.
 * @param name the constant of the kernel, as in socket(7)
 * @throws BpfError
 */
export function socketOption(fd: number, name: number, bytes: number, operation: string): Buffer {
  const value = Buffer.alloc(bytes);
  const length = Buffer.alloc(4);
  length.writeUInt32LE(bytes);
  const get = libcFunction('int getsockopt(int fd, int level, int name, void *value, void *length)');
  if (Number(get(fd, SOL_SOCKET, name, value, length)) !== 0) throw new BpfError({ operation, errno: lastErrno() });
  return value;
}
