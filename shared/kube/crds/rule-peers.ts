/** Whom a rule is about: selectors of pods and of others, CIDRs, Services, groups. */
import { CIDR, CIDR_OR_NONE, GROUP_NAME, GROUP_NAME_LENGTH, LABEL_VALUE, LABEL_VALUE_LENGTH } from './patterns.ts';
import { list, map, oneOf, open, type Schema, text } from './schema.ts';

const OPERATORS = ['In', 'NotIn', 'Exists', 'DoesNotExist'];

/** Entities of the language, in its order. */
export const ENTITY_NAMES: readonly string[] = [
  ...['all', 'world', 'world-ipv4', 'world-ipv6', 'cluster', 'host', 'remote-node', 'kube-apiserver'],
  ...['ingress', 'health', 'init', 'unmanaged', 'none'],
];

/** What a selector may be: `judged` where the operator reads it, whatever else the element says. */
const selectorOf = (description: string, judged: boolean): Schema => {
  const value = text(undefined, judged ? { pattern: LABEL_VALUE, maxLength: LABEL_VALUE_LENGTH } : {});
  return open(
    {
      matchLabels: map(
        value,
        'Labels that must all be there with exactly this value. A key may carry its source: k8s:app.',
      ),
      matchExpressions: list(
        open(
          {
            key: text('Label key, with or without a source.'),
            operator: text('In, NotIn, Exists or DoesNotExist.', judged ? { enum: OPERATORS } : {}),
            values: list(value, 'Values for In and NotIn; must be absent for Exists and DoesNotExist.'),
          },
          undefined,
          judged ? { required: ['key', 'operator'] } : {},
        ),
        'Requirements that must all hold.',
      ),
    },
    description,
  );
};

export const selector = (description: string): Schema => selectorOf(description, true);

/** Of what Weir does not enforce: only its shape counts. */
export const looseSelector = (description: string): Schema => selectorOf(description, false);

export const cidrRule: Schema = open(
  {
    cidr: text('A prefix: 10.0.0.0/8.', { pattern: CIDR_OR_NONE }),
    cidrGroupRef: text('Name of a CiliumCIDRGroup.', { pattern: GROUP_NAME, maxLength: GROUP_NAME_LENGTH }),
    cidrGroupSelector: selector('CiliumCIDRGroups by their labels.'),
    except: list(text(undefined, { pattern: CIDR }), 'Prefixes inside that are left out.'),
  },
  undefined,
  oneOf({ cidr: { minLength: 1 }, cidrGroupRef: { minLength: 1 }, cidrGroupSelector: undefined }),
);

export const service: Schema = open(
  {
    k8sService: open(
      { serviceName: text('Service name.', { minLength: 1 }), namespace: text('Its namespace.') },
      'One service.',
      { required: ['serviceName'] },
    ),
    k8sServiceSelector: open(
      { selector: selector('Services by their labels.'), namespace: text('Their namespace.') },
      'Services by labels.',
      { required: ['selector'] },
    ),
  },
  undefined,
  oneOf({ k8sService: undefined, k8sServiceSelector: undefined }),
);

export const group: Schema = open({
  aws: open(
    {
      labels: map(text()),
      region: text('AWS region.'),
      securityGroupsIds: list(text()),
      securityGroupsNames: list(text()),
    },
    'Addresses of AWS instances.',
  ),
});
