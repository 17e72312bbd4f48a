import { base, project } from './jest.config.js';

/** What runs on a real Kubernetes (test/cluster/real): it needs Go, so `npm test` does without. One cluster at a time. */
export default {
  ...project,
  ...base,
  testMatch: ['<rootDir>/test/real/**/*.test.ts', '<rootDir>/test/cluster/real/**/*.test.ts'],
  globalSetup: '<rootDir>/test/real/setup.ts',
  maxWorkers: 1,
};
