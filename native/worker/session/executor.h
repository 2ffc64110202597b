// SPDX-License-Identifier: Apache-2.0
// Issues a session's commands to the driver, in their order, and never blocks on the device while doing so.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/range_map.h"
#include "base/result.h"
#include "cuda/crossing.h"
#include "cuda/launch_attribute.h"
#include "protocol/gen/commands.h"
#include "protocol/server/server_link.h"
#include "worker/claim/claim_things.h"
#include "worker/claim/driver_memory.h"
#include "worker/commands/graphs/graph_table.h"
#include "worker/device/driver.h"
#include "worker/device/sanitizer.h"
#include "worker/device/session_devices.h"
#include "worker/gate/compute_gate.h"
#include "worker/images/image_cache.h"
#include "worker/images/image_variables.h"
#include "worker/images/jit_options.h"
#include "worker/images/linked_fatbins.h"
#include "worker/ipc/opened_pools.h"
#include "worker/ipc/peer_sharing.h"
#include "worker/memory/address_gate.h"
#include "worker/memory/array_tiles.h"
#include "worker/memory/client_pages.h"
#include "worker/memory/host_runs.h"
#include "worker/memory/memory_arena.h"
#include "worker/memory/memory_pools.h"
#include "worker/memory/virtual_memory.h"
#include "worker/parking/event_times.h"
#include "worker/parking/journal.h"
#include "worker/session/callbacks.h"
#include "worker/session/device_output.h"
#include "worker/session/handle_map.h"

namespace millpond::worker {

/// What a handler returns when the answer comes later; no code of the driver.
inline constexpr CUresult kDeferred = static_cast<CUresult>(1023);

/// Replies over TCP with at least this much data are sent from where it is, which stays until the client has it; smaller
/// ones are copied, so that what the client has not acknowledged yet never holds many chunks.
inline constexpr size_t kLentBytes = size_t{128} << 10;

/// Whether a session is given up when it is idle, and goes on for one that was.
struct Parking {
  int64_t afterNs = 0;     ///< idle for so long; 0: never
  bool isResumed = false;  ///< its client had another one before
};

/// What the sessions of an allocation have in common on this node.
struct ClaimPlace {
  std::string directory;      ///< of their budgets; empty: there are no other sessions
  uint64_t sizeRevision = 0;  ///< of the session's sizes
  ThingLimits limits = ThingLimits::ofHost();

  /// By which gates know the claim; a session without others has one of its own.
  uint64_t key() const;
};

class Executor {
 public:
  struct Counters {
    std::atomic<uint64_t> commands{0};
    std::atomic<uint64_t> launches{0};
    std::atomic<uint64_t> waits{0};
    std::array<std::atomic<uint64_t>, 64> memoryUsed{};  ///< per device of the session
    /// Nanoseconds that each device has worked for the session while its gate was on.
    std::array<std::atomic<uint64_t>, 64> computeUsedNs{};
    std::array<std::atomic<bool>, 64> isMeasured{};  ///< its gate is on
  };

  /// `imageCache`: what the host keeps of images, null for nothing. `output`: what kernels print, null for nowhere.
  /// `gateDirectory`: where the gates of the node's devices are; empty: shares of compute do not count. `sharing`: what
  /// sessions of the claim share, null where there are no others. `claim`: where they count what they have together.
  Executor(const Driver& driver, SessionDevices& devices, ServerLink link, ImageCache* imageCache = nullptr,
           DeviceOutput* output = nullptr, std::string gateDirectory = "", Sharing* sharing = nullptr,
           Parking parking = {}, ClaimPlace claim = {});

  /// Runs the session to its end. Returns why it ended and whether that was orderly.
  struct End {
    std::string reason;
    bool ok;
    bool isParked = false;  ///< its client goes on with another one
  };
  End run();
  /// Ends `run` soon, from any thread; the client is told `reason`.
  void stop(const std::string& reason, bool ok);
  /// Ends `run` soon, from any thread: nobody is there any more. Where programs are checked, what the client had sent is
  /// executed first: memory that it freed last is not leaked.
  void clientGone();
  const Counters& counters() const { return counters_; }
  /// Why the session, which is idle, is not parked; empty while there is nothing to say. From any thread.
  std::string whyNotParked() {
    const std::lock_guard lock(keptMutex_);
    return kept_;
  }
  /// Changes how much memory may be taken of each device, in the session's order: of all, or of none where one has more
  /// in use by all sessions of the claim. `revision` grows with every change. From any thread.
  Status setMemoryLimits(std::span<const uint64_t> bytes, uint64_t revision);
  /// Other shares of the devices' compute, in the session's order. From any thread.
  void setShares(std::vector<gate::Share> shares);
  int socket() const { return link_.socket(); }
  /// Another connection of the client, as for ServerLink::offer; from any thread.
  void offer(Channel channel, uint64_t received) { link_.offer(std::move(channel), received); }

  // For the handlers

  const Driver& driver() const { return driver_; }
  /// The only way from an address of the client to one for the driver.
  AddressGate& addresses() { return addresses_; }
  /// Memory operations as the driver takes them. `isRecorded`: for a graph.
  CUresult admit(std::span<const std::byte> bytes, std::vector<CUstreamBatchMemOpParams>& out, bool isRecorded = false);
  bool stream(uint64_t wire, CUstream& out);
  /// A stream, and the context that it lives in, which need not be the current one.
  struct Stream {
    CUstream handle = nullptr;
    uint16_t context = 0;
  };
  bool stream(uint64_t wire, Stream& out);
  template <typename H>
  bool handle(HandleKind kind, uint64_t wire, H& out) {
    const HandleMap::Entry* entry = handles_.find(kind, wire);
    if (!entry) return missing(wire);
    out = static_cast<H>(entry->object);
    return true;
  }
  /// The session's handle of a driver's object; 0 when it has none.
  uint64_t wireOf(HandleKind kind, const void* object) {
    uint64_t wire = 0;
    if (object)
      handles_.each(kind, [&](const HandleMap::Entry& entry) {
        if (entry.object == object) wire = entry.wire;
      });
    return wire;
  }
  /// The function behind the number of a function, or of a kernel in the current context.
  bool functionOrKernel(uint64_t wire, CUfunction& out);
  bool device(int32_t ordinal, CUdevice& out);
  bool adopt(HandleKind kind, uint64_t wire, void* object);
  /// Before the driver makes one: CUDA_ERROR_OUT_OF_MEMORY where the claim has as many as it may have.
  CUresult admit(HandleKind kind);
  /// Whether somebody waits for the present command's answer.
  bool isAwaited() const { return current_.request != 0; }
  bool drop(HandleKind kind, uint64_t wire);
  /// The client broke the protocol: ends the session. Only a handle that the session once had, and that another thread
  /// of the program ended meanwhile, is the program's mistake and answered CUDA_ERROR_INVALID_HANDLE.
  CUresult violation(const std::string& what);
  template <typename R, typename... Tails>
  void reply(const R& fixed, const Tails&... tails) {
    replyBody_.resize(cmd::encodedSize<R>(tails...));
    cmd::encode(replyBody_.data(), fixed, tails...);
  }

  // The commands that are run by hand
#include "worker/gen/handlers.h"

 private:
  /// Who waits for an answer.
  struct Request {
    uint16_t op = 0;
    uint16_t context = 0;
    uint32_t request = 0;
    uint32_t thread = 0;  ///< of the client
  };
  /// Attributes of a launch, with the driver's own events; with room for one more.
  struct LaunchAttributes {
    std::array<CUlaunchAttribute, kMaxLaunchAttributes + 1> all;
    size_t count = 0;
  };
  /// Hands the client what kernels of that context have printed.
  void forwardOutput(uint16_t context);
  /// Hands the client what has been written there.
  void forward(wire::OutputStream stream);
  CUresult launchAttributes(std::span<const std::byte> bytes, LaunchAttributes& out);
  /// A context of the session. The primary ones come first: their numbers are 1 + ordinal of their device.
  struct Context {
    uint16_t device = 0;         ///< ordinal in the session
    CUcontext handle = nullptr;  ///< null: there is none of this number
    bool used = false;           ///< there was one some time
    bool ending = false;         ///< it is destroyed as soon as its work is done
    std::vector<CUevent> pool;   ///< events at rest
    CUstream quiet = nullptr;    ///< on which nothing ever runs; made when it is needed
    CUgreenCtx green = nullptr;  ///< it is the primary one with a part of the device's resources
    bool hasLaunched = false;    ///< kernels, which may have written variables
    uint32_t streams = 0;        ///< of the program
    uint32_t mostStreams = 0;    ///< that it had at a time
    uint64_t stackBytes = kUsualStack;  ///< of each thread, as the program has set it
    uint64_t localBytes = 0;            ///< the most that a thread of its kernels has
  };
  /// An event of the pool of its context; none when that context has ended, which is as good as happened.
  struct Mark {
    CUevent event = nullptr;
    uint16_t context = 0;
  };
  /// An answer or an action that is due when events have happened.
  struct Pending {
    Request request;
    std::vector<Mark> events;
    CUevent userEvent = nullptr;  ///< of the client
    std::function<CUresult(CUresult)> done;
  };
  /// A copy to client memory under way, a staging chunk at a time.
  struct Download {
    Request request;
    Stream stream;
    CUdeviceptr address = 0;
    uint64_t left = 0;
    uint64_t sent = 0;
    struct Piece {
      uint32_t chunk;
      uint32_t bytes;
      Mark mark;
    };
    std::deque<Piece> pieces;
    CUresult failure = CUDA_SUCCESS;
  };
  /// Pinned memory that is used again and again: giving it back to the driver could wait for the device.
  struct HostBuffer {
    std::byte* memory = nullptr;
    uint64_t bytes = 0;
    uint64_t age = 0;  ///< of a spare one: higher, the later it was given back
  };
  /// Bytes for client memory that arrive without anybody waiting for them: of a copy, or of a graph's launch.
  struct Landing {
    uint64_t number = 0;  ///< the client's; 0: it does not ask for the end of it
    CUstream stream = nullptr;
    Mark mark;
    uint64_t order = 0;            ///< among all, as they were issued
    std::vector<uint64_t> behind;  ///< those of other streams, by their order, whose bytes these may come over
    uint64_t hostAddress = 0;
    uint64_t bytes = 0;
    std::shared_ptr<const HostBuffer> staging;          ///< of a copy
    std::shared_ptr<const ExecContents> contents;       ///< of a launch
    std::set<const GraphStage*> landed;                 ///< of these, before the end
    std::map<const void*, size_t> calls;                ///< host functions that the launch has come to, and how often
  };
  /// A landing that commands may still name.
  struct NamedLanding {
    struct Part {
      uint64_t hostAddress;
      uint64_t bytes;
      const std::byte* memory;
    };
    std::vector<Part> parts;
    std::shared_ptr<const void> keeper;  ///< of the memory
  };
  /// Memory of this worker that a stream still reads.
  struct ReadMemory {
    Mark mark;
    std::shared_ptr<const void> keeper;
  };
  /// Memory of replies that may have to be sent again: a staging chunk, or a buffer.
  struct LentReply {
    uint64_t end;  ///< offset in the stream of replies behind it
    std::optional<uint32_t> chunk;
    std::shared_ptr<const HostBuffer> buffer;
  };
  /// Ring bytes that a copy to the device still reads.
  struct Hold {
    uint64_t start;
    Mark mark;
  };
  /// Freed memory that streams may still use.
  struct Retired {
    uint64_t number;
    uint16_t context;
    std::vector<CUdeviceptr> addresses;
    std::vector<Mark> fence;
  };
  struct ArrayMemory {
    uint16_t device = 0;  ///< ordinal in the session
    uint64_t bytes = 0;
    bool isDeferred = false;  ///< mapped as a whole
  };
  /// What an entry of ArrayMap does.
  struct TileChange {
    uint64_t array = 0;
    ArrayTiles::Part part;
    std::optional<uint64_t> memory;  ///< none: it unmaps
  };
  struct Texture {
    uint16_t context = 0;
    bool isSurface = false;
  };
  /// Something of the device that ends when the device is done with it.
  struct Ending {
    enum class Kind : uint8_t { kMapping, kReservation, kArray, kTexture, kSurface, kOpenedMemory, kTiles, kHostRun };
    uint64_t number;
    CUdeviceptr address;  ///< of mappings, reservations and runs of opened pools; the object of a texture or surface
    uint64_t bytes;
    Kind kind;
    std::vector<uint64_t> memories;
    std::vector<Mark> fence;
    void* array = nullptr;
    bool isMipmapped = false;
    uint16_t context = 0;  ///< of arrays, textures and surfaces
    ArrayMemory arrayMemory{};
  };
  /// A block of a pool that its stream is done with when the mark has happened.
  struct PoolFreeing {
    uint64_t number;
    Mark mark;
  };
  /// Which frees a command waits for.
  enum class Frees { kOrdinary, kOfPoolsToo };
  /// What can be answered when the memory that was freed before has come back.
  struct AfterFrees {
    Request request;
    uint64_t number;  ///< of the last batch before
    Frees frees;
    std::function<CUresult()> run;
  };
  struct Image {
    std::vector<std::byte> bytes;
    uint64_t total = 0;
    bool noRoom = false;  ///< this host has not that much memory
    bool announced = false;
    Sha256 hash{};                      ///< as announced
    std::optional<StoredImage> stored;  ///< in place of the bytes

    const std::byte* data() const { return stored ? stored->data() : bytes.data(); }
  };
  struct Link {
    JitOptions options;  ///< the driver keeps its addresses
    std::span<const std::byte> code;
  };
  struct FunctionInfo {
    uint32_t parameterBytes = 0;
    /// Of a kernel: the driver's function in each context in which it was used, by the context's number.
    std::vector<CUfunction> inContext;
    std::vector<uint32_t> layout;  ///< offset and size of each parameter
  };
  /// A capture that is open.
  struct Capture {
    uint64_t graph = 0;
    bool intoGraph = false;  ///< of the program, which stays whatever becomes of the capture
  };
  struct Exec {
    CUgraphExec handle = nullptr;
    std::shared_ptr<const ExecContents> contents;
  };

  bool missing(uint64_t wire) {
    stale_ = parking_.isResumed || handles_.wasKnown(wire);
    return false;
  }

  // Parking (executor_parking.cpp)

  /// A module or library, as far as it matters whether another one is the same.
  struct Loaded {
    bool isKept = false;  ///< its client has the image
    std::optional<std::vector<ImageVariable>> variables;
  };
  /// What there was to be compared.
  enum class Compared { kSame, kOther, kUnknown };
  /// Gives an idle session up, if all that is left of it can be made again and the client need not notice. True: it is over.
  bool parks(int64_t idleNs);
  /// Keeps what a command that was done has made or set.
  void note(cmd::Op op, std::span<const std::byte> body);
  void noteLoaded(const cmd::ModuleLoad& load, std::span<const std::byte> image);
  /// Why what there is cannot be made again; empty when it can.
  std::string whyKept();
  /// The same, or why it cannot be done now. Afterwards, when it is empty, the journal is written.
  std::string whyNotNow();
  std::string whyHandlesKept() const;
  std::string whyHostRunsKept() const;
  /// What `whyNotParked` says from now on.
  void keepsIdle(std::string why);
  std::string whyModulesKept();
  std::string whyContextsKept() const;
  Compared compareVariables(uint64_t wire, const Loaded& loaded);
  bool holdsTheSame(uint64_t wire, const ImageVariable& variable);
  bool isThere(const Subject& subject) const;
  /// Whether the client has taken what lies in shared memory for it.
  bool hasRead();
  bool isQuiet();
  /// Gives back what pools keep. False: there is still memory of a device.
  bool emptyPools();
  /// Adds a command to the journal that is being written.
  void write(cmd::Op op, uint16_t context, std::span<const std::byte> body);
  /// Writes the journal, once for each position. False: there is something that it cannot tell.
  bool writeJournal();
  /// The time between two events of which one at least was recorded before the session was parked.
  CUresult elapsed(cmd::Op op, std::span<const std::byte> body);
  /// What the driver said, or what stood in the way of asking it.
  CUresult execute(const ServerLink::Frame& frame);
  /// A command whose turn it is; `head` is what may be looked at before the rest is copied.
  CUresult perform(cmd::Op op, std::span<const std::byte> head, std::span<const std::byte> body);

  /// A command that a GPU works at.
  struct GatedWork {
    gate::Work work;
    Stream stream;
    gate::ComputeGate* gate;
  };
  Status enterBudgets();
  Status openGates();
  void closeGates();
  /// Whether one of its ends lies in memory of the host: it goes over the bus, and needs no share of what computes.
  bool isHostCopy(const cmd::CopyBox& box);
  std::optional<GatedWork> gatedWork(const ServerLink::Frame& frame);
  /// Executes the command, unless it has to wait at the gate of its device: then it returns false.
  bool take(const ServerLink::Frame& frame);
  bool takeGated(const ServerLink::Frame& frame);
  bool progressHeld();
  /// Executes what a thread of the client that runs callbacks says of them, which need not wait behind what others have
  /// sent: its stream goes on only then. False: it is another command.
  bool overtakes(const ServerLink::Frame& frame);
  bool progressGates();
  bool awaitsGates() const;
  /// For how long nothing that is held can go on. 0: for as long as it takes what is in flight.
  int64_t gateNapNs() const;
  /// The whole image that came for a handle.
  bool takeImage(uint64_t handle, Image& image);
  /// Its bytes are under way no more.
  void giveImage(const Image& image);
  static bool isWrapper(const Image& image);
  /// Puts an image that was announced by its hash where the next session finds it.
  void keepImage(Image image);
  /// Lets go of what came from a module or library.
  void dropChildren(uint64_t owner);
  template <typename R>
  void replyJit(const JitOptions& options) {
    reply(R{.threadsPerBlock = options.threadsPerBlock(),
            .wallTimeMs = options.wallTimeMs(),
            .infoLogBytes = options.infoBytes(),
            .errorLogBytes = options.errorBytes()},
          options.info(), options.error());
  }
  void answer(const Request& request, CUresult result);
  void latch(const Request& request, CUresult result);
  bool useContext(uint16_t context);

  bool isContext(uint16_t number) const { return number <= contexts_.size() && contexts_[number - 1u].handle; }
  /// Ordinal of the device that a context is on, and the number of that device's primary context.
  uint16_t deviceOf(uint16_t context) const { return contexts_[context - 1u].device; }
  uint16_t primaryOf(uint16_t context) const { return static_cast<uint16_t>(deviceOf(context) + 1); }
  /// The number of the context in which objects live that are made in that one: streams alone live in green contexts.
  uint16_t homeOf(uint16_t context) const {
    return context && contexts_[context - 1u].green ? primaryOf(context) : context;
  }
  MemoryArena& arenaOf(uint16_t context) { return *arenas_[deviceOf(context)]; }
  /// Lets go of all that lives in a context, whose work is done or given up.
  void forgetContext(uint16_t number);
  /// Of a green context: its driver leaves them.
  void endStreamsOf(uint16_t number);
  /// Success when that number is free for a context that the program makes.
  CUresult admitContext(uint32_t number);
  /// Who waits for an event that ends must not have the driver asked about it again.
  void answerWaitersOf(CUevent event);
  CUresult resetPrimary(uint16_t number);

  /// Asked in the event's own context, which the answer of another one that has failed does not hide.
  CUresult happened(const Mark& mark) {
    if (!mark.event) return CUDA_SUCCESS;
    if (mark.context != boundContext_) useContext(mark.context);
    return driver_.cuEventQuery(mark.event);
  }
  CUresult takeEvent(uint16_t context, Mark& mark);
  void giveBack(const Mark& mark);
  void giveBack(const std::vector<Mark>& marks);
  /// Records an event of the pool behind what the stream was given so far.
  CUresult mark(const Stream& stream, Mark& mark);
  /// Marks behind everything that the streams of one context, or of all (0), were given so far. With 0, contexts that have
  /// failed are left out: nothing runs there any more.
  CUresult fence(uint16_t context, std::vector<Mark>& marks);
  /// Whether all have happened; CUDA_ERROR_NOT_READY, success or the context's failure.
  CUresult state(const std::vector<Mark>& marks);

  bool progress();
  bool progressPending();
  bool progressDownloads();
  bool advance(Download& download);
  /// A staging chunk that this download may use now.
  std::optional<uint32_t> freeChunk(const Download& download);
  /// Lets go of a stream that is about to end.
  void detachDownloads(CUstream stream);
  /// A graph would come to memory of this worker again when there is something else: what is captured crosses as
  /// CaptureCopy.
  CUresult refuseRecording(const Stream& stream);

  // Landings (executor_landings.cpp)

  CUresult startLanding(const Stream& stream, const cmd::LandFromDevice& copy);
  /// Issued, with its mark.
  void addLanding(Landing landing);
  /// Calls `each(address, bytes)` for the memory of the client that it writes.
  template <typename Each>
  static void eachTarget(const Landing& landing, Each&& each);
  bool isUnderWay(uint64_t order) const;
  /// The client need not wait for a landing of that number.
  void endLanding(uint64_t number);
  /// The client has all of lower numbers.
  void forgetLandings(uint64_t below);
  /// Sends what a landing brings, and that it is over.
  void finishLanding(const Landing& landing, CUresult state);
  bool sendLanding(uint64_t hostAddress, std::span<const std::byte> bytes, uint64_t number, bool lends);
  bool progressLandings();
  bool progressReadMemory();
  /// What the graph has copied to the client before that function, and what it reads of the client behind it.
  std::vector<graph::Source> landBefore(const HostCall* call);
  static void addSources(const ExecContents& contents, uint64_t call, uint64_t to, std::vector<graph::Source>& sources);
  /// Takes back the memory of replies that the client has.
  bool progressLent();
  std::shared_ptr<const HostBuffer> takeHostBuffer(uint64_t bytes);
  /// Gives spare ones back to the system, those that were used longest ago first, until there are no more than that.
  void trimSpareHostBuffers(uint64_t bytes);
  /// The same for pages of the client that nothing looks at any more.
  void endClientPages();
  /// Runs at once, or when no function of the client is awaited any more, what may wait for the device: the word that
  /// such a function has returned comes through this very thread.
  CUresult withoutCallbacks(std::function<CUresult()> command);
  bool registerTransfers();
  /// Registers host memory with the driver, in a context that lives as long as the session: when that one is reset, anew.
  CUresult pin(void* memory, uint64_t bytes, unsigned flags);
  void unpin(void* memory);
  /// Maps and pins whole pages at exactly that address: of a file, or, where it is none, of this worker alone.
  CUresult mapHostRun(uint64_t address, uint64_t bytes, int file);
  void releaseHostRun(uint64_t address, uint64_t bytes);
  /// Unmaps what was freed while graphs were given addresses in it, when there is no graph any more.
  void releaseForgottenRuns();
  /// Puts the kernels that the program has asked for on the device, before a function of it can be pending: their first
  /// launch would wait for that function, whose end is announced to the thread that launches. Later kernels follow as
  /// soon as they are asked for.
  void loadKernels();
  void loadKernel(uint64_t wire);
  CUresult issueHostFunction(const Stream& stream, const Callback& callback);
  bool progressCallbacks();

  /// CU_STREAM_CAPTURE_STATUS_NONE where nothing is captured at all: then it costs nothing.
  CUstreamCaptureStatus captureStatus(const Stream& stream);
  /// The node that a captured stream was given last; 0 when that cannot be told.
  uint64_t lastCaptured(const Stream& stream);
  bool dependencies(uint64_t graph, std::span<const std::byte> nodes, std::span<const std::byte> edges, bool hasEdges,
                    std::vector<CUgraphNode>& out, std::vector<CUgraphEdgeData>& data);
  CUresult captureHostFunction(const Stream& stream, const Callback& callback);
  /// Adds a node to the capture that the stream takes part in, as the next of the stream.
  CUresult captureNode(const Stream& stream, CUgraphNodeParams& params, uint64_t& node);
  CUresult captureAlloc(const Stream& stream, size_t ordinal, uint64_t bytes);
  CUresult captureFree(const Stream& stream, CUdeviceptr address);
  /// Whether nodes of graphs make memory at that address.
  bool isGraphMemory(CUdeviceptr address) const;
  /// A node frees that memory.
  void willFree(CUdeviceptr address);
  /// Frees what a launch left, if it did.
  CUresult freeGraphMemory(CUdeviceptr address, const Stream* stream);
  const HostCall* graphCall(const Callback& callback);
  /// For an end of a copy that is memory of the client alone. `original`: the copy as the client gave it.
  CUresult makeStage(const Box& box, bool toDevice, const CUDA_MEMCPY3D& original, std::shared_ptr<GraphStage>& stage);

  /// A node's parameters for the driver, and what they point to.
  struct NodeParams {
    CUgraphNodeParams params{};
    std::vector<std::byte> bytes;
    std::vector<void*> pointers;
    std::vector<CUmemAccessDesc> access;
    std::vector<CUstreamBatchMemOpParams> operations;
    std::shared_ptr<GraphStage> stage;
    const HostCall* call = nullptr;
    std::shared_ptr<GraphAllocation> allocation;
    std::vector<CUgraph> bodies;
  };
  CUresult readNode(std::span<const std::byte> record, NodeParams& out);
  /// Of an allocation node that the driver has made: its memory is known from here on.
  void adoptAllocation(uint64_t node, const NodeParams& params);
  CUresult readKernel(const graph::NodeRecord& record, std::span<const std::byte> rest, NodeParams& out);
  CUresult readCopy(const graph::NodeRecord& record, NodeParams& out);
  CUresult readFill(const graph::NodeRecord& record, NodeParams& out);
  /// An attribute's value as the driver takes it.
  CUresult readAttribute(CUlaunchAttributeID id, const Crossing<CUlaunchAttributeValue>& value,
                         CUlaunchAttributeValue& out, bool isRecorded = false);
  CUresult readAllocation(const graph::NodeRecord& record, std::span<const std::byte> rest, NodeParams& out);
  CUresult writeKernel(const GraphTable::Node& node, graph::NodeRecord& record, std::vector<std::byte>& rest);
  uint64_t wireFunction(CUfunction function, CUkernel kernel);
  uint64_t wireEvent(CUevent event);
  /// Takes over what the worker keeps of the nodes of a graph for its copy.
  void copySpecials(uint64_t from, uint64_t to);
  void adoptChild(uint64_t node, CUgraph graph);
  std::shared_ptr<const ExecContents> contentsOf(uint64_t graph);
  /// Nodes that are done when another begins: copies to the client, and functions of the client.
  struct Before {
    std::vector<uint64_t> landings;
    std::vector<uint64_t> calls;
  };
  void collect(uint64_t graph, const Before& before, ExecContents& contents);
  void addUnder(uint64_t graph, Before& before);
  /// A page of what launches read and write of the client's memory; `count`: how many there are in all.
  std::vector<graph::Source> sourcesOf(const ExecContents& contents, uint32_t first, uint32_t& count);
  CUresult launchGraph(const cmd::GraphLaunch& launch);
  void land(const GraphStage& stage);
  bool progressRetired();
  void retire(uint16_t context);
  /// Whether an allocation is about to be given back.
  bool isFreed(uint16_t context, CUdeviceptr address) const;
  /// Gives back an allocation of an arena, or a use of a run, when no stream can still use it.
  void freeLater(uint16_t context, CUdeviceptr address);
  /// Runs `command` when everything freed of the current context so far is given back: at once where nothing is.
  CUresult afterFrees(std::function<CUresult()> command, Frees frees = Frees::kOrdinary);
  bool freesPending(uint16_t context, uint64_t number, Frees frees) const;
  /// Takes memory from a device's arena, if need be after giving back what its pools keep.
  CUresult allocate(uint16_t context, uint64_t bytes, CUdeviceptr& address);
  bool progressAfterFrees();
  CUresult memoryInfo(uint16_t context);
  void releaseRing();
  void updateMemoryCounter(uint16_t context);
  void updateMemoryCounters();
  /// Memory that becomes a node of a graph is not made here.
  CUresult refuseCapture(const Stream& s) const;
  /// The program waits for the device: pools give back what is over their thresholds.
  void synchronisePools();
  bool progressPoolFrees();
  void giveBackBlocks(const std::vector<MemoryPools::Block>& blocks);
  /// Whether memory of a device can be shared with other sessions.
  bool canShare(int32_t ordinal) const;
  CUresult exportFile(CUmemGenericAllocationHandle memory, std::shared_ptr<const UniqueFd>& file);
  CUresult uuidOf(size_t ordinal, std::array<std::byte, 16>& uuid) const;
  /// Which device of the session that is.
  bool ordinalOf(const std::array<std::byte, 16>& uuid, size_t& ordinal) const;
  CUresult shareItem(Sharing::Kind kind, uint64_t object, size_t ordinal, Sharing::Item item, Sharing::Handle& handle);
  /// The handle of an allocation that lies in a device's arena; `pool` 0: of none.
  CUresult shareAllocation(Sharing::Kind kind, size_t ordinal, CUdeviceptr address, uint64_t bytes, uint64_t pool,
                           Sharing::Handle& handle);
  /// What another session shares that lies on a device of this one.
  CUresult openItem(Sharing::Kind kind, const Sharing::Handle& handle, Sharing::Item& item, size_t& ordinal);
  CUresult importMemory(Sharing::Kind kind, const Sharing::Handle& handle, Sharing::Item& item, size_t& ordinal,
                        CUmemGenericAllocationHandle& memory);
  CUresult importFile(const Sharing::Item& item, CUmemGenericAllocationHandle& memory);
  /// Opens memory of an opened pool, in a run that is mapped already or is from then on.
  CUresult openPooled(uint64_t pool, const Sharing::Handle& handle, cmd::PoolOpenPointerReply& opened);
  /// One use less of memory of an opened pool, when its stream has come to that place.
  void closeOpened(CUdeviceptr address, std::vector<Mark> place);
  /// A block of a pool is free in the order of the stream, and for all when that has come to the place.
  void freeBlock(CUdeviceptr address, MemoryPools::StreamKey stream, const std::vector<Mark>& place);
  CUresult openEvent(const Sharing::Handle& handle, CUevent& event);
  /// Whether the driver has made that resource for this session.
  bool isKnown(const CUdevResource& resource) const;
  CUresult know(const CUdevResource& resource);
  /// Puts the driver's objects into an entry.
  CUresult readTile(const Crossing<CUarrayMapInfo>& sent, CUarrayMapInfo& entry, TileChange& change);
  /// What has no tile any more counts until the device is done with it.
  void endTiles(std::vector<uint64_t> memories);
  CUresult makeArray(const cmd::ArrayCreate& wanted, void*& made, uint64_t& bytes);
  void finish(const Ending& ending);
  void finishArray(const Ending& ending);
  void finishTexture(const Ending& ending);
  bool progressEndings();
  /// Ends at once what stands in the way of a mapping there, and all before it.
  void settleEndings(uint64_t address, uint64_t bytes);
  /// Takes so much more host memory to be pinned. False where the claim may not have it.
  bool takeHost(uint64_t bytes);
  /// The same, after giving back what is only kept for later where it does not fit.
  bool takeHostOrTrim(uint64_t bytes);
  void giveHost(uint64_t bytes);
  /// This session has so many of them. False, with a line in the log, where the claim would have too many.
  bool hold(Thing thing, uint64_t amount);
  /// The counts are what the handles of that kind say.
  void count(HandleKind kind);
  /// Device memory that the driver makes is so much from here on. False, with a line in the log, where it does not fit.
  bool charge(DriverMemory::Of what, uint64_t number, uint16_t context, uint64_t bytes, const char* why);
  CUresult chargeContext(uint32_t number, uint16_t device);
  /// One more of the current context.
  CUresult chargeStream();
  /// Every thread that the device can have has so much.
  CUresult chargeStacks(uint16_t number, uint64_t bytesOfEach, const char* why);
  /// Charges the local memory of a function or kernel (`kind`), as the driver reports it, for every thread that the bound
  /// context's device can run at once. Free where nothing is charged: without a bound context or known costs.
  CUresult chargeLocal(HandleKind kind, void* function);
  CUresult setLimit(CUlimit limit, uint64_t value);
  /// Charges what the device has less of afterwards, `most` at most; ends what was made where it does not fit.
  CUresult measured(DriverMemory::Of what, uint64_t number, uint16_t context, uint64_t most,
                    const std::function<CUresult()>& make, const std::function<void()>& unmake);
  /// Of the variables in it; nothing where that cannot be told.
  std::optional<uint64_t> memoryOf(const Image& image, const LinkedFatbins& fatbins);
  CUresult chargeModule(uint64_t wire, uint64_t bytes);
  void dropModuleCharge(uint64_t wire);
  CUresult admitOneContext();
  void countContexts();
  /// Nodes on the books of an executable graph, or of the graph that this one ends with, with all graphs in it.
  uint64_t nodesOf(uint64_t graph);
  /// Before the driver makes so many; false where the claim would have too many. When they are made `keepNodes` says of
  /// what, and `dropNodes` where they are not.
  bool takeNodes(uint64_t nodes);
  void keepNodes(uint64_t owner);
  void dropNodes();
  /// That graph is gone.
  void giveNodes(uint64_t owner);
  /// What a command adds to the captures that are open, as far as it can be told; `body`: of the command.
  bool admitCaptured(cmd::Op op, std::span<const std::byte> body);
  void beginCaptured();
  /// What was captured is in that graph.
  void keepCaptured(uint64_t graph);

  const Driver& driver_;
  SessionDevices& devices_;
  ServerLink link_;
  DeviceOutput* output_;
  Sharing* sharing_;
  Counters counters_;

  uint64_t position_ = 0;
  Request current_;
  uint64_t frameStart_ = 0;
  uint64_t frameEnd_ = 0;
  std::vector<std::byte> replyBody_;
  uint16_t boundContext_ = 0;
  bool stale_ = false;

  HandleMap handles_;
  std::deque<ClaimBudget> budgets_;
  DriverMemory driverMemory_{budgets_};
  std::vector<DriverCosts> costs_;                     ///< by device
  std::unordered_map<uint64_t, uint64_t> libraries_;  ///< and the memory of their variables
  uint64_t libraryBytes_ = 0;                         ///< of all of them, in one context
  ClaimPlace claim_;
  ClaimThings things_{claim_.limits};
  uint8_t told_ = 0;  ///< things of which the log says that the claim has all that it may have, a bit for each
  std::unordered_map<uint64_t, uint64_t> graphNodes_;  ///< on the books, by graph or executable graph
  std::mutex budgetsMutex_;  ///< while limits change
  std::vector<std::unique_ptr<MemoryArena>> arenas_;
  VirtualMemory virtualMemory_;
  const Sanitizer sanitizer_;
  std::vector<Context> contexts_;
  MemoryPools pools_;
  OpenedPools openedPools_;
  std::deque<Pending> pending_;
  std::deque<Download> downloads_;
  std::multimap<uint64_t, HostBuffer> spareHostBuffers_;  ///< by size
  uint64_t spareHostBytes_ = 0;
  uint64_t lastSpare_ = 0;
  ClientPages clientPages_;
  std::vector<ClientPages::View> endedPages_;
  std::deque<Landing> landings_;
  uint64_t lastLanding_ = 0;
  RangeMap landingRanges_;  ///< memory of the client → landing that writes it last, by its order
  std::map<uint64_t, NamedLanding> namedLandings_;
  std::deque<std::pair<Request, uint64_t>> landingWaiters_;
  std::deque<ReadMemory> readMemory_;
  std::deque<LentReply> lentReplies_;
  std::deque<Hold> holds_;
  uint32_t nextChunk_ = 0;
  std::vector<std::vector<CUdeviceptr>> freed_;  ///< by device
  std::deque<Retired> retired_;
  uint64_t lastRetired_ = 0;  ///< also of endings and of frees in pools
  std::deque<Ending> endings_;
  std::deque<PoolFreeing> poolFrees_;
  std::unordered_map<uint64_t, ArrayMemory> arrayBytes_;  ///< by handle; levels and planes have none of their own
  ArrayTiles tiles_;
  std::unordered_map<uint64_t, Texture> textures_;        ///< texture and surface objects
  std::deque<AfterFrees> afterFrees_;
  std::shared_ptr<Callbacks> callbacks_;  ///< the driver's threads may outlive this
  std::deque<Request> callbackWaiters_;   ///< threads of the client that run callbacks
  std::unordered_set<uint32_t> callbackThreads_;  ///< by the numbers that the client gives its threads
  std::unordered_map<uint64_t, std::vector<graph::Source>> callbackSources_;  ///< more than a page, by number
  uint64_t callbacksExpected_ = 0;        ///< issued, and not known to be done
  bool loadsKernels_ = false;             ///< the program has given streams functions
  std::deque<std::pair<Request, std::function<CUresult()>>> afterCallbacks_;
  uint64_t afterCallbackBytes_ = 0;  ///< of the commands in it
  struct Pinned {
    uint64_t bytes;
    unsigned flags;
    uint16_t context;
  };
  std::map<void*, Pinned> pinned_;         ///< host memory that is registered with the driver
  HostRuns hostRuns_;  ///< pinned memory of the program
  std::unordered_map<uint64_t, Image> images_;
  ImageCache* imageCache_;
  std::unordered_map<uint64_t, std::unique_ptr<Link>> links_;
  std::unordered_map<uint64_t, FunctionInfo> functions_;
  std::unordered_map<uint64_t, std::vector<uint64_t>> children_;  ///< module or library → its functions and kernels
  std::unordered_set<uint64_t> borrowed_;  ///< what is not ended by itself: modules that libraries are, references of modules
  std::vector<std::byte> small_;

  GraphTable graphs_;
  std::map<uint64_t, Capture> captures_;  ///< by the stream that they began on
  std::unordered_map<uint64_t, Exec> execs_;
  std::unordered_map<uint64_t, CUuserObject> userObjects_;
  std::map<CUdeviceptr, std::weak_ptr<GraphAllocation>> graphMemory_;
  std::unordered_map<CUgraphConditionalHandle, uint64_t> conditions_;  ///< handle → graph that it was made for
  AddressGate addresses_{driver_, arenas_, virtualMemory_, graphMemory_, hostRuns_, [this] { return !captures_.empty(); }};
  std::map<CUdeviceptr, std::shared_ptr<GraphAllocation>> leftByGraphs_;  ///< counts although its node may be gone
  std::unordered_map<uint64_t, std::weak_ptr<GraphStage>> stages_;
  std::map<std::array<uint64_t, 3>, std::unique_ptr<HostCall>> graphCalls_;  ///< graphs may come to them until the end
  std::string dot_;

  std::vector<CUdevResource> resources_;
  std::unordered_map<uint64_t, CUdevResourceDesc> descriptors_;

  const std::string gateDirectory_;
  std::vector<std::unique_ptr<gate::ComputeGate>> gates_;  ///< by device
  bool isGated_ = false;                                   ///< the gate of one of them is on
  std::deque<ServerLink::Frame> held_;                     ///< the first waits at a gate; they stay in the ring
  const gate::ComputeGate* heldAt_ = nullptr;
  int64_t lastWorkAt_ = 0;
  std::mutex sharesMutex_;
  std::vector<gate::Share> shares_;  ///< as they were set last; empty: as the session began
  bool areGatesOpen_ = false;

  const Parking parking_;
  cmd::Op trace_ = cmd::Op{};  ///< the first command of which something may be left that is not in the books; 0: none
  Journal journal_;
  std::unordered_map<uint64_t, Loaded> loaded_;  ///< by the handle of the module or library
  std::unordered_set<uint64_t> asked_;           ///< modules and libraries of which the client knows the address of a variable
  EventTimes eventTimes_;
  std::optional<uint64_t> restoredAt_;               ///< position at which all was made again
  std::vector<std::byte> written_;                   ///< the journal, as it was at that position
  std::optional<uint64_t> writtenAt_;
  std::pair<uint64_t, std::string> modulesKept_;     ///< why, as it was at that position
  std::string toldKept_;
  bool isKept_ = false;  ///< there is a reason
  std::mutex keptMutex_;
  std::string kept_;

  bool ended_ = false;
  End end_{"", true};
  std::atomic<bool> stopRequested_{false};
  std::atomic<bool> readsOut_{false};  ///< what was sent is executed before the end
  std::mutex stopMutex_;
  End stopEnd_{"", true};
};

}  // namespace millpond::worker
