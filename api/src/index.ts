// SPDX-License-Identifier: Apache-2.0

// The contract between the parts of the control plane.

// Claims
export {
  AllocationSchema,
  ClaimSchema,
  ClaimService,
  ClaimState,
  ClaimStateSchema,
  CreateClaimRequestSchema,
  CreateClaimResponseSchema,
  CreateTicketRequestSchema,
  CreateTicketResponseSchema,
  ExplainClaimRequestSchema,
  ExplainClaimResponseSchema,
  GetClaimRequestSchema,
  GetClaimResponseSchema,
  ListClaimsRequestSchema,
  ListClaimsResponseSchema,
  Locality,
  NodeLoss,
  Placement,
  ReleaseClaimRequestSchema,
  ReleaseClaimResponseSchema,
  ServiceClass,
  VirtualGpuSchema,
  WaitClaimRequestSchema,
  WaitClaimResponseSchema,
} from "./gen/millpond/v1/claim_pb.ts";
export type {
  Allocation,
  Claim,
  CreateClaimRequest,
  CreateClaimResponse,
  CreateTicketRequest,
  CreateTicketResponse,
  ExplainClaimRequest,
  ExplainClaimResponse,
  GetClaimRequest,
  GetClaimResponse,
  ListClaimsRequest,
  ListClaimsResponse,
  ReleaseClaimRequest,
  ReleaseClaimResponse,
  VirtualGpu,
  WaitClaimRequest,
  WaitClaimResponse,
} from "./gen/millpond/v1/claim_pb.ts";

// The pool
export {
  CordonNodeRequestSchema,
  CordonNodeResponseSchema,
  CardFiguresSchema,
  DeviceHealth,
  DeviceHealthSchema,
  DeviceSchema,
  EventSchema,
  GetNodeRequestSchema,
  GetNodeResponseSchema,
  GetVersionRequestSchema,
  GetVersionResponseSchema,
  ListDevicesRequestSchema,
  ListDevicesResponseSchema,
  ListEventsRequestSchema,
  ListEventsResponseSchema,
  ListNodesRequestSchema,
  ListNodesResponseSchema,
  ListSessionsRequestSchema,
  ListSessionsResponseSchema,
  NodeSchema,
  NodeState,
  NodeStateSchema,
  PoolService,
  SessionDeviceSchema,
  SessionSchema,
  SessionState,
  SessionStateSchema,
} from "./gen/millpond/v1/pool_pb.ts";
export type {
  CordonNodeRequest,
  CordonNodeResponse,
  CardFigures,
  Device,
  Event,
  GetNodeRequest,
  GetNodeResponse,
  GetVersionRequest,
  GetVersionResponse,
  ListDevicesRequest,
  ListDevicesResponse,
  ListEventsRequest,
  ListEventsResponse,
  ListNodesRequest,
  ListNodesResponse,
  ListSessionsRequest,
  ListSessionsResponse,
  Node,
  Session,
  SessionDevice,
} from "./gen/millpond/v1/pool_pb.ts";

// Queues, tenants, usage
export {
  Borrowing,
  DeleteQueueRequestSchema,
  DeleteTenantRequestSchema,
  GetUsageRequestSchema,
  GetUsageResponseSchema,
  ListQueuesResponseSchema,
  ListTenantsResponseSchema,
  PutQueueRequestSchema,
  PutTenantRequestSchema,
  QueueSchema,
  QueueService,
  TenantSchema,
} from "./gen/millpond/v1/queue_pb.ts";
export { QuotaSchema, UsageBy, UserLimitsSchema } from "./gen/millpond/v1/queue_pb.ts";
export type {
  Amount,
  GetUsageResponse,
  Queue,
  Quota,
  Tenant,
  Usage,
  UserLimits,
  UserStatus,
} from "./gen/millpond/v1/queue_pb.ts";

// Access
export {
  AccessService,
  AuditRecordSchema,
  CreateTokenRequestSchema,
  ListAuditRequestSchema,
  LoginSchema,
  RevokeTokenRequestSchema,
  TokenSchema,
} from "./gen/millpond/v1/access_pb.ts";
export type { AuditRecord, Login, SigningKey, Token } from "./gen/millpond/v1/access_pb.ts";

// Agents as clients of the controller
export {
  AgentService,
  AllocationActivitySchema,
  DeviceFiguresSchema,
  DeviceReportSchema,
  DeviceUseSchema,
  EndedSessionSchema,
  SessionReportSchema,
  SyncRequestSchema,
  SyncResponseSchema,
} from "./gen/millpond/v1/agent_pb.ts";
export type {
  DeviceReport,
  DeviceUse,
  EndedSession,
  SessionReport,
  SyncRequest,
  SyncResponse,
} from "./gen/millpond/v1/agent_pb.ts";

// Agents as servers
export {
  GetNodeStatusRequestSchema,
  DescribeClaimRequestSchema,
  DescribeClaimResponseSchema,
  GetNodeStatusResponseSchema,
  NodeService,
  OpenSessionRequestSchema,
  OpenSessionResponseSchema,
  WorkerStatusSchema,
} from "./gen/millpond/v1/node_pb.ts";
export type {
  DescribeClaimRequest,
  GetNodeStatusRequest,
  GetNodeStatusResponse,
  OpenSessionRequest,
  OpenSessionResponse,
  WorkerStatus,
} from "./gen/millpond/v1/node_pb.ts";

// Errors
export { csvField } from "./csv.ts";
export {
  errorCodeOf,
  remedyOf,
  errorTable,
  exitStatuses,
  exitStatusOf,
  otherExitStatus,
  leaderHeader,
  millpondError,
  quote,
} from "./errors.ts";
export type { ErrorCode, ErrorDetail } from "./errors.ts";

// Reasons
export type { Fact as FactMessage, Reason as ReasonMessage } from "./gen/millpond/v1/reason_pb.ts";
export { reason, reasonArgs } from "./reasons/args.ts";
export type { Excess, HolderRef, QuotaBounds, Reason, ReasonCode } from "./reasons/args.ts";
export { formatExcess, formatGpus, formatQuota } from "./reasons/english.ts";
export { toReasonMessage } from "./reasons/message.ts";
export { readReason, writeReason } from "./reasons/json.ts";
export { refusal, refusalFor } from "./reasons/refusal.ts";
export { type MayKnow, mayKnowAll, mayKnowNone, renderReason } from "./reasons/render.ts";

// Fields of a claim
export { claimFieldNames, claimFieldSpecs } from "./claim-fields.ts";
export type { ClaimFieldName } from "./claim-fields.ts";
export {
  claimChoices,
  claimChoiceWord,
  claimValueParsers,
  formatClaimVariables,
  parseClaimMembers,
  parseClaimVariables,
  scalarText,
  toClaimMessage,
  serviceClassWord,
  serviceClassWords,
} from "./claim-values.ts";
export type { ClaimValueOfType, ClaimValues, ServiceClassWord } from "./claim-values.ts";
export { checkLabels, formatLabels, parseLabels } from "./labels.ts";

// Quotas as texts
export {
  type Bounds,
  borrowingWord,
  formatGpuMilli,
  parseBorrowing,
  parseQuota,
  parseQuotaMembers,
  quotaText,
} from "./quota.ts";

// Names, sizes, shares, durations
export { isName, isNodeName, parseName, parseNodeName } from "./names.ts";
export {
  countOf,
  bytesPerMiB,
  formatAge,
  formatBytes,
  formatDuration,
  formatTime,
  formatMemory,
  formatNeed,
  formatPercent,
  formatSize,
  maxMemoryBytes,
  minMemoryBytes,
  parseDuration,
  parseFraction,
  parseMemory,
  parsePercent,
  parseSize,
} from "./units.ts";
export type { MemoryRequest } from "./units.ts";

// Words of a shell
export { shellQuote } from "./shell.ts";

// Tickets
export { type FindKeys, isKeyId } from "./tickets/signed-text.ts";
export {
  formatTicketPublicKey,
  maxDevicesPerNode,
  maxSessionsPerDevice,
  maxTicketLength,
  maxTicketSpecLength,
  parseTicketPublicKey,
  signTicket,
  signViewTicket,
  ticketKeyId,
  ticketLifetimeSeconds,
  readTicket,
  verifyTicket,
  verifyViewTicket,
} from "./tickets/ticket.ts";
export type {
  TicketDevice,
  TicketKeys,
  TicketPayload,
  VerifyTicketOptions,
  ViewTicketPayload,
} from "./tickets/ticket.ts";

// The audit
export { AuditChain, auditHash, type AuditLink } from "./audit-chain.ts";
