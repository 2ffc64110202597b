// SPDX-License-Identifier: Apache-2.0
// Generated from api/src/errors.ts by `npm run generate -w api`. Do not edit.
#pragma once

namespace millpond {

/// Every error that Millpond shows to users: its name, its meaning, and its remedy in one sentence.
struct ErrorCode {
  const char* name;
  const char* meaning;
  const char* remedy;
};

namespace codes {
inline constexpr ErrorCode kInvalid{
    "MILLPOND_E_INVALID",
    "An argument, an option or a field of a request is malformed or out of range.",
    "Correct the value that the message names and try again."};
inline constexpr ErrorCode kNotConfigured{
    "MILLPOND_E_NOT_CONFIGURED",
    "The program knows no controller.",
    "Start it with `millpond run -- ...`, or set MILLPOND_CONTROLLER."};
inline constexpr ErrorCode kUnauthenticated{
    "MILLPOND_E_UNAUTHENTICATED",
    "The request carries no token, or one that the controller does not know.",
    "Set MILLPOND_TOKEN to a token created by an administrator, or to the one in the controller's state directory."};
inline constexpr ErrorCode kForbidden{
    "MILLPOND_E_FORBIDDEN",
    "The token is valid, but its role may not call this method.",
    "Use the token of the role that the message names."};
inline constexpr ErrorCode kNotFound{
    "MILLPOND_E_NOT_FOUND",
    "No object has that name.",
    "List what exists with `millpond get claims` or `millpond get nodes`."};
inline constexpr ErrorCode kAlreadyExists{
    "MILLPOND_E_ALREADY_EXISTS",
    "The name is in use, or belonged to a recently ended claim.",
    "Choose another name, or omit it to get a generated one."};
inline constexpr ErrorCode kInUse{
    "MILLPOND_E_IN_USE",
    "Claims or other objects still need it.",
    "Release or move what the message names first."};
inline constexpr ErrorCode kImpossible{
    "MILLPOND_E_IMPOSSIBLE",
    "No node of the pool could hold the claim, even if it were empty.",
    "Request fewer or smaller vGPUs, or omit the constraint that the message names."};
inline constexpr ErrorCode kNoCapacity{
    "MILLPOND_E_NO_CAPACITY",
    "The pool has no capacity for the claim now, and the caller did not wait.",
    "Request less, or wait for capacity."};
inline constexpr ErrorCode kTooManyClaims{
    "MILLPOND_E_TOO_MANY_CLAIMS",
    "The limit of pending and dormant claims of the tenant is reached.",
    "Release claims that are no longer needed, or try again later."};
inline constexpr ErrorCode kTooManyCalls{
    "MILLPOND_E_TOO_MANY_CALLS",
    "The limit of calls of a token or a tenant is reached.",
    "Call less often, or from fewer programs at a time."};
inline constexpr ErrorCode kAuditLog{
    "MILLPOND_E_AUDIT_LOG",
    "The audit log of the controller cannot be written, and the controller makes no change without it.",
    "Make the file of `--audit-log` writable, or start the controller without `--audit-log-required`."};
inline constexpr ErrorCode kTooManyTokens{
    "MILLPOND_E_TOO_MANY_TOKENS",
    "The limit of tokens is reached, of the tenant or of the pool.",
    "Revoke tokens that are no longer used."};
inline constexpr ErrorCode kTooManySessions{
    "MILLPOND_E_TOO_MANY_SESSIONS",
    "The claim cannot have another session: it has 16 for each of its vGPUs, or no memory left for another one.",
    "End some of its programs, give it more memory, or create another claim for the others."};
inline constexpr ErrorCode kWaitTimeout{
    "MILLPOND_E_WAIT_TIMEOUT",
    "The pool had no capacity for the claim within the caller's timeout.",
    "Wait longer, or request less."};
inline constexpr ErrorCode kClaimNotBound{
    "MILLPOND_E_CLAIM_NOT_BOUND",
    "The claim is pending or dormant and holds no vGPUs to attach to.",
    "Wait until the claim is bound; WaitClaim with `wake` wakes a dormant one."};
inline constexpr ErrorCode kClaimEnded{
    "MILLPOND_E_CLAIM_ENDED",
    "The claim has ended: it was released, or its lease expired.",
    "Create a new claim."};
inline constexpr ErrorCode kNodeNotReady{
    "MILLPOND_E_NODE_NOT_READY",
    "The controller has lost contact with the agent of the node that holds the allocation.",
    "Check the agent on that node with `millpond doctor`, and try again."};
inline constexpr ErrorCode kDeviceUnhealthy{
    "MILLPOND_E_DEVICE_UNHEALTHY",
    "A device of the allocation is unhealthy or missing.",
    "Release the claim and create a new one."};
inline constexpr ErrorCode kNodeNameTaken{
    "MILLPOND_E_NODE_NAME_TAKEN",
    "Another connected agent uses this node name.",
    "Stop that agent, or give this one another --name."};
inline constexpr ErrorCode kNodeRemoved{
    "MILLPOND_E_NODE_REMOVED",
    "The node was removed from the pool, and the agent's token is older than that.",
    "Stop this agent. To join again, start it with a new token: `millpond token create NAME --role agent --node NODE`."};
inline constexpr ErrorCode kTicketInvalid{
    "MILLPOND_E_TICKET_INVALID",
    "The ticket is malformed, or was not signed by this pool's controller.",
    "Get a new ticket from the agent's controller."};
inline constexpr ErrorCode kTicketExpired{
    "MILLPOND_E_TICKET_EXPIRED",
    "The ticket has expired.",
    "Get a new ticket; if this repeats, compare the clocks of the controller and the node."};
inline constexpr ErrorCode kTicketNotYetValid{
    "MILLPOND_E_TICKET_NOT_YET_VALID",
    "The ticket's issue time is in the future according to the node's clock.",
    "Synchronize the clocks of the controller and the node."};
inline constexpr ErrorCode kTicketWrongNode{
    "MILLPOND_E_TICKET_WRONG_NODE",
    "The ticket is for another node.",
    "Present it to the agent URL that came with it."};
inline constexpr ErrorCode kTicketStale{
    "MILLPOND_E_TICKET_STALE",
    "The ticket belongs to an allocation that has been replaced or taken away.",
    "Get a new ticket."};
inline constexpr ErrorCode kTicketUsed{
    "MILLPOND_E_TICKET_USED",
    "The ticket has already opened a session; each ticket opens one.",
    "Get a new ticket."};
inline constexpr ErrorCode kNoWorker{
    "MILLPOND_E_NO_WORKER",
    "The agent could not start a worker for the session.",
    "Check the agent's log and worker.log in its run directory."};
inline constexpr ErrorCode kTransportUnavailable{
    "MILLPOND_E_TRANSPORT_UNAVAILABLE",
    "The requested transport cannot be used between this client and this node.",
    "Set MILLPOND_TRANSPORT=auto."};
inline constexpr ErrorCode kDriver{
    "MILLPOND_E_DRIVER",
    "The driver library could not be loaded or finds no device.",
    "Check the path of the driver library and that the driver works, for example with `nvidia-smi`."};
inline constexpr ErrorCode kVersion{
    "MILLPOND_E_VERSION",
    "Two components have versions of Millpond that do not work together.",
    "Install the same version of Millpond on both sides."};
inline constexpr ErrorCode kUnreachable{
    "MILLPOND_E_UNREACHABLE",
    "The controller or an agent does not answer at its address.",
    "Check the address (MILLPOND_CONTROLLER) and that it is running."};
inline constexpr ErrorCode kShuttingDown{
    "MILLPOND_E_SHUTTING_DOWN",
    "The component is shutting down.",
    "Try again after it has restarted."};
inline constexpr ErrorCode kNotLeader{
    "MILLPOND_E_NOT_LEADER",
    "This controller is a follower; only the leader can serve this request.",
    "Ask the controller that the message names, or name all of them: MILLPOND_CONTROLLER=url,url,…."};
inline constexpr ErrorCode kStoreUnreachable{
    "MILLPOND_E_STORE_UNREACHABLE",
    "The database that holds the state does not answer, or is read-only.",
    "Check that it runs and that the controllers reach it; they recover by themselves."};
inline constexpr ErrorCode kTls{
    "MILLPOND_E_TLS",
    "A certificate is unusable, or the caller does not trust it; or without TLS, another user of the machine serves the port.",
    "Set MILLPOND_CA to the file of the authority's certificate: tls/ca.crt in the controller's state directory."};
inline constexpr ErrorCode kAddressInUse{
    "MILLPOND_E_ADDRESS_IN_USE",
    "Another process listens on the address.",
    "Stop it, or choose another port; port 0 takes a free one."};
inline constexpr ErrorCode kStateLocked{
    "MILLPOND_E_STATE_LOCKED",
    "Another controller uses the state directory.",
    "Stop it, or give this one another --state directory."};
inline constexpr ErrorCode kStateNewer{
    "MILLPOND_E_STATE_NEWER",
    "The state directory was written by a newer version of Millpond.",
    "Start a version that is at least as new, or give this one another --state directory."};
inline constexpr ErrorCode kStateBroken{
    "MILLPOND_E_STATE_BROKEN",
    "The state directory cannot be read or written, or its content is damaged.",
    "Check the disk and the directory's owner and mode; restore it from a copy if it is damaged."};
inline constexpr ErrorCode kPoolKey{
    "MILLPOND_E_POOL_KEY",
    "The secrets of a state or a backup are sealed with another pool key.",
    "Copy `pool.key` from the state directory of a controller of that pool, with mode 0600."};
inline constexpr ErrorCode kStateFull{
    "MILLPOND_E_STATE_FULL",
    "The disk that holds the state is full. Bound claims and their programs continue.",
    "Free space on the disk of the controller's state directory or database, or of the agent's run directory; the service recovers by itself."};
inline constexpr ErrorCode kNotInstalled{
    "MILLPOND_E_NOT_INSTALLED",
    "A native component is missing from this installation.",
    "Build it with `npm run build`, or set MILLPOND_NATIVE_DIR to the directory that holds it."};
inline constexpr ErrorCode kProgram{
    "MILLPOND_E_PROGRAM",
    "The program to run was not found, or is not executable.",
    "Check its path, its mode and PATH."};
inline constexpr ErrorCode kInternal{
    "MILLPOND_E_INTERNAL",
    "Internal error: this is a bug in Millpond.",
    "Report it with the log of the component that returned it."};
}  // namespace codes

}  // namespace millpond
