import { FLOW_ENDS } from '@weir/identity';
import { NAMESPACE_LABEL_PREFIX } from '@weir/labels';
import { line } from '@weir/process/printable';
import type { Command } from 'commander';
import type { FlowExplanation, FqdnCacheModel } from '../api/models.ts';
import type { AgentClient } from './client.ts';
import { type CliContext, printJson } from './context.ts';
import { AgentError, UsageError } from './errors.ts';
import { explainInFiles } from './explain-files.ts';
import { disagreements, textOfExplanation } from './explanation.ts';
import { type EndText, parseEnd, parseTraffic, type TrafficText } from './flow-arguments.ts';
import { isNamespaceName } from './metadata.ts';
import { policiesIn } from './policies-in-files.ts';
import { readSources } from './sources.ts';
import { worldOf } from './world.ts';

const ENDS_HELP = `
SRC and DST: pod/NAMESPACE/NAME or NAMESPACE/NAME (in files also a workload's name), node/NAME, an address, or one of
${FLOW_ENDS.join(', ')}.
DST may be the name of a host outside: each address by which pods of this node have looked it up; in files an address of that name.
PORT/PROTOCOL: 80, 53/UDP, http/TCP (by the destination's name for it), 8/ICMP, 128/ICMPv6, GRE. Default TCP.

Without --file this node’s agent answers for pods of its node, and asks the kernel by a test packet, too.

Exit codes: 0 allowed, 1 denied, 3 the kernel does something else than policies say, 64 wrong arguments, 65 a file is no YAML, 66 a file cannot be read, 69 the agent has no answer.`;

interface Options {
  readonly file?: readonly string[];
  readonly namespace: string;
  readonly clusterName: string;
  readonly allowLocalhost: boolean;
}

export function addExplainCommand(program: Command, context: CliContext): void {
  program
    .command('explain')
    .description(
      'Says whether a new flow is allowed, at both ends: the rules that decide, and every other rule that matches',
    )
    .argument('<src>')
    .argument('<dst>')
    .argument('<port>', 'PORT or PORT/PROTOCOL')
    .option(
      '-f, --file <paths...>',
      'files and folders with policies, Pods or workloads, Namespaces, Nodes, Services, EndpointSlices and CiliumCIDRGroups, as `kubectl get -o yaml` prints them; "-" for stdin',
    )
    .option('-n, --namespace <name>', 'with --file: namespace of policies that name none', 'default')
    .option('--cluster-name <name>', 'with --file: name of the cluster', 'default')
    .option('--no-allow-localhost', 'with --file: a node may not reach its own pods unless a rule allows it')
    .addHelpText('after', ENDS_HELP)
    .action(async (src: string, dst: string, port: string, options: Options, command: Command) => {
      const question = { source: parseEnd(src), destination: parseEnd(dst), traffic: parseTraffic(port) };
      if (question.source.kind === 'host') throw new UsageError(`"${src}": only the destination may be a name`, 64);
      const answers =
        options.file === undefined
          ? await askAgent(question, context.client(command))
          : await askFiles(question, options.file, options, context);
      if (answers.length === 0) return;
      if (context.json(command)) printJson(context, question.destination.kind === 'host' ? answers : answers[0]);
      else context.out.write(answers.map(textOfExplanation).join(''));
      const different = answers.flatMap(disagreements);
      for (const each of different)
        context.err.write(line(`weir: ${each}: ask again, and if they still differ report it, with \`weir status\``));
      const allowed = answers.every(({ verdict }) => verdict === 'allowed');
      context.setExitCode(different.length > 0 ? 3 : allowed ? 0 : 1);
    });
}

interface Question {
  readonly source: EndText;
  readonly destination: EndText;
  readonly traffic: TrafficText;
}

function queryOf({ source, destination, traffic }: Question): URLSearchParams {
  const text = (end: EndText): string => {
    switch (end.kind) {
      case 'pod':
        return `pod/${end.namespace}/${end.name}`;
      case 'node':
        return `node/${end.name}`;
      case 'entity':
        return `entity/${end.entity}`;
      case 'address':
        return `address/${end.address}`;
      case 'host':
        throw new Error('a name has addresses, and each is asked for');
    }
  };
  return new URLSearchParams({
    source: text(source),
    destination: text(destination),
    protocol: traffic.protocol,
    port: String(traffic.port),
  });
}

/** 1 is a verdict: without one the exit code is 64 or 69, as of sysexits(3). */
async function askAgent(question: Question, client: AgentClient): Promise<readonly FlowExplanation[]> {
  const { destination } = question;
  try {
    if (destination.kind !== 'host')
      return [await client.get<FlowExplanation>(`/policy/explain?${queryOf(question).toString()}`)];
    const answers: FlowExplanation[] = [];
    for (const address of await addressesOf(destination.host, client)) {
      const [answer] = await askAgent({ ...question, destination: { kind: 'address', address } }, client);
      if (answer !== undefined) answers.push({ ...answer, destination: `${destination.host} (${address})` });
    }
    return answers;
  } catch (error) {
    if (!(error instanceof AgentError)) throw error;
    throw new AgentError(error.message, error.status === 400 ? 64 : 69, { cause: error });
  }
}

/** @throws AgentError where no pod of the node has looked it up */
async function addressesOf(host: string, client: AgentClient): Promise<readonly string[]> {
  const path = `/fqdn/cache?matchpattern=${encodeURIComponent(host)}`;
  const found = (await client.get<readonly FqdnCacheModel[]>(path)).flatMap(({ ips }) => ips);
  if (found.length > 0) return [...new Set(found)].sort();
  throw new AgentError(
    `no pod of this node has looked up ${host} by the DNS proxy, so that it has no address here and rules by names allow nothing of it: have the pod ask first, or judge the policies with --file`,
  );
}

async function askFiles(
  question: Question,
  paths: readonly string[],
  { namespace, clusterName, allowLocalhost }: Options,
  context: CliContext,
): Promise<readonly FlowExplanation[]> {
  if (!isNamespaceName(namespace)) throw new UsageError(`"${namespace}" is no name of a namespace`, 64);
  const { files, unreadable } = await readSources(paths);
  const broken = files.flatMap(({ error }) => (error === undefined ? [] : [error]));
  // An answer without what they hold may be the wrong one.
  for (const error of [...unreadable, ...broken]) context.err.write(line(`weir: ${error.message}`));
  if (unreadable.length > 0 || broken.length > 0) {
    context.setExitCode(unreadable.length > 0 ? 66 : 65);
    return [];
  }
  const world = worldOf(
    files.flatMap(({ documents }) => documents.map(({ value }) => value)),
    clusterName,
  );
  const policies = policiesIn(files, world.referents, namespace);
  for (const { file, line: at, column, policy, path, code, message } of policies.doubts)
    context.err.write(line(`weir: ${file}:${at}:${column}: ${policy} ${path}: ${message} [${code}]`));
  const answer = explainInFiles(question, world, policies, { allowLocalhost });
  const unknown = world.unknownNamespaces.filter((name) => answer.ends.some(({ at }) => at.startsWith(`${name}/`)));
  if (unknown.length > 0 && JSON.stringify(policies.rules).includes(NAMESPACE_LABEL_PREFIX))
    context.err.write(
      line(`weir: no file has Namespace ${unknown.join(', ')}: selectors of its labels see only its name`),
    );
  return [answer];
}
