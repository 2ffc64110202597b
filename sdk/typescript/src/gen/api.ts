// SPDX-License-Identifier: Apache-2.0
// Generated from api/proto by `npm run generate -w api`: do not edit.

/** A 64-bit number: a string in answers. */
export type Int64 = string | number;

export type CreateTokenRequest = {
  readonly name?: string;
  readonly role?: string;
  /** Empty, for the roles user and tenant-admin: the caller's tenant, or `default`. */
  readonly tenant?: string;
  /** Seconds from now; 0: it does not expire. */
  readonly lifetimeSeconds?: Int64;
  /** Only for the role agent: the node that it may report. Empty: the node of the first agent that joins with it. */
  readonly node?: string;
};

export type CreateTokenResponse = {
  readonly token?: Token;
  /** The bearer token. */
  readonly secret?: string;
};

export type Token = {
  /** DNS label, unique. */
  readonly name?: string;
  /** `user`, `tenant-admin`, `agent` or `admin`. */
  readonly role?: string;
  /** For users and administrators of a tenant: the tenant; empty for others. */
  readonly tenant?: string;
  readonly createdAt?: Int64;
  /** 0: never. */
  readonly expiresAt?: Int64;
  /** Name of the token that created it. */
  readonly createdBy?: string;
  /** For agents: the only node that it may report. Empty: the node of the first agent that joins with it. */
  readonly node?: string;
};

export type ListTokensRequest = Readonly<Record<string, never>>;

export type ListTokensResponse = {
  readonly tokens?: readonly Token[];
};

export type RevokeTokenRequest = {
  readonly name?: string;
};

export type RevokeTokenResponse = Readonly<Record<string, never>>;

export type ListAuditRequest = {
  /** Only records with a greater id, oldest first; 0: the newest. */
  readonly after?: Int64;
  /** With `after` 0: the oldest records, not the newest. */
  readonly limit?: number;
  /** With `after` 0: the oldest, not the newest. */
  readonly fromOldest?: boolean;
};

export type ListAuditResponse = {
  /** In order of their ids. */
  readonly records?: readonly AuditRecord[];
};

/** One call that requested a change. */
export type AuditRecord = {
  /** Increases with every record. */
  readonly id?: Int64;
  readonly at?: Int64;
  /** Name of the token. Those of the state directory are `file:user` and `file:agent`. */
  readonly who?: string;
  readonly role?: string;
  /** The tenant of the token; empty: none. */
  readonly tenant?: string;
  /** `ClaimService/ReleaseClaim`. */
  readonly what?: string;
  /** `claim/train`; empty if the call was refused before its message was read. */
  readonly subject?: string;
  /** The header `Millpond-Reason`. */
  readonly why?: string;
  /** `ok`, or the error code. */
  readonly result?: string;
  /** Hash of the previous record. Empty: it is the first record, or is older than the chain. Always empty for a caller of one tenant, because the chain covers the records of all tenants. */
  readonly previousHash?: string;
  /** SHA-256, hexadecimal, over `previous_hash` and the members `at` to `result` in the order above, each as `<bytes>:<text>`. Empty as above. */
  readonly hash?: string;
};

export type ListKeysRequest = Readonly<Record<string, never>>;

export type ListKeysResponse = {
  readonly keys?: readonly SigningKey[];
};

/** A key that tickets are signed with. Tokens of claims and programs, and logins of the console, are derived from it. */
export type SigningKey = {
  /** First 16 hexadecimal digits of the SHA-256 of the public key in SPKI form. */
  readonly id?: string;
  readonly createdAt?: Int64;
  /** Tickets signed with it are refused from this time on; 0: it is the current key. */
  readonly retiresAt?: Int64;
  /** The key was revoked: nothing that it signed, or that is derived from it, is accepted. */
  readonly revoked?: boolean;
  /** Whether tokens derived from it are still accepted, for claims that existed when it retired. */
  readonly derives?: boolean;
  /** Ed25519: SPKI, DER, base64. */
  readonly publicKey?: string;
};

export type RotateKeyRequest = {
  /** Revoke all earlier keys immediately, because a key was disclosed: their tickets, the tokens that running programs have for their claims, and logins of the console become invalid. */
  readonly revoke?: boolean;
};

export type RotateKeyResponse = {
  readonly key?: SigningKey;
};

export type CreateLoginCodeRequest = Readonly<Record<string, never>>;

export type CreateLoginCodeResponse = {
  /** `mp-login-…` */
  readonly code?: string;
  readonly expiresAt?: Int64;
};

export type ListLoginsRequest = Readonly<Record<string, never>>;

export type ListLoginsResponse = {
  readonly logins?: readonly Login[];
};

/** A login of a browser, or of a command line through an OpenID provider. */
export type Login = {
  /** 16 hexadecimal digits. */
  readonly id?: string;
  /** Name of the token with which it was made; for a login by an OpenID provider, `oidc:` and the user. */
  readonly who?: string;
  /** The tenant of the token; empty: all tenants. */
  readonly tenant?: string;
  /** `console` or `command-line`. */
  readonly kind?: string;
  readonly createdAt?: Int64;
  readonly expiresAt?: Int64;
};

export type RevokeLoginRequest = {
  /** Empty: the login by an OpenID provider with which the call is made. */
  readonly id?: string;
};

export type RevokeLoginResponse = {
  readonly login?: Login;
};

export type CreateLoginRequest = {
  readonly id?: string;
  readonly kind?: string;
};

export type CreateLoginResponse = Readonly<Record<string, never>>;

export type GetCallerRequest = Readonly<Record<string, never>>;

export type GetCallerResponse = {
  /** Name of the token; for a login by an OpenID provider, `oidc:` and the user. */
  readonly name?: string;
  /** The token's role; `claim` or `program` for tokens of programs. */
  readonly role?: string;
  /** The only tenant whose claims the caller may access; empty: all tenants. */
  readonly tenant?: string;
  /** 0: never. */
  readonly expiresAt?: Int64;
  /** The only claim that the caller may access; empty: all claims of the tenant. */
  readonly claim?: string;
  /** For an agent: the only node that it may report; empty until a node has joined with its token. */
  readonly node?: string;
  /** Id of the login by an OpenID provider to which the token belongs; empty: none. */
  readonly login?: string;
};

export type CreateClaimRequest = {
  readonly claim?: Claim;
  /** Refuse with MILLPOND_E_NO_CAPACITY instead of waiting. */
  readonly noWait?: boolean;
  /** Further fields of the request, as environment variables of the program (`MILLPOND_QUEUE`): see docs/reference/claims.md. A client library therefore need not know their meaning. Not for fields that `claim` itself sets. */
  readonly variables?: Readonly<Record<string, string>>;
};

export type Claim = {
  /** DNS label, unique. Empty in CreateClaim: the controller generates one (`claim-` and 16 hex digits). */
  readonly name?: string;
  /** Number of vGPUs, 1 to 64. 0 in CreateClaim: 1. */
  readonly gpus?: number;
  /** Memory of each vGPU, at least 1 MiB; 0 and no `memory_percent`: the whole memory of the device. */
  readonly memoryBytes?: Int64;
  /** Memory of each vGPU in percent of its device, 1 to 100. Not together with `memory_bytes`. */
  readonly memoryPercent?: number;
  /** Compute share of each vGPU in percent of its device, 1 to 100. 0: in proportion to the memory, rounded up; none for best effort, for which none may be requested. */
  readonly computePercent?: number;
  /** The requester, for display: `user@host:pid program`. At most 256 characters. */
  readonly owner?: string;
  /** The claim ends when its lease has not been renewed for this long and none of its sessions is open. 5 to 604800; 0: 15. */
  readonly leaseSeconds?: number;
  /** The claim ends with its session, regardless of its lease: for claims that a client library creates for its own process. */
  readonly sessionBound?: boolean;
  /** Whole devices, shared with no other claim. Not together with a memory or compute share. */
  readonly exclusive?: boolean;
  /** Substrings of model names, compared without case: a device fits when its name contains one of them. At most 16. */
  readonly models?: readonly string[];
  /** Least compute capability, `9.0`. Empty: any. */
  readonly minComputeCapability?: string;
  /** Only nodes whose label `pool` has this value. Empty: any. */
  readonly pool?: string;
  /** Tenant to which the usage is charged. Empty: `default`. */
  readonly tenant?: string;
  /** Queue in which it waits, without children. Empty: `default`. */
  readonly queue?: string;
  /** Priority within the queue, -1000 to 1000; higher is served first. */
  readonly priority?: number;
  /** Whether it may be preempted: after notice, and then requeued. Best-effort claims always may be. */
  readonly preemptible?: boolean;
  /** Name of a gang: its members are bound together or not at all, on any number of nodes. Empty: none. */
  readonly gang?: string;
  /** Number of claims in the gang, 2 to 256; the same for all members. */
  readonly gangSize?: number;
  readonly placement?: Placement;
  readonly locality?: Locality;
  /** All members of the gang on one node. */
  readonly sameNode?: boolean;
  /** For display and for the affinity of other claims. At most 32. */
  readonly labels?: Readonly<Record<string, string>>;
  /** Only nodes with these labels. */
  readonly nodeLabels?: Readonly<Record<string, string>>;
  /** Only nodes that hold a claim with these labels; if no node does, any node. */
  readonly affinity?: Readonly<Record<string, string>>;
  /** Only nodes that hold no claim with one of these labels. */
  readonly antiAffinity?: Readonly<Record<string, string>>;
  /** Ends with notice when it has been bound for this long. 0: no limit. */
  readonly timeLimitSeconds?: number;
  /** Ends with notice when no session has called its devices for this long. 0: no limit. */
  readonly idleLimitSeconds?: number;
  readonly serviceClass?: ServiceClass;
  readonly nodeLoss?: NodeLoss;
  /** Boot id of the host of its program, for `locality`. Empty: unknown, and every node is remote. */
  readonly clientHost?: string;
  /** Notice before it is preempted, 0 to 3600; 0: 30. */
  readonly graceSeconds?: number;
  /** Holds nothing until one of its programs calls its devices, and releases its allocation when its last session has ended. Ignored together with `session_bound`, because the program of such a claim has already called. Not together with a gang. */
  readonly lazy?: boolean;
  /** Lazy claims only: a session that is idle for this long and holds no state is parked until its program calls the devices again. 0: 300. */
  readonly lazyIdleSeconds?: number;
  /** Only devices with these UUIDs, for an external scheduler that has chosen them. At most 64. Empty: any. */
  readonly onlyDevices?: readonly string[];
  /** Only this node. Empty: any. */
  readonly onlyNode?: string;
  /** Gangs only: the address, `host:port`, at which the other members' programs can reach this claim's, such as the address at which the first one waits for the others. At most 256 characters. Empty: unknown. */
  readonly rendezvous?: string;
  readonly state?: ClaimState;
  /** One sentence for display: why it waits, or how it ended. Empty while bound. */
  readonly reason?: string;
  /** Increases with every change of the claim. */
  readonly version?: Int64;
  /** Set while bound. */
  readonly allocation?: Allocation;
  /** Position among the waiting claims of its queue, from 1; 0: not waiting. */
  readonly queuePosition?: number;
  /** Number of sessions that the node last reported open. */
  readonly openSessions?: number;
  readonly createdAt?: Int64;
  /** 0: never bound. */
  readonly boundAt?: Int64;
  /** 0: not ended. */
  readonly endedAt?: Int64;
  /** When the lease ends unless it is renewed. 0: ended. */
  readonly leaseExpiresAt?: Int64;
  /** When it will be preempted, for the reason in `reason`: its program should end before then. 0: not planned. */
  readonly preemptAt?: Int64;
  /** How often it was requeued. */
  readonly requeues?: number;
  /** When it last began to wait. 0: it is not waiting. */
  readonly waitingSince?: Int64;
  /** `reason` in structured form; absent if `reason` is empty. */
  readonly why?: Reason;
  /** Gangs only: its number among the members, from 0. The number does not change; a claim that replaces an ended member gets that member's number. */
  readonly gangRank?: number;
  /** The user to whom it is charged: the name of the token that created it, or from which its program's token was created. Empty: an earlier release created it. */
  readonly user?: string;
};

/** Placement policy. `PLACEMENT_LEAST_FRAGMENTATION`: Minimizes the capacity that other claims can no longer use. The default. `PLACEMENT_BINPACK`: On the fullest devices on which it fits. `PLACEMENT_SPREAD`: On the emptiest devices. */
export type Placement =
  | "PLACEMENT_UNSPECIFIED"
  | "PLACEMENT_LEAST_FRAGMENTATION"
  | "PLACEMENT_BINPACK"
  | "PLACEMENT_SPREAD";

/** Where vGPUs are placed relative to the host of the program, `client_host`. `LOCALITY_PREFER_LOCAL`: On that host if it has room, otherwise anywhere. The default. `LOCALITY_LOCAL_ONLY`: On that host only. `LOCALITY_ANY`: Anywhere. */
export type Locality =
  | "LOCALITY_UNSPECIFIED"
  | "LOCALITY_PREFER_LOCAL"
  | "LOCALITY_LOCAL_ONLY"
  | "LOCALITY_ANY";

/** `SERVICE_CLASS_GUARANTEED`: A hard share. The default. `SERVICE_CLASS_BURSTABLE`: Its share is a minimum; it may use idle compute too. `SERVICE_CLASS_BEST_EFFORT`: Only idle compute, after all others, and preempted first. It holds memory, and no compute. */
export type ServiceClass =
  | "SERVICE_CLASS_UNSPECIFIED"
  | "SERVICE_CLASS_GUARANTEED"
  | "SERVICE_CLASS_BURSTABLE"
  | "SERVICE_CLASS_BEST_EFFORT";

/** How to treat a bound claim whose node is lost. `NODE_LOSS_KEEP`: It stays bound and waits for the node, because its programs may still run there without the controller. The default. `NODE_LOSS_REQUEUE`: It waits for room elsewhere, at its previous place in the queue. `NODE_LOSS_FAIL`: It ends. */
export type NodeLoss =
  | "NODE_LOSS_UNSPECIFIED"
  | "NODE_LOSS_KEEP"
  | "NODE_LOSS_REQUEUE"
  | "NODE_LOSS_FAIL";

/** `CLAIM_STATE_PENDING`: Waits for room in the pool; `reason` says why. `CLAIM_STATE_BOUND`: Has an allocation. `CLAIM_STATE_RELEASED`: Ended by its owner, by its session, or by the expiry of its lease; `reason` gives the cause. `CLAIM_STATE_FAILED`: Ended because the pool could not keep it; `reason` gives the cause. `CLAIM_STATE_DORMANT`: Lazy, and no program of it needs its devices: it requests nothing and holds nothing. */
export type ClaimState =
  | "CLAIM_STATE_UNSPECIFIED"
  | "CLAIM_STATE_PENDING"
  | "CLAIM_STATE_BOUND"
  | "CLAIM_STATE_RELEASED"
  | "CLAIM_STATE_FAILED"
  | "CLAIM_STATE_DORMANT";

/** The granted vGPUs. The order is that of the client's device ordinals. */
export type Allocation = {
  readonly claim?: string;
  readonly node?: string;
  /** Increases with every allocation that the controller ever makes: an agent refuses tickets with a lower epoch than the highest it has seen for the claim. */
  readonly epoch?: Int64;
  /** The vGPUs that its sessions may use. */
  readonly devices?: readonly VirtualGpu[];
  /** Increases with every resize. 0: never resized. */
  readonly sizeRevision?: Int64;
  /** Service class of the claim, which defines the meaning of its compute shares. */
  readonly serviceClass?: ServiceClass;
};

/** A part of a device. */
export type VirtualGpu = {
  /** UUID of the device on its node. */
  readonly uuid?: string;
  readonly memoryBytes?: Int64;
  /** 1 to 100; 0 for best effort, which has no share. */
  readonly computePercent?: number;
};

/** A reason of docs/reference/reasons.md, redacted for its reader: the names of claims and gangs of other tenants are left out. */
export type Reason = {
  /** `kept-for`, `queue-at-limit`, …: the meaning of a code never changes. */
  readonly code?: string;
  /** By name, as documented for the code. Sizes are bytes, durations are seconds. */
  readonly args?: Struct;
  /** The same as one sentence for display, without a full stop. */
  readonly text?: string;
};

/** Represents a JSON object. An unordered key-value map, intending to perfectly capture the semantics of a JSON object. This enables parsing any arbitrary JSON payload as a message field in ProtoJSON format. This follows RFC 8259 guidelines for interoperable JSON: notably this type cannot represent large Int64 values or `NaN`/`Infinity` numbers, since the JSON format generally does not support those values in its number type. If you do not intend to parse arbitrary JSON into your message, a custom typed message should be preferred instead of using this type. */
export type Struct = {
  /** Unordered map of dynamically typed values. */
  readonly fields?: Readonly<Record<string, Value>>;
};

/** Represents a JSON value. `Value` represents a dynamically typed value which can be either null, a number, a string, a boolean, a recursive struct value, or a list of values. A producer of value is expected to set one of these variants. Absence of any variant is an invalid state. */
export type Value = {
  /** Represents a JSON `null`. */
  readonly nullValue?: NullValue;
  /** Represents a JSON number. Must not be `NaN`, `Infinity` or `-Infinity`, since those are not supported in JSON. This also cannot represent large Int64 values, since JSON format generally does not support them in its number type. */
  readonly numberValue?: number;
  /** Represents a JSON string. */
  readonly stringValue?: string;
  /** Represents a JSON boolean (`true` or `false` literal in JSON). */
  readonly boolValue?: boolean;
  /** Represents a JSON object. */
  readonly structValue?: Struct;
  /** Represents a JSON array. */
  readonly listValue?: ListValue;
};

/** Represents a JSON `null`. `NullValue` is a sentinel, using an enum with only one value to represent the null value for the `Value` type union. A field of type `NullValue` with any value other than `0` is considered invalid. Most ProtoJSON serializers will emit a `Value` with a `null_value` set as a JSON `null` regardless of the integer value, and so will round trip to a `0` value. `NULL_VALUE`: Null value. */
export type NullValue =
  | "NULL_VALUE";

/** Represents a JSON array. */
export type ListValue = {
  /** Repeated field of dynamically typed values. */
  readonly values?: readonly Value[];
};

export type CreateClaimResponse = {
  readonly claim?: Claim;
};

export type WaitClaimRequest = {
  readonly name?: string;
  /** The version that the caller has seen; 0 answers immediately. */
  readonly knownVersion?: Int64;
  /** 0 to 60; 0 answers immediately. */
  readonly timeoutSeconds?: number;
  /** The caller needs the devices: a dormant claim enters its queue, and keeps waiting for as long as such a call is made every 15 s. */
  readonly wake?: boolean;
  /** With `wake`, for a program that has already seen devices of the claim: their models and, if the program shares memory with them, the boot id of its host. The claim is bound to no other kind until it is dormant again. Ignored if the claim is already awake. */
  readonly toldModels?: readonly string[];
  readonly toldHost?: string;
};

export type WaitClaimResponse = {
  readonly claim?: Claim;
};

export type CreateTicketRequest = {
  /** Name of the claim. */
  readonly claim?: string;
  /** Host of the client, for display: its boot id, or its host name. */
  readonly clientHost?: string;
  readonly clientPid?: number;
  readonly program?: string;
  /** Session of the caller's last ticket, if the agent could not be reached with it. If no session was opened with that ticket, the new one is for the same session, so that a client that keeps trying counts only once towards the claim's limit of sessions. */
  readonly unopenedSession?: string;
};

export type CreateTicketResponse = {
  /** `mpt1.<payload>.<signature>`, valid for 60 s, opens one session. */
  readonly ticket?: string;
  /** Base URL of the agent whose NodeService/OpenSession takes the ticket; `https:` with `#sha256=` and the SHA-256 of its certificate. */
  readonly agentUrl?: string;
  /** UUID of the session that the ticket opens. */
  readonly session?: string;
};

export type ViewClaimRequest = {
  readonly name?: string;
};

export type ViewClaimResponse = {
  readonly claim?: Claim;
  /** `mpv1.<payload>.<signature>`, valid for 60 s, for any number of calls. Empty while the claim is not bound, or its node's agent is not in contact. */
  readonly viewTicket?: string;
  /** As in CreateTicketResponse: the agent whose NodeService/DescribeClaim takes the view ticket. Empty if `view_ticket` is. */
  readonly agentUrl?: string;
};

export type ReleaseClaimRequest = {
  readonly name?: string;
  /** For a claim with notice: act now instead of at the end of the notice. The claim is requeued, or ends if it exceeded a limit. A claim without notice is unchanged. */
  readonly requeue?: boolean;
};

export type ReleaseClaimResponse = Readonly<Record<string, never>>;

export type ResizeClaimRequest = {
  readonly name?: string;
  /** Number of vGPUs, 1 to 64. */
  readonly gpus?: number;
  /** Memory of each vGPU, at least 1 MiB. */
  readonly memoryBytes?: Int64;
  /** Memory of each vGPU in percent of its device, 1 to 100. Not together with `memory_bytes`. */
  readonly memoryPercent?: number;
  /** Compute share of each vGPU, 1 to 100. */
  readonly computePercent?: number;
  /** If it must be placed again and there is no room now, release the allocation and wait in the queue. */
  readonly wait?: boolean;
};

export type ResizeClaimResponse = {
  readonly claim?: Claim;
};

export type PrioritizeClaimRequest = {
  readonly name?: string;
  /** Within the queue, -1000 to 1000; higher is served first. */
  readonly priority?: number;
};

export type PrioritizeClaimResponse = {
  readonly claim?: Claim;
};

export type CreateClaimTokenRequest = {
  /** Name of the claim. */
  readonly name?: string;
};

export type CreateClaimTokenResponse = {
  /** The bearer token. */
  readonly secret?: string;
};

export type CreateProgramTokenRequest = {
  /** Tenant of the claims. Empty: the caller's tenant, or `default`. */
  readonly tenant?: string;
};

export type CreateProgramTokenResponse = {
  /** The bearer token. */
  readonly secret?: string;
  /** Unix seconds at which the token expires, together with the token or login that created it. 0: when that is revoked. */
  readonly expiresAt?: Int64;
};

export type GetClaimRequest = {
  readonly name?: string;
};

export type GetClaimResponse = {
  readonly claim?: Claim;
};

export type ExplainClaimRequest = {
  readonly name?: string;
};

export type ExplainClaimResponse = {
  readonly claim?: Claim;
  /** The obstacle: `room`, `quota`, `limit`, `gang`, `reserved` or `preempting`; empty if it does not wait. `limit`: the claim alone exceeds a limit of its queue, tenant or user. */
  readonly obstacle?: string;
  /** Number of claims that wait in its queue. */
  readonly queueLength?: number;
  /** Claims that must end before it gets room, if the claims ahead of it stay the same and get theirs; if it waits for a quota, the claims that hold the quota. Only those that the caller may see. */
  readonly waitsFor?: readonly string[];
  /** Latest time at which it gets room, if the claims ahead of it stay the same. 0: unknown. */
  readonly expectedAt?: Int64;
  /** The claim of the pool that is expected to end next; empty if unknown, or if the caller may not see it. */
  readonly nextReleaseClaim?: string;
  /** The latest time. 0: unknown. */
  readonly nextReleaseAt?: Int64;
  /** Sentences for display: the usage of its queue, the queues above it and its tenant. */
  readonly facts?: readonly string[];
  /** The number of claims that it waits for and that are hidden from the caller. */
  readonly waitsForHidden?: number;
  /** `facts` in structured form, in the same order. */
  readonly factDetails?: readonly Fact[];
};

/** A number behind an explanation. */
export type Fact = {
  /** Subject: `queue research`, `tenant a`, `node node-1`, `idle`. */
  readonly subject?: string;
  readonly reason?: Reason;
};

export type ListClaimsRequest = {
  /** Also claims that have ended; the controller remembers the last 1000. */
  readonly includeEnded?: boolean;
  /** Only the claims of this gang. Empty: all. */
  readonly gang?: string;
};

export type ListClaimsResponse = {
  readonly claims?: readonly Claim[];
};

export type ListNodesRequest = Readonly<Record<string, never>>;

export type ListNodesResponse = {
  readonly nodes?: readonly Node[];
};

export type Node = {
  /** DNS label, unique. */
  readonly name?: string;
  readonly state?: NodeState;
  /** One sentence for display; empty if ready. */
  readonly reason?: string;
  readonly cordoned?: boolean;
  /** Base URL of the agent. */
  readonly agentUrl?: string;
  /** Version of the agent's software. */
  readonly agentVersion?: string;
  /** Identity of the agent process. */
  readonly run?: string;
  readonly hostname?: string;
  /** Boot id of the host. */
  readonly bootId?: string;
  /** Workers that wait for a session. */
  readonly warmWorkers?: number;
  readonly joinedAt?: Int64;
  /** 0: not since the controller started. */
  readonly lastContactAt?: Int64;
  readonly devices?: readonly Device[];
  readonly labels?: Readonly<Record<string, string>>;
  /** Why it is cordoned, for display. */
  readonly cordonReason?: string;
};

/** `NODE_STATE_READY`: Its agent is in contact. `NODE_STATE_NOT_READY`: No heartbeat from its agent for 10 s, or none since the controller started: it gets no new claims, and keeps the existing ones. */
export type NodeState =
  | "NODE_STATE_UNSPECIFIED"
  | "NODE_STATE_READY"
  | "NODE_STATE_NOT_READY";

/** A physical GPU, with its allocations and their use. */
export type Device = {
  readonly node?: string;
  /** Ordinal on its node, in PCI order. */
  readonly index?: number;
  /** Unique on its node. */
  readonly uuid?: string;
  readonly name?: string;
  /** `nvidia` or `softgpu`. */
  readonly kind?: string;
  readonly memoryBytes?: Int64;
  readonly pciBusId?: string;
  /** `9.0`. */
  readonly computeCapability?: string;
  readonly multiprocessors?: number;
  /** Empty for a software GPU. */
  readonly driverVersion?: string;
  /** 13000 is CUDA 13.0. */
  readonly cudaVersion?: number;
  readonly health?: DeviceHealth;
  readonly healthReason?: string;
  /** Cordoned: it gets no new claims. */
  readonly cordoned?: boolean;
  /** Why; empty: not given. */
  readonly cordonReason?: string;
  /** Where it is attached on its node: devices with the same value are in the same place. Empty: unknown. */
  readonly numaNode?: string;
  readonly pcieSwitch?: string;
  readonly nvlinkDomain?: string;
  /** Memory that the scheduler reserves for the driver, in addition to the memory of each claim. 0: none, or not reported. */
  readonly overheadBytes?: Int64;
  /** Memory of it that claims hold. */
  readonly allocatedMemoryBytes?: Int64;
  readonly allocatedComputePercent?: number;
  /** Number of vGPUs on it. */
  readonly virtualGpus?: number;
  /** Memory of it that sessions use, as last reported. */
  readonly usedMemoryBytes?: Int64;
  readonly openSessions?: number;
  /** Device time that sessions used in the last seconds, in percent of that time, 0 to 100. Absent: unknown for at least one. */
  readonly usedComputePercent?: number;
  /** Temperature, power, clocks and errors. Absent: its driver reports none, its node is not in contact, or the caller is not an administrator and sees no claim that has the whole GPU. */
  readonly card?: CardFigures;
};

/** `DEVICE_HEALTH_UNHEALTHY`: Gets no new claims; `health_reason` gives the cause. */
export type DeviceHealth =
  | "DEVICE_HEALTH_UNSPECIFIED"
  | "DEVICE_HEALTH_HEALTHY"
  | "DEVICE_HEALTH_UNHEALTHY";

/** Measurements of a GPU by the driver's management library. Absent: not reported. */
export type CardFigures = {
  readonly temperatureCelsius?: number;
  readonly powerMilliwatts?: number;
  readonly powerLimitMilliwatts?: number;
  readonly graphicsClockMhz?: number;
  readonly smClockMhz?: number;
  readonly memoryClockMhz?: number;
  readonly maxGraphicsClockMhz?: number;
  readonly maxSmClockMhz?: number;
  readonly maxMemoryClockMhz?: number;
  readonly utilizationPercent?: number;
  readonly memoryUtilizationPercent?: number;
  /** 0 is the fastest. */
  readonly performanceState?: number;
  /** Errors of its memory since the driver was loaded. */
  readonly eccCorrectedErrors?: number;
  readonly eccUncorrectedErrors?: number;
  /** Rows of its memory that were replaced permanently. */
  readonly remappedRows?: number;
  /** 1: replaced rows take effect only after a reset of the device. */
  readonly pendingRowRemaps?: number;
  /** Xids that the driver has reported since the agent began to watch the device, including those that programs caused. */
  readonly xids?: number;
  readonly lastXid?: number;
};

export type GetNodeRequest = {
  readonly name?: string;
};

export type GetNodeResponse = {
  readonly node?: Node;
};

export type CordonNodeRequest = {
  readonly name?: string;
  /** false: uncordon. */
  readonly cordoned?: boolean;
  /** Only this device of the node. Empty: the whole node. */
  readonly deviceUuid?: string;
  /** Why, for display. At most 256 characters. */
  readonly reason?: string;
};

export type CordonNodeResponse = {
  readonly node?: Node;
};

export type DrainNodeRequest = {
  readonly name?: string;
  /** Why, for display. At most 256 characters. */
  readonly reason?: string;
};

export type DrainNodeResponse = {
  readonly node?: Node;
  /** Names of the claims that were given notice. */
  readonly claims?: readonly string[];
};

export type RemoveNodeRequest = {
  readonly name?: string;
  /** The host is permanently gone, with everything that ran there: this also removes the claims there, and allocations whose release its agent has not confirmed. The agent must have been silent for 30 s. */
  readonly lost?: boolean;
};

export type RemoveNodeResponse = {
  /** Names of the claims that were still bound there: they have ended, or wait again, according to their `node_loss`. */
  readonly claims?: readonly string[];
};

export type LabelNodeRequest = {
  readonly name?: string;
  /** Labels to add or change. */
  readonly set?: Readonly<Record<string, string>>;
  /** Keys of labels to remove. Labels that the node's agent reports become visible again. */
  readonly remove?: readonly string[];
};

export type LabelNodeResponse = {
  readonly node?: Node;
};

export type ListDevicesRequest = {
  /** Empty: all nodes. */
  readonly node?: string;
};

export type ListDevicesResponse = {
  readonly devices?: readonly Device[];
};

export type ListSessionsRequest = {
  /** Empty: all claims. */
  readonly claim?: string;
  /** Empty: all nodes. */
  readonly node?: string;
};

export type ListSessionsResponse = {
  readonly sessions?: readonly Session[];
};

/** One client process with one worker, as its agent last reported it. */
export type Session = {
  /** UUID. */
  readonly id?: string;
  readonly claim?: string;
  readonly node?: string;
  readonly epoch?: Int64;
  readonly state?: SessionState;
  readonly startedAt?: Int64;
  readonly clientPid?: number;
  readonly clientHost?: string;
  readonly program?: string;
  /** `shm` or `tcp`; empty until the client has connected. */
  readonly transport?: string;
  readonly devices?: readonly SessionDevice[];
  /** Calls executed so far, launches and waits included. */
  readonly commands?: Int64;
  readonly launches?: Int64;
  readonly waits?: Int64;
  /** Owner of the claim. */
  readonly owner?: string;
  /** Why a session that has reached the idle limit of its lazy claim is not parked. Empty for any other session. */
  readonly notParked?: string;
};

/** `SESSION_STATE_ASSIGNED`: A worker waits for the client that holds the ticket. `SESSION_STATE_CLOSING`: Ending; its memory may still be in use. */
export type SessionState =
  | "SESSION_STATE_UNSPECIFIED"
  | "SESSION_STATE_ASSIGNED"
  | "SESSION_STATE_CONNECTED"
  | "SESSION_STATE_CLOSING";

export type SessionDevice = {
  readonly granted?: VirtualGpu;
  readonly memoryUsedBytes?: Int64;
  /** Ordinal of the device on its node. */
  readonly index?: number;
  /** Device time that it used in the last seconds, in percent of that time, 0 to 100. Absent: unknown. */
  readonly computeUsedPercent?: number;
};

export type ListEventsRequest = {
  /** Only events with a greater id. */
  readonly after?: Int64;
  /** Only events of this subject; empty: all. */
  readonly subject?: string;
  /** The newest events, at most this many, 1 to 1000; 0: 100. With `after`, the oldest ones after it. */
  readonly limit?: number;
};

export type ListEventsResponse = {
  readonly events?: readonly Event[];
};

export type Event = {
  /** Increases by one with every event. */
  readonly id?: Int64;
  readonly at?: Int64;
  /** One word in PascalCase: `ClaimBound`, `NodeLost`. */
  readonly kind?: string;
  /** `claim/NAME`, `node/NAME` or `device/NODE/INDEX`. */
  readonly subject?: string;
  /** One sentence for display. */
  readonly message?: string;
  /** `message` in structured form. */
  readonly detail?: Reason;
};

export type BackUpRequest = Readonly<Record<string, never>>;

export type BackUpResponse = {
  /** Path of the file on the controller's host. */
  readonly path?: string;
  readonly bytes?: Int64;
  /** Revision of the state in it. */
  readonly revision?: Int64;
};

export type GetVersionRequest = Readonly<Record<string, never>>;

export type GetVersionResponse = {
  /** Version of the controller's software. */
  readonly version?: string;
  /** UUID of the controller's state: a different one means a different pool. */
  readonly controller?: string;
  /** `v1`. */
  readonly api?: string;
  readonly startedAt?: Int64;
  /** Whether this controller is the leader among those that share a state. */
  readonly leads?: boolean;
  /** URL of the leader; empty: there is no leader now. */
  readonly leaderUrl?: string;
};

export type PutQueueRequest = {
  readonly queue?: Queue;
  /** Refuse with MILLPOND_E_ALREADY_EXISTS if it exists. */
  readonly createOnly?: boolean;
  /** Refuse with MILLPOND_E_NOT_FOUND if it does not exist. */
  readonly changeOnly?: boolean;
};

export type Queue = {
  /** DNS label, unique. */
  readonly name?: string;
  /** The parent queue; empty: none. */
  readonly parent?: string;
  /** Weight among its siblings for capacity beyond the guarantees, 1 to 10000. 0 in PutQueue: 1. */
  readonly weight?: number;
  readonly borrowing?: Borrowing;
  /** Guarantee: served before any queue gets more than its own guarantee. */
  readonly guaranteed?: Quota;
  /** Upper bound for all its claims together. */
  readonly limit?: Quota;
  readonly used?: Amount;
  readonly waitingClaims?: number;
  readonly boundClaims?: number;
};

/** Which claims may use more than the queue's guarantee while other queues leave capacity idle. `BORROWING_ANY`: All claims. The default. `BORROWING_PREEMPTIBLE`: Preemptible claims only, so that the queue with the guarantee gets its capacity back when it needs it. `BORROWING_NONE`: None. */
export type Borrowing =
  | "BORROWING_UNSPECIFIED"
  | "BORROWING_ANY"
  | "BORROWING_PREEMPTIBLE"
  | "BORROWING_NONE";

/** Bounds on an amount. An absent one is not set. */
export type Quota = {
  /** Thousandths of a GPU: a vGPU counts as the greater of its shares of memory and compute. */
  readonly gpuMilli?: Int64;
  /** 100 is the compute of one device. */
  readonly computePercent?: Int64;
  readonly memoryBytes?: Int64;
};

/** An amount of the pool's capacity. */
export type Amount = {
  readonly gpuMilli?: Int64;
  readonly computePercent?: Int64;
  readonly memoryBytes?: Int64;
};

export type PutQueueResponse = {
  readonly queue?: Queue;
};

export type ListQueuesRequest = Readonly<Record<string, never>>;

export type ListQueuesResponse = {
  readonly queues?: readonly Queue[];
};

export type DeleteQueueRequest = {
  readonly name?: string;
};

export type DeleteQueueResponse = Readonly<Record<string, never>>;

export type PutTenantRequest = {
  readonly tenant?: Tenant;
  readonly createOnly?: boolean;
  readonly changeOnly?: boolean;
};

/** A tenant, to which usage is charged. */
export type Tenant = {
  /** DNS label, unique. */
  readonly name?: string;
  readonly limit?: Quota;
  /** Upper bounds for its users, each for the user's claims in all queues. Absent in PutTenant: they stay unchanged. */
  readonly userLimits?: UserLimits;
  readonly used?: Amount;
  readonly waitingClaims?: number;
  readonly boundClaims?: number;
  /** Its users that have claims or a limit of their own, in order of their names. */
  readonly users?: readonly UserStatus[];
};

/** A user of a tenant is the name of a token: its claims are those that were created with the token, and those of programs whose token was created with it (CreateProgramToken). Two tokens are two users. */
export type UserLimits = {
  /** The limit of each user that `users` does not name. Absent: none. */
  readonly each?: Quota;
  /** Limits of single users, at most 1000. */
  readonly users?: readonly UserLimit[];
};

export type UserLimit = {
  /** Name of the token. */
  readonly user?: string;
  /** Without any bound: the user has no limit, whatever applies to the others. */
  readonly limit?: Quota;
};

export type UserStatus = {
  /** Name of the token; empty: claims that an earlier release created, to which no user's limit applies. */
  readonly user?: string;
  /** The limit that applies to the user. Absent: none. */
  readonly limit?: Quota;
  readonly used?: Amount;
  readonly waitingClaims?: number;
  readonly boundClaims?: number;
};

export type PutTenantResponse = {
  readonly tenant?: Tenant;
};

export type ListTenantsRequest = Readonly<Record<string, never>>;

export type ListTenantsResponse = {
  readonly tenants?: readonly Tenant[];
};

export type DeleteTenantRequest = {
  readonly name?: string;
};

export type DeleteTenantResponse = Readonly<Record<string, never>>;

export type GetUsageRequest = {
  /** Start of the period; 0: the first known time. */
  readonly from?: Int64;
  /** End of the period, not in the future; 0: now. */
  readonly to?: Int64;
  /** The groups for which usage is summed up. */
  readonly by?: UsageBy;
};

/** The groups of claims for which usage is summed up. `USAGE_BY_UNSPECIFIED`: As `USAGE_BY_QUEUE`. `USAGE_BY_QUEUE`: Each tenant in each queue. The default. `USAGE_BY_USER`: Each user of each tenant. `USAGE_BY_CLAIM`: Each claim. At most 10,000 in a period (MILLPOND_E_INVALID). `USAGE_BY_MODEL`: Each model of GPU, by tenant. Requests of waiting claims have no model. */
export type UsageBy =
  | "USAGE_BY_UNSPECIFIED"
  | "USAGE_BY_QUEUE"
  | "USAGE_BY_USER"
  | "USAGE_BY_CLAIM"
  | "USAGE_BY_MODEL";

export type GetUsageResponse = {
  /** In order of their tenants, queues, users, claims and models. */
  readonly usage?: readonly Usage[];
  readonly from?: Int64;
  readonly to?: Int64;
};

/** Usage of a group of claims, as selected by `GetUsageRequest.by`. GPU-seconds count fractions of devices as `Amount.gpu_milli` does. */
export type Usage = {
  readonly tenant?: string;
  /** Set when grouped by queue or by claim; empty otherwise. */
  readonly queue?: string;
  /** While claims waited, or were bound. */
  readonly askedGpuSeconds?: number;
  /** While claims were bound. */
  readonly grantedGpuSeconds?: number;
  /** While sessions of bound claims made calls. */
  readonly usedGpuSeconds?: number;
  /** Granted but not used. */
  readonly wastedGpuSeconds?: number;
  /** Number of claims that waited or were bound within the period. */
  readonly claims?: number;
  /** Seconds that its claims waited within the period, in total. */
  readonly waitedSeconds?: number;
  /** Set when grouped by user or by claim: the name of the token. Also empty for claims that an earlier release created. */
  readonly user?: string;
  /** Set when grouped by claim: its name. Successive claims of the same name count as one. */
  readonly claim?: string;
  /** Set when grouped by model: the name of the GPU. Also empty for claims while they waited, and for usage that an earlier release recorded. */
  readonly model?: string;
};

/** The methods of each service. */
export interface Services {
  /** AccessService is called by administrators, and by administrators of a tenant for that tenant. Role: tenant-admin; CreateLoginCode, ListLogins, RevokeLogin: user; GetCaller: any. */
  readonly AccessService: {
    /** CreateToken creates a token. Its secret is only in the answer: the controller keeps a hash of it. */
    readonly CreateToken: { readonly request: CreateTokenRequest; readonly answer: CreateTokenResponse };
    /** ListTokens returns the tokens that are not revoked, expired ones included, in order of their names. */
    readonly ListTokens: { readonly request: ListTokensRequest; readonly answer: ListTokensResponse };
    /** RevokeToken deletes a token, which is rejected from then on. */
    readonly RevokeToken: { readonly request: RevokeTokenRequest; readonly answer: RevokeTokenResponse };
    /** ListAudit returns changes made through this API, with the token that made them. The controller keeps the newest 100000 records. */
    readonly ListAudit: { readonly request: ListAuditRequest; readonly answer: ListAuditResponse };
    /** ListKeys returns the keys that tickets are signed with, newest first, retired ones included. Role: admin. */
    readonly ListKeys: { readonly request: ListKeysRequest; readonly answer: ListKeysResponse };
    /** RotateKey creates a new signing key. Agents receive it within seconds; the earlier ones are accepted until tickets that they signed have expired. Role: admin. */
    readonly RotateKey: { readonly request: RotateKeyRequest; readonly answer: RotateKeyResponse };
    /** CreateLoginCode creates the code in a link to the web console: the first browser that opens it is logged in as the caller. The code is valid once, for ten minutes, at the controller that created it. */
    readonly CreateLoginCode: { readonly request: CreateLoginCodeRequest; readonly answer: CreateLoginCodeResponse };
    /** ListLogins returns the logins of browsers and command lines that have not ended, oldest first: all of them to an administrator, those of the tenant to its administrators, and to others their own. Role: user. */
    readonly ListLogins: { readonly request: ListLoginsRequest; readonly answer: ListLoginsResponse };
    /** RevokeLogin ends a login that the caller can list. The token with which it was made stays valid, unless the login was by an OpenID provider. Role: user. */
    readonly RevokeLogin: { readonly request: RevokeLoginRequest; readonly answer: RevokeLoginResponse };
    /** CreateLogin records a login that a browser or a command line has made at a follower, which makes this call. Role: user. */
    readonly CreateLogin: { readonly request: CreateLoginRequest; readonly answer: CreateLoginResponse };
    /** GetCaller returns the identity and the rights of the call's token. Role: any. */
    readonly GetCaller: { readonly request: GetCallerRequest; readonly answer: GetCallerResponse };
  };
  /** ClaimService is called by the client library, the CLI and users. Role: user. */
  readonly ClaimService: {
    /** CreateClaim requests vGPUs. The claim is bound immediately if the pool has room; otherwise it waits in its queue. Refused: a claim that no node of the pool could hold even when empty (MILLPOND_E_IMPOSSIBLE, if a node is ready), and with `no_wait` a claim that does not fit now (MILLPOND_E_NO_CAPACITY). */
    readonly CreateClaim: { readonly request: CreateClaimRequest; readonly answer: CreateClaimResponse };
    /** WaitClaim answers when the claim's version differs from `known_version`, or at the timeout. It renews the lease when it is called, while it waits, and when it answers. */
    readonly WaitClaim: { readonly request: WaitClaimRequest; readonly answer: WaitClaimResponse };
    /** CreateTicket creates the credential that opens one session on a bound claim. It renews the lease. */
    readonly CreateTicket: { readonly request: CreateTicketRequest; readonly answer: CreateTicketResponse };
    /** ViewClaim returns one claim, and a credential with which the agent of its node can be asked about the claim's devices and programs. It renews no lease and wakes no claim. */
    readonly ViewClaim: { readonly request: ViewClaimRequest; readonly answer: ViewClaimResponse };
    /** ReleaseClaim ends a claim and its sessions. It succeeds for a claim that has already ended. */
    readonly ReleaseClaim: { readonly request: ReleaseClaimRequest; readonly answer: ReleaseClaimResponse };
    /** ResizeClaim changes the request and the allocation of a claim. While a session of it is open, memory and compute change immediately, also for the open sessions. While no session is open, the number of vGPUs can change too: the claim is then placed again, and keeps its allocation if there is no room (MILLPOND_E_NO_CAPACITY). Refused, with nothing changed: less memory than a program has in use, or another number of vGPUs while a session is open (MILLPOND_E_IN_USE), more than the device, the queue or the tenant has left (MILLPOND_E_NO_CAPACITY), and when the agent of its node does not answer (MILLPOND_E_NODE_NOT_READY). */
    readonly ResizeClaim: { readonly request: ResizeClaimRequest; readonly answer: ResizeClaimResponse };
    /** PrioritizeClaim sets the priority of a claim, and with it that of all members of its gang. The new priority applies from now on: to the order in the queue, to preemption, and to sessions that open later. Open sessions keep the priority with which they began, and notice that has been given stands. Refused for a claim that has ended (MILLPOND_E_CLAIM_ENDED). */
    readonly PrioritizeClaim: { readonly request: PrioritizeClaimRequest; readonly answer: PrioritizeClaimResponse };
    /** CreateClaimToken creates the token of the claim's programs. Its bearer may wait for this claim, read it and open sessions on it, and nothing else. The token is the same for each call, is not stored, and is valid until the claim has ended. */
    readonly CreateClaimToken: { readonly request: CreateClaimTokenRequest; readonly answer: CreateClaimTokenResponse };
    /** CreateProgramToken creates a token for programs that create their own claims: its bearer may create session-bound claims of one tenant, use and release those that were created with it, and nothing else. The token differs for each call, is not stored, and is valid for as long as the token, or the login, that created it. */
    readonly CreateProgramToken: { readonly request: CreateProgramTokenRequest; readonly answer: CreateProgramTokenResponse };
    /** GetClaim returns one claim and renews no lease. */
    readonly GetClaim: { readonly request: GetClaimRequest; readonly answer: GetClaimResponse };
    /** ExplainClaim explains the state of a claim, with the current numbers. */
    readonly ExplainClaim: { readonly request: ExplainClaimRequest; readonly answer: ExplainClaimResponse };
    /** ListClaims returns the claims in order of creation. */
    readonly ListClaims: { readonly request: ListClaimsRequest; readonly answer: ListClaimsResponse };
  };
  /** PoolService is called by the CLI and by monitoring tools. Role: user; GetVersion: any. */
  readonly PoolService: {
    readonly ListNodes: { readonly request: ListNodesRequest; readonly answer: ListNodesResponse };
    readonly GetNode: { readonly request: GetNodeRequest; readonly answer: GetNodeResponse };
    /** CordonNode keeps new claims off a node, or admits them again. Running programs continue. Uncordoning a device also declares it healthy, whatever faults its driver has reported: see `health` in the answer. */
    readonly CordonNode: { readonly request: CordonNodeRequest; readonly answer: CordonNodeResponse };
    /** DrainNode cordons a node and preempts the claims there, after notice: they wait for room elsewhere. */
    readonly DrainNode: { readonly request: DrainNodeRequest; readonly answer: DrainNodeResponse };
    /** RemoveNode removes a node from the pool permanently. The node must hold nothing, and its agent must not be in contact (MILLPOND_E_IN_USE). From then on its agent is refused (MILLPOND_E_NODE_REMOVED), unless it has a token that was created later. The call succeeds for a node that has already been removed. */
    readonly RemoveNode: { readonly request: RemoveNodeRequest; readonly answer: RemoveNodeResponse };
    /** LabelNode changes the labels that operators set on a node. */
    readonly LabelNode: { readonly request: LabelNodeRequest; readonly answer: LabelNodeResponse };
    readonly ListDevices: { readonly request: ListDevicesRequest; readonly answer: ListDevicesResponse };
    readonly ListSessions: { readonly request: ListSessionsRequest; readonly answer: ListSessionsResponse };
    /** ListEvents returns events, oldest first. The controller keeps the last 10000. */
    readonly ListEvents: { readonly request: ListEventsRequest; readonly answer: ListEventsResponse };
    /** BackUp writes the state of the controller, and the tokens and the certificate authority of its state directory, into a file on the controller's host. If the state is in a database, use the database's own tools (MILLPOND_E_INVALID). Role: admin. */
    readonly BackUp: { readonly request: BackUpRequest; readonly answer: BackUpResponse };
    readonly GetVersion: { readonly request: GetVersionRequest; readonly answer: GetVersionResponse };
  };
  /** QueueService is called by administrators of the pool's capacity. Role: user. */
  readonly QueueService: {
    /** PutQueue creates a queue, or replaces its settings. */
    readonly PutQueue: { readonly request: PutQueueRequest; readonly answer: PutQueueResponse };
    /** ListQueues returns all queues with the usage of their claims, in order of their names. */
    readonly ListQueues: { readonly request: ListQueuesRequest; readonly answer: ListQueuesResponse };
    /** DeleteQueue removes a queue that has neither claims nor children (MILLPOND_E_IN_USE). The queue `default` is reset to its initial settings instead. */
    readonly DeleteQueue: { readonly request: DeleteQueueRequest; readonly answer: DeleteQueueResponse };
    /** PutTenant creates a tenant, or replaces its settings. */
    readonly PutTenant: { readonly request: PutTenantRequest; readonly answer: PutTenantResponse };
    readonly ListTenants: { readonly request: ListTenantsRequest; readonly answer: ListTenantsResponse };
    /** DeleteTenant removes a tenant that has no claims (MILLPOND_E_IN_USE). */
    readonly DeleteTenant: { readonly request: DeleteTenantRequest; readonly answer: DeleteTenantResponse };
    /** GetUsage sums up requested, granted and used capacity within a period. */
    readonly GetUsage: { readonly request: GetUsageRequest; readonly answer: GetUsageResponse };
  };
}
