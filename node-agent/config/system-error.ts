export { codeOf, messageOf } from '@weir/process/errors';
