import base from './jest.config.js';

/** What runs on a real Kubernetes (test/cluster/real): it needs Go, so `npm test` does without. One cluster at a time. */
export default {
  ...base,
  testMatch: ['<rootDir>/test/real/**/*.test.ts', '<rootDir>/test/cluster/real/**/*.test.ts'],
  testPathIgnorePatterns: ['/node_modules/'],
  testTimeout: 120_000,
  globalSetup: '<rootDir>/test/real/setup.ts',
  maxWorkers: 1,
};
