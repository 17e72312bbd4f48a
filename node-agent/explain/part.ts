import { type CompileInput, PROTOCOL_NUMBERS, type RuleProtocol } from '@weir/policy';
import type { FastifyInstance } from 'fastify';
import { BadRequestError } from '../api/errors.ts';
import { sendJson } from '../api/json.ts';
import { datapathPart } from '../core/datapath-part.ts';
import { corePart } from '../core/part.ts';
import { definePart } from '../parts/contract.ts';
import { explainLive, type LiveExplainer } from './explain.ts';

/** Answers `weir explain`: what is in force makes of a flow, and what the kernel does with a packet of it. */
export const explainPart = definePart({
  name: 'explain',
  needs: { core: corePart, datapath: datapathPart },
  build: ({ core, datapath }, { config: { nodeName }, agent }) => {
    const explainer = (): LiveExplainer => {
      const settings = agent.settings();
      return {
        core,
        nodeName,
        mode: (settings['policy-enforcement'] ?? 'default') as CompileInput['mode'],
        allowLocalhost: settings['allow-localhost'] !== 'false',
        kernel: {
          program: (direction) => {
            const { pinned } = datapath.open('send a test packet');
            return direction === 'egress' ? pinned.fromPod : pinned.toPod;
          },
          map: (name) => datapath.map(name),
          inNode: (body) => datapath.inNode(body),
        },
      };
    };
    return { routes: (app) => explainRoute(app, explainer) };
  },
});

/** `GET /policy/explain?source=pod/a/web&destination=entity/world&protocol=TCP&port=80`. */
export function explainRoute(app: FastifyInstance, explainer: () => LiveExplainer): void {
  app.get('/policy/explain', (request, reply) => {
    const query = request.query as Readonly<Record<string, unknown>>;
    const text = (name: string): string => {
      const value = query[name];
      if (typeof value === 'string' && value !== '') return value;
      throw new BadRequestError(`query parameter "${name}" is absent or given more than once`);
    };
    const protocol = (Object.keys(PROTOCOL_NUMBERS) as RuleProtocol[]).find((each) => each === text('protocol'));
    if (protocol === undefined)
      throw new BadRequestError(`query parameter "protocol" is none of ${Object.keys(PROTOCOL_NUMBERS).join(', ')}`);
    const question = { source: text('source'), destination: text('destination'), protocol, port: text('port') };
    return sendJson(reply, 200, explainLive(question, explainer()));
  });
}
