// SPDX-License-Identifier: Apache-2.0
// Issues a session's commands to the driver, in their order, and never blocks on the device while doing so.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "protocol/gen/commands.h"
#include "protocol/server/server_link.h"
#include "worker/claim/claim_accounts.h"
#include "worker/commands/arrays/arrays.h"
#include "worker/commands/arrays/tensor_maps.h"
#include "worker/commands/arrays/textures.h"
#include "worker/commands/contexts/context_commands.h"
#include "worker/commands/contexts/context_ends.h"
#include "worker/commands/contexts/green_contexts.h"
#include "worker/commands/copies/copies.h"
#include "worker/commands/copies/downloads.h"
#include "worker/commands/copies/landings.h"
#include "worker/commands/copies/lent_replies.h"
#include "worker/commands/copies/stream_reads.h"
#include "worker/commands/copies/uploads.h"
#include "worker/commands/graphs/capture_commands.h"
#include "worker/commands/graphs/graph_calls.h"
#include "worker/commands/graphs/graph_clones.h"
#include "worker/commands/graphs/graph_commands.h"
#include "worker/commands/graphs/graph_contents.h"
#include "worker/commands/graphs/graph_execs.h"
#include "worker/commands/graphs/graph_memory.h"
#include "worker/commands/graphs/graph_node_commands.h"
#include "worker/commands/graphs/graph_node_count.h"
#include "worker/commands/graphs/graph_node_reader.h"
#include "worker/commands/graphs/graph_stages.h"
#include "worker/commands/graphs/graph_table.h"
#include "worker/commands/graphs/user_objects.h"
#include "worker/commands/memory/allocations.h"
#include "worker/commands/memory/charges.h"
#include "worker/commands/memory/device_memory.h"
#include "worker/commands/memory/frees.h"
#include "worker/commands/memory/host_buffers.h"
#include "worker/commands/memory/host_copies.h"
#include "worker/commands/memory/host_memory.h"
#include "worker/commands/memory/memory_operations.h"
#include "worker/commands/memory/mirrored_bytes.h"
#include "worker/commands/memory/mirrored_memory.h"
#include "worker/commands/memory/pinned_memory.h"
#include "worker/commands/memory/pools.h"
#include "worker/commands/memory/virtual_memory.h"
#include "worker/commands/modules/functions.h"
#include "worker/commands/modules/images.h"
#include "worker/commands/modules/launches.h"
#include "worker/commands/modules/links.h"
#include "worker/commands/modules/loaded_modules.h"
#include "worker/commands/modules/modules.h"
#include "worker/commands/parking/session_parking.h"
#include "worker/commands/profile/profiles.h"
#include "worker/commands/sharing/shared_objects.h"
#include "worker/commands/streams/host_functions.h"
#include "worker/commands/streams/streams.h"
#include "worker/commands/streams/topology.h"
#include "worker/core/budgets.h"
#include "worker/core/callbacks.h"
#include "worker/core/claim_counts.h"
#include "worker/core/device_output.h"
#include "worker/core/function_order.h"
#include "worker/core/host_charge.h"
#include "worker/core/session_objects.h"
#include "worker/core/session_part.h"
#include "worker/core/waits.h"
#include "worker/device/session_devices.h"
#include "worker/gate/gates.h"
#include "worker/images/image_cache.h"
#include "worker/ipc/peer_sharing.h"
#include "worker/memory/address_gate.h"
#include "worker/memory/client_pages.h"
#include "worker/memory/host_runs.h"
#include "worker/memory/virtual_memory.h"
#include "worker/parking/event_times.h"
#include "worker/parking/journal.h"
#include "worker/session/gen/command_parts.h"
#include "worker/session/session_gates.h"

namespace millpond::worker {

/// Creates the session before the parts that use it.
class SessionOwner {
 protected:
  template <typename... Arguments>
  explicit SessionOwner(Arguments&&... arguments) : owned_(std::forward<Arguments>(arguments)...) {}
  ~SessionOwner() = default;

  SessionCore owned_;
};

class Executor : private SessionOwner, private SessionPart {
 public:
  using Counters = SessionCore::Counters;
  using End = SessionCore::End;

  /// `imageCache`: store of images. `output`: receives the output of kernels. `gates`: of the node's devices; none:
  /// compute shares are not enforced. `sharing`: memory and events shared by the claim's sessions. Null: none.
  Executor(const Driver& driver, SessionDevices& devices, ClaimAccounts& accounts, ServerLink link,
           ImageCache* imageCache = nullptr, DeviceOutput* output = nullptr, gate::Gates gates = {},
           Sharing* sharing = nullptr, Parking parking = {});

  /// Runs the session to its end. Returns why it ended and whether that was orderly.
  End run();
  /// Ends `run` soon; the client gets `reason`. May be called on any thread.
  void stop(const std::string& reason, bool ok);
  /// Ends `run` soon, because the client is gone; may be called on any thread. If programs are checked, the commands
  /// that it had sent are executed first, so that memory that it freed last is not reported as leaked.
  void clientGone();
  const Counters& counters() const { return owned_.counters(); }
  /// The reason why the idle session is not parked; empty if there is none. May be called on any thread.
  std::string whyNotParked() { return parking_.whyNotParked(); }
  /// Changes the compute shares of the devices, in the session's order. May be called on any thread.
  void setShares(std::vector<Share> shares) { gates_.setShares(std::move(shares)); }
  /// Path of CUPTI for profiles requested by the client, as for Profiler::load. Call it before `run`.
  void setProfilerLibraries(std::string driver, std::string cupti) {
    profiles_.setLibraries(std::move(driver), std::move(cupti));
  }
  int socket() const { return link_.socket(); }
  /// Another connection of the client, as for ServerLink::offer; may be called on any thread.
  void offer(Channel channel, uint64_t received) { link_.offer(std::move(channel), received); }
  /// A lane of the client, as for ServerLink::offerLane; may be called on any thread.
  void offerLane(Channel channel, uint32_t lane, uint32_t count) { link_.offerLane(std::move(channel), lane, count); }

 private:
  /// The driver's result, or the reason why it was not called.
  CUresult execute(const ServerLink::Frame& frame);
  /// The next command; `head` is the part that may be inspected before the rest is copied.
  CUresult perform(cmd::Op op, std::span<const std::byte> head, std::span<const std::byte> body);
  /// Executes the command, unless it must wait for a copy, or at the gate of its device: then it returns false.
  bool take(const ServerLink::Frame& frame);
  bool progressHeld();
  /// Executes reports of the client's callback threads, and the bytes of mirrored memory that the callbacks used. They
  /// must not wait behind commands of other threads, because the stream of a callback continues only afterwards.
  /// Returns false for other commands.
  bool overtakes(const ServerLink::Frame& frame);
  /// Executes the held commands that bring bytes of mirrored memory of which later commands of that stream bring newer
  /// ones. Returns false if one of them has to wait.
  bool performPushes(std::optional<uint64_t> stream);
  /// Executes a command that overtakes held ones: it is charged to the gate, but does not wait there.
  void executeCharged(const ServerLink::Frame& frame);
  /// That stream, by the client's handle, may wait for a word that the program writes later.
  void expectWord(uint64_t wire);
  bool progress();
  bool registerTransfers();
  void releaseRing();
  /// A context has ended, or is reset.
  void forgetContext(uint16_t number);

  // Parking (executor_obstacles.cpp)

  /// The reason why the present objects cannot be restored; empty if they can.
  std::string whyKept();
  std::string whyHandlesKept() const;
  std::string whyHostRunsKept() const;
  std::string whyContextsKept() const;

  Sharing* sharing_;
  Waits waits_{session_};
  FunctionOrder order_{session_};

  ClaimCounts counts_;
  HostCharge keptReplies_{counts_};
  Budgets budgets_;
  Charges charges_{session_, budgets_, counts_};
  DeviceMemory memory_;
  Frees frees_{session_, budgets_, memory_, order_};
  PinnedMemory pinned_{session_};
  ClientPages clientPages_;
  HostBuffers buffers_{session_, counts_, pinned_, order_, clientPages_};
  SessionObjects objects_{session_, counts_, waits_, [this] { return charges_.stream(); }};
  HostRuns hostRuns_;  ///< pinned memory of the program
  VirtualMemory virtualMemory_;
  GraphMemory graphMemory_{session_};
  AddressGate addresses_{
      driver_, memory_.arenas(), virtualMemory_, graphMemory_.all(), hostRuns_, [this] { return !captures_.empty(); }};
  HostCopies hostCopies_{session_, buffers_, addresses_};
  Journal journal_;
  EventTimes eventTimes_{driver_};
  SessionParking parking_;
  MemoryOperations operations_{session_, addresses_, order_};
  Functions functions_{session_, charges_};
  Images images_;
  Links links_{session_, counts_, images_, objects_};
  LoadedModules loaded_{session_, parking_.afterNs() != 0};
  Modules modules_{session_, images_, functions_, charges_, order_, objects_, loaded_};
  Launches launches_{session_, functions_, operations_};
  TensorMaps tensorMaps_{session_, addresses_};
  Topology topology_{session_};
  Textures textures_{session_, addresses_, frees_};
  Arrays arrays_{session_, budgets_, memory_, frees_, virtualMemory_, objects_};
  VirtualMemoryCommands virtualMemoryCommands_;
  Streams streams_{session_, waits_, frees_, operations_};
  HostMemory hostMemory_{session_,     counts_,   pinned_,
                         clientPages_, hostRuns_, frees_,
                         order_,       waits_,    [this] { return !graphs_.empty() || !graphExecs_.empty(); }};
  Pools pools_{session_, memory_, frees_, sharing_};
  SharedObjects sharedObjects_{session_, sharing_, budgets_, memory_, virtualMemory_, frees_, objects_};
  ContextCommands contextCommands_{session_, counts_, charges_};
  GreenContexts greenContexts_{session_, counts_, charges_, objects_};
  Profiles profiles_{session_};
  /// The driver's threads may outlive this.
  const std::shared_ptr<Callbacks> callbacks_ = std::make_shared<Callbacks>([this] { link_.wake(); });
  GraphTable graphs_;
  GraphNodeCount nodeCount_{counts_, graphs_};
  UserObjects userObjects_{session_, callbacks_, graphs_};
  GraphCalls graphCalls_{callbacks_};
  MirroredBytes mirroredBytes_;
  GraphStages graphStages_{session_, graphs_, buffers_};
  GraphContents graphContents_{driver_, graphs_};
  GraphClones graphClones_{session_, graphs_, nodeCount_};
  GraphCommands graphCommands_{session_, graphs_, nodeCount_, hostMemory_};
  LentReplies lentReplies_{session_};
  StreamReads reads_{marks_};
  Landings landings_{session_, addresses_, buffers_, hostCopies_, reads_, lentReplies_, mirroredBytes_, hostRuns_};
  MirroredMemory mirroredMemory_{session_, hostRuns_, mirroredBytes_, landings_};
  Downloads downloads_{session_, addresses_, buffers_, hostCopies_, landings_, lentReplies_};
  Uploads uploads_{session_, addresses_, buffers_, hostCopies_, order_, reads_};
  Copies copies_{session_, addresses_, hostCopies_, waits_};
  GraphNodeReader graphNodeReader_{session_, budgets_,     addresses_,  functions_,   operations_,
                                   graphs_,  graphMemory_, graphCalls_, graphStages_, journal_};
  GraphExecs graphExecs_{session_, callbacks_, budgets_,   charges_,     hostMemory_,    functions_,
                         order_,   graphs_,    nodeCount_, graphMemory_, graphContents_, landings_};
  GraphNodeCommands graphNodes_{session_,   functions_,   operations_,    hostRuns_,        graphs_,
                                nodeCount_, graphClones_, graphContents_, graphNodeReader_, graphExecs_};
  CaptureCommands captureCommands_{session_,     addresses_,  graphs_,      nodeCount_,
                                   graphMemory_, graphCalls_, graphStages_, graphNodeReader_};
  HostFunctions hostFunctions_{session_, callbacks_, functions_, order_, captureCommands_, landings_};
  Allocations allocations_{session_, budgets_,       memory_,      frees_,           order_,
                           pools_,   sharedObjects_, graphMemory_, captureCommands_, sharing_};
  ContextEnds contextEnds_{session_, counts_, charges_,   waits_,
                           order_,   pinned_, downloads_, [this](uint16_t context) { forgetContext(context); }};
  const CommandParts parts_{session_,         addresses_,
                            objects_,         functions_,
                            operations_,      images_,
                            links_,           modules_,
                            launches_,        tensorMaps_,
                            topology_,        textures_,
                            arrays_,          virtualMemoryCommands_,
                            streams_,         hostMemory_,
                            mirroredMemory_,  pools_,
                            sharedObjects_,   contextCommands_,
                            greenContexts_,   profiles_,
                            userObjects_,     graphStages_,
                            graphClones_,     graphCommands_,
                            landings_,        downloads_,
                            uploads_,         copies_,
                            graphExecs_,      graphNodes_,
                            captureCommands_, hostFunctions_,
                            allocations_,     contextEnds_,
                            parking_};
  uint64_t afterCallbackBytes_ = 0;     ///< of the commands that wait for functions of the client
  std::deque<ServerLink::Frame> held_;  ///< the first waits for a copy, or at a gate; all of them stay in the ring
  SessionGates gates_;
  std::pair<uint64_t, std::string> modulesKept_;  ///< why the loaded modules cannot be restored, at that position

  std::atomic<bool> stopRequested_{false};
  std::atomic<bool> readsOut_{false};  ///< received commands are executed before the end
  std::mutex stopMutex_;
  End stopEnd_{"", true};
};

}  // namespace millpond::worker
