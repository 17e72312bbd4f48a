/** AdmissionReviews (admission.k8s.io/v1): what is asked, and how it is answered. */
import { withoutDepths } from '@weir/process/depth';
import type { AdmissionAnswer, AdmissionRequest } from '../parts/contract.ts';

/**
 * A request to the operator's webhook server cannot be answered with a review.
 * @fix Send an AdmissionReview of admission.k8s.io/v1 as a POST; the message says what is wrong with the request.
 */
export class ReviewError extends Error {
  override readonly name = 'ReviewError';
  readonly code = 'ERR_WEIR_REVIEW';
  /** Of the HTTP answer. */
  readonly status: number;

  constructor(status: number, message: string, cause?: unknown) {
    super(message, cause === undefined ? undefined : { cause });
    this.status = status;
  }
}

/** @throws ReviewError */
export function requestIn(body: string): AdmissionRequest {
  let review: unknown;
  try {
    review = JSON.parse(body);
  } catch (error) {
    throw new ReviewError(400, 'the body is no JSON', error);
  }
  const { apiVersion, kind, request } = isObject(review) ? review : {};
  if (apiVersion !== 'admission.k8s.io/v1' || kind !== 'AdmissionReview' || !isObject(request) || !isRequest(request))
    throw new ReviewError(400, 'the body is no AdmissionReview of admission.k8s.io/v1 with a request and its uid');
  return withoutDepths(request);
}

/** The answer to a request; `code`: an HTTP status, why it was not allowed. */
export function reviewOf(uid: string, { allowed, message, warnings }: AdmissionAnswer, code = 403): object {
  const status = allowed ? {} : { status: { code, ...(message === undefined ? {} : { message }) } };
  const response = { uid, allowed, ...status, ...(warnings === undefined ? {} : { warnings }) };
  return { apiVersion: 'admission.k8s.io/v1', kind: 'AdmissionReview', response };
}

function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function isRequest(
  request: Readonly<Record<string, unknown>>,
): request is Readonly<Record<string, unknown>> & AdmissionRequest {
  return typeof request.uid === 'string';
}
