import { DepthError, parseShallow } from '@weir/process/depth';
import { CNI_CODE, CniError } from './errors.ts';
import {
  type Attachment,
  type CniCall,
  type CniCommand,
  type CniRequest,
  type CniVersion,
  SUPPORTED_VERSIONS,
} from './types.ts';

const COMMANDS: readonly string[] = ['ADD', 'DEL', 'CHECK', 'GC', 'STATUS', 'VERSION'] satisfies CniCommand[];
const CONTAINER_ID = /^[A-Za-z0-9][A-Za-z0-9_.-]{0,255}$/;
const IFNAME = /^[A-Za-z0-9_.-]{1,15}$/;
/** No blank, quote, backslash or `#`: the path is one word of an `ip -batch` line. */
const NETNS = /^\/[A-Za-z0-9_./:@+=,-]+$/;
const POD_WORD = /^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$/;

/** The version to answer in, even for a request that is not valid. */
export function answerVersion(request: unknown): CniVersion {
  try {
    const config: unknown = parseShallow(isRequest(request) ? request.stdin : '');
    const version = isObject(config) ? config.cniVersion : undefined;
    return SUPPORTED_VERSIONS.find((known) => known === version) ?? '1.0.0';
  } catch {
    return '1.0.0'; // stdin is no JSON: parseCall says so in its error
  }
}

/** The command of a request, for counting; `other` for what is none. */
export function commandOf(request: unknown): string {
  const command = isRequest(request) ? (request.env.CNI_COMMAND ?? '') : '';
  return COMMANDS.includes(command) ? command : 'other';
}

/** Validates a request from the shim. Throws `CniError` with the code of the CNI specification. */
export function parseCall(request: unknown): CniCall {
  if (!isRequest(request)) {
    throw new CniError(
      CNI_CODE.decode,
      'the request is not {"env": {...}, "stdin": "..."}',
      'is weir-cni of the same release as the agent?',
    );
  }
  const { env } = request;
  const command = env.CNI_COMMAND ?? '';
  if (!COMMANDS.includes(command)) {
    throw new CniError(
      CNI_CODE.invalidEnvironment,
      `CNI_COMMAND is "${command}"`,
      `it must be one of ${COMMANDS.join(', ')}`,
    );
  }
  const config = parseConfiguration(request.stdin);
  const cniVersion = SUPPORTED_VERSIONS.find((known) => known === config.cniVersion);
  if (cniVersion === undefined) {
    throw new CniError(
      CNI_CODE.incompatibleVersion,
      `cniVersion ${JSON.stringify(config.cniVersion ?? null)} is not supported`,
      `use one of ${SUPPORTED_VERSIONS.join(', ')} in the network configuration`,
    );
  }
  const base = {
    command: command as CniCommand,
    cniVersion,
    hostPorts: parseHostPorts(config.runtimeConfig),
    mapsHostPorts: config.mapsHostPorts === true,
  };
  if (command === 'GC') return { ...base, valid: parseValid(config) };
  if (command === 'STATUS' || command === 'VERSION') return { ...base, valid: [] };
  const attachment = parseAttachment(env);
  const netns =
    command === 'DEL' && (env.CNI_NETNS ?? '') === ''
      ? undefined
      : textOf(env, 'CNI_NETNS', NETNS, 'the absolute path of a network namespace');
  const pod = parsePod(env.CNI_ARGS ?? '');
  return {
    ...base,
    attachment,
    valid: [],
    ...(netns === undefined ? {} : { netns }),
    ...(pod === undefined ? {} : { pod }),
    ...(config.prevResult === undefined ? {} : { prevResult: config.prevResult }),
  };
}

function parseConfiguration(stdin: string): Readonly<Record<string, unknown>> {
  let config: unknown;
  try {
    config = parseShallow(stdin);
  } catch (error) {
    const what =
      error instanceof DepthError
        ? `the network configuration on stdin: ${error.message}`
        : 'the network configuration on stdin is not JSON';
    throw new CniError(CNI_CODE.decode, what, String(error), { cause: error });
  }
  if (!isObject(config)) throw new CniError(CNI_CODE.decode, 'the network configuration on stdin is not a JSON object');
  return config;
}

function parseAttachment(env: Readonly<Record<string, string>>): Attachment {
  const attachment: Attachment = {
    containerId: textOf(
      env,
      'CNI_CONTAINERID',
      CONTAINER_ID,
      'letters, digits and _ . -, starting with a letter or digit',
    ),
    ifname: textOf(env, 'CNI_IFNAME', IFNAME, 'at most 15 letters, digits and _ . -'),
  };
  if (attachment.ifname === '.' || attachment.ifname === '..') {
    throw new CniError(CNI_CODE.invalidEnvironment, `CNI_IFNAME "${attachment.ifname}" is not an interface name`);
  }
  return attachment;
}

function textOf(env: Readonly<Record<string, string>>, name: string, pattern: RegExp, rule: string): string {
  const value = env[name] ?? '';
  if (!pattern.test(value)) {
    throw new CniError(
      CNI_CODE.invalidEnvironment,
      value === '' ? `${name} is missing` : `${name} "${value}" is not valid`,
      `it must be ${rule}`,
    );
  }
  return value;
}

/** K8S_POD_NAMESPACE, K8S_POD_NAME, K8S_POD_UID of CNI_ARGS (`K=V;K=V`); undefined when it names no pod. */
function parsePod(args: string): CniCall['pod'] {
  const pairs = new Map<string, string>();
  for (const part of args.split(';')) {
    if (part === '') continue;
    const at = part.indexOf('=');
    if (at < 1) throw new CniError(CNI_CODE.invalidEnvironment, `CNI_ARGS part "${part}" is not KEY=VALUE`);
    pairs.set(part.slice(0, at), part.slice(at + 1));
  }
  const namespace = pairs.get('K8S_POD_NAMESPACE');
  const name = pairs.get('K8S_POD_NAME');
  const uid = pairs.get('K8S_POD_UID');
  if (namespace === undefined && name === undefined) return undefined;
  for (const [key, value] of [
    ['K8S_POD_NAMESPACE', namespace],
    ['K8S_POD_NAME', name],
  ] as const) {
    if (value === undefined || !POD_WORD.test(value)) {
      throw new CniError(
        CNI_CODE.invalidEnvironment,
        `CNI_ARGS ${key} is ${value === undefined ? 'missing' : `"${value}", no Kubernetes name`}`,
      );
    }
  }
  return { namespace: namespace ?? '', name: name ?? '', ...(uid === undefined || uid === '' ? {} : { uid }) };
}

/** The convention for capability `portMappings`: https://www.cni.dev/docs/conventions/. What is none asks for nothing. */
function parseHostPorts(runtimeConfig: unknown): readonly string[] {
  const list = isObject(runtimeConfig) ? runtimeConfig.portMappings : undefined;
  if (!Array.isArray(list)) return [];
  return list.flatMap((item: unknown) => {
    if (!isObject(item)) return [];
    const [port, protocol] = [field(item, 'hostPort'), field(item, 'protocol')];
    if (typeof port !== 'number' || port < 1) return [];
    return [`${port}/${typeof protocol === 'string' ? protocol : 'tcp'}`];
  });
}

/** By a name in whichever case: containerd writes `HostPort`, and plugins in Go do not tell it from `hostPort`. */
function field(item: Readonly<Record<string, unknown>>, name: string): unknown {
  const key = Object.keys(item).find((each) => each.toLowerCase() === name.toLowerCase());
  return key === undefined ? undefined : item[key];
}

function parseValid(config: Readonly<Record<string, unknown>>): readonly Attachment[] {
  const list = config['cni.dev/valid-attachments'] ?? config['cni.dev/attachments'];
  if (!Array.isArray(list)) {
    throw new CniError(
      CNI_CODE.invalidConfig,
      'GC needs the list "cni.dev/valid-attachments"',
      'without it every attachment would be removed',
    );
  }
  return list.map((item: unknown, at): Attachment => {
    const containerId = isObject(item) ? item.containerID : undefined;
    const ifname = isObject(item) ? item.ifname : undefined;
    if (typeof containerId !== 'string' || typeof ifname !== 'string') {
      throw new CniError(CNI_CODE.invalidConfig, `cni.dev/valid-attachments[${at}] is not {"containerID", "ifname"}`);
    }
    return { containerId, ifname };
  });
}

function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function isRequest(value: unknown): value is CniRequest {
  return (
    isObject(value) &&
    typeof value.stdin === 'string' &&
    isObject(value.env) &&
    Object.values(value.env).every((entry) => typeof entry === 'string')
  );
}
