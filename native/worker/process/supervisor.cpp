// SPDX-License-Identifier: Apache-2.0
#include "worker/process/supervisor.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <vector>

#include "base/errors/coded_error.h"
#include "base/log.h"
#include "protocol/gen/api_hash.h"
#include "protocol/transport/socket.h"
#include "protocol/transport/tls_library.h"
#include "worker/device/program_calls.h"

namespace millpond::worker {
namespace {

constexpr int64_t kStatsNs = 1'000'000'000;
/// Host memory of a session that is charged nowhere else: its rings, replies kept for its client, waiting commands.
constexpr uint64_t kSessionHostBytes = uint64_t{64} << 20;
/// How often expiry and the loss of the agent are checked.
constexpr int kTickMs = 250;

std::string hex(uint64_t value) {
  char text[17];
  std::snprintf(text, sizeof(text), "%016llx", static_cast<unsigned long long>(value));
  return text;
}

}  // namespace

Supervisor::Supervisor(const Driver& driver, Options options, DeviceOutput& output, gate::Gates gates)
    : driver_(driver),
      options_(std::move(options)),
      output_(output),
      gates_(std::move(gates)),
      devices_(driver, options_.trustsPageableAccess),
      imageCache_(options_.imageCache, options_.imageCacheBytes),
      finished_(::eventfd(0, EFD_CLOEXEC)) {
  if (options_.countsDriverMemory) devices_.countDriverMemory();
}

const char* Supervisor::name(State state) {
  switch (state) {
    case State::kWarm: return "warm";
    case State::kAssigned: return "assigned";
    case State::kConnected: return "connected";
    case State::kClosing: break;
  }
  return "closing";
}

Status Supervisor::prepare() {
  if (!options_.warmDevice.empty())
    if (auto warm = devices_.warm(options_.warmDevice); !warm) return warm;
  if (auto listening = acceptor_.listenUnix(options_.dataPath); !listening) return listening;
  if (options_.tcpHost)
    if (auto listening = acceptor_.listenTcp(*options_.tcpHost, options_.tcpPort, options_.tcpLastPort); !listening)
      return listening;
  // Done now, so that the first session need not wait for it.
  if (acceptor_.needsSecret())
    if (auto library = tlsLibrary(); !library) return library.error();
  if (options_.assignment) {
    assign(*options_.assignment);
    if (state_ != State::kAssigned) return Error{"the assignment was refused"};
  }
  log(LogLevel::Info, "worker %s listens at %s and TCP port %u", options_.id.c_str(), options_.dataPath.c_str(),
      unsigned{acceptor_.tcpPort()});
  // This comes last: an agent that sees this socket may use it.
  return control_.listen(options_.controlPath, options_.controlKey);
}

int Supervisor::run() {
  int64_t orphanSince = monotonicNs();
  int64_t lastStats = monotonicNs();
  while (!over_) {
    std::vector<int> sockets;
    acceptor_.collect(sockets);
    control_.collect(sockets);
    sockets.push_back(finished_.get());
    if (sharing_) sharing_->collect(sockets);
    std::vector<pollfd> polled;
    for (const int socket : sockets) polled.push_back({socket, POLLIN, 0});
    if (executor_ && !clientGone_)
      polled.push_back(outlivesConnection() ? pollfd{clientProcess_.file(), POLLIN, 0}
                                            : pollfd{executor_->socket(), POLLRDHUP, 0});
    ::poll(polled.data(), polled.size(), kTickMs);

    if (control_.accept()) greetAgent();
    if (control_.connected())
      for (const Json& message : control_.receive()) handle(message);
    if (sharing_) sharing_->serve();
    if (auto admitted = acceptor_.serve([this](const Hello& h, bool remote) { return authorize(h, remote); }))
      admit(std::move(*admitted));
    watchClient();

    const int64_t now = monotonicNs();
    if (state_ == State::kConnected && (now - lastStats >= kStatsNs || memoryUsed() != reportedMemory_)) {
      lastStats = now;
      sendStats();
    }
    if (state_ == State::kAssigned && ::time(nullptr) > assignment_.expires)
      finish("no client came before the ticket expired", true);
    if (control_.connected() || state_ == State::kConnected) orphanSince = now;
    if (now - orphanSince > int64_t{options_.orphanSeconds} * 1'000'000'000) {
      log(LogLevel::Info, "no agent and no session for %d s: ending", options_.orphanSeconds);
      over_ = true;
    }
  }
  ::unlink(options_.controlPath.c_str());
  ::unlink(options_.dataPath.c_str());
  sharing_.reset();
  // An image that is being written is completed for the next session, so that no partial file remains.
  imageCache_.settle();
  return exitStatus_;
}

void Supervisor::greetAgent() {
  control_.send(Json::Object{{"type", "hello"},
                             {"id", options_.id},
                             {"pid", static_cast<int>(::getpid())},
                             {"protocol", kControlProtocol},
                             {"apiHash", hex(kApiHash)},
                             {"state", name(state_)},
                             {"tcpPort", acceptor_.tcpPort()},
                             {"session", assignment_.session}});
}

void Supervisor::handle(const Json& message) {
  const Json* type = message.find("type");
  const std::string* kind = type ? type->string() : nullptr;
  if (kind && *kind == "assign") {
    auto assignment = Assignment::parse(message);
    if (!assignment) {
      control_.send(Json::Object{
          {"type", "refused"}, {"session", ""}, {"message", assignment.error().message}, {"isFull", false}});
      return;
    }
    assign(std::move(*assignment));
  } else if (kind && *kind == "resize") {
    resize(message);
  } else if (kind && *kind == "close") {
    const Json* why = message.find("reason");
    const std::string reason = why && why->string() ? *why->string() : "closed by the agent";
    // Reports the end of a client that has left by itself.
    watchClient();
    if (executor_) {
      state_ = State::kClosing;
      executor_->stop(reason, true);
    } else {
      finish(reason, true);
    }
  } else if (!kind || *kind != "attach") {  // a worker without a key treats it as an ordinary message
    log(LogLevel::Warn, "the agent sent a message of unknown type");
  }
}

void Supervisor::assign(Assignment assignment) {
  const auto refuse = [&](const std::string& why) {
    const bool isFull = accounts_ && accounts_->isFull();
    log(LogLevel::Warn, "assignment of session %s refused: %s", assignment.session.c_str(), why.c_str());
    control_.send(
        Json::Object{{"type", "refused"}, {"session", assignment.session}, {"message", why}, {"isFull", isFull}});
  };
  if (state_ != State::kWarm) return refuse(std::string("this worker is ") + name(state_));
  if (acceptor_.needsSecret() && !assignment.secret)
    return refuse("this worker listens beyond loopback, and there is no secret to encrypt its connections with");
  const auto enter = [&] {
    ClaimPlace place{assignment.claimDirectory, assignment.tenant, assignment.sizeRevision};
    place.sessionHostBytes = kSessionHostBytes;
    if (assignment.claimHostBytes != 0)
      place.limits.most[static_cast<size_t>(Thing::kHostByte)] = assignment.claimHostBytes;
    accounts_ = std::make_unique<ClaimAccounts>(std::move(place), devices_.accounts());
    return accounts_->enter({}, [this] { devices_.cool(); });
  };
  if (auto taken = devices_.assign(assignment.devices, enter); !taken) return refuse(taken.error().message);
  auto snapshot = devices_.snapshot();
  if (!snapshot) return refuse(snapshot.error().message);
  if (assignment.group && !options_.peersPath.empty()) {
    sharing_ = std::make_unique<Sharing>(options_.peersPath, options_.id, *assignment.group);
    if (auto listening = sharing_->listen(); !listening) return refuse(listening.error().message);
  }
  snapshot_ = std::move(*snapshot);
  assignment_ = std::move(assignment);
  imageCache_.enter(assignment_.tenant);
  if (assignment_.secret) acceptor_.setSecret(*assignment_.secret);
  state_ = State::kAssigned;
  control_.send(Json::Object{{"type", "assigned"}, {"session", assignment_.session}});
}

void Supervisor::resize(const Json& message) {
  auto wanted = Resizing::parse(message);
  if (!wanted) {
    log(LogLevel::Warn, "a resize that cannot be read: %s", wanted.error().message.c_str());
    return;
  }
  const Status done = applySizes(*wanted);
  const std::string problem = done ? "" : done.error().message;
  if (!done) log(LogLevel::Info, "session %s keeps its size: %s", wanted->session.c_str(), problem.c_str());
  control_.send(Json::Object{{"type", "resized"},
                             {"session", wanted->session},
                             {"revision", wanted->revision},
                             {"ok", bool(done)},
                             {"message", problem}});
}

Status Supervisor::applySizes(Resizing wanted) {
  if (state_ == State::kWarm || wanted.session != assignment_.session)
    return Error{"this worker does not have the session " + wanted.session};
  const auto isSame = [](const DeviceShare& a, const DeviceShare& b) { return a.uuid == b.uuid; };
  const auto& own = assignment_.devices;
  if (!std::equal(own.begin(), own.end(), wanted.devices.begin(), wanted.devices.end(), isSame))
    return Error{"the session has other devices"};
  std::vector<uint64_t> limits;
  for (size_t i = 0; i < own.size(); ++i) {
    wanted.devices[i].priority = own[i].priority;
    wanted.devices[i].contextBytes = own[i].contextBytes;
    wanted.devices[i].printsBytes = own[i].printsBytes;
    wanted.devices[i].allocatesBytes = own[i].allocatesBytes;
    limits.push_back(wanted.devices[i].memoryBytes);
  }
  if (auto set = accounts_->setLimits(limits, wanted.revision); !set) return set;
  if (executor_) {
    std::vector<Share> shares;
    for (const DeviceShare& device : wanted.devices) shares.push_back(device.compute());
    executor_->setShares(std::move(shares));
  } else {
    if (auto set = devices_.resize(wanted.devices); !set) return set;
    auto snapshot = devices_.snapshot();
    if (!snapshot) return snapshot.error();
    snapshot_ = std::move(*snapshot);
  }
  assignment_.devices = wanted.devices;
  assignment_.sizeRevision = wanted.revision;
  return Done{};
}

Welcome Supervisor::authorize(const Hello& hello, bool remote) {
  Welcome out;
  out.protocol = wire::kProtocolVersion;
  out.apiHash = kApiHash;
  const auto refuse = [&](Admission admission, std::string message) {
    out.admission = admission;
    out.message = std::move(message);
    return out;
  };
  if (hello.protocol != wire::kProtocolVersion)
    return refuse(Admission::kProtocolMismatch,
                  codedText(codes::kVersion, "the client speaks protocol " + std::to_string(hello.protocol) +
                                                 ", this worker " + std::to_string(wire::kProtocolVersion)));
  if (hello.apiHash != kApiHash)
    return refuse(Admission::kApiMismatch,
                  codedText(codes::kVersion, "the client was built for API " + hex(hello.apiHash) +
                                                 ", this worker for " + hex(kApiHash)));
  if (hello.resumption) return judgeReturn(*hello.resumption, std::move(out));
  if (hello.lane) return judgeLane(*hello.lane, remote, std::move(out));
  if (state_ == State::kWarm)
    return refuse(Admission::kNoSession, codedText(codes::kTicketInvalid, "this worker has no session yet"));
  if (!equalSecrets(hello.ticket, assignment_.ticket))
    return refuse(Admission::kTicketRefused,
                  codedText(codes::kTicketInvalid, "the ticket is not the one of this session"));
  if (state_ != State::kAssigned)
    return refuse(Admission::kBusy, codedText(codes::kTicketUsed,
                                              "the session already has its client: a ticket opens one session, once"));
  if (::time(nullptr) > assignment_.expires)
    return refuse(Admission::kTicketExpired, codedText(codes::kTicketExpired, "the ticket has expired"));
  if (remote != (hello.carrier == Carrier::kTcp))
    return refuse(Admission::kFailed, "shared memory needs the Unix socket, TCP the TCP port");
  return out;
}

Welcome Supervisor::judgeReturn(const Resumption& resumption, Welcome out) {
  const auto refuse = [&](Admission admission, std::string message) {
    out.admission = admission;
    out.message = std::move(message);
    return out;
  };
  if (!outlivesConnection() || state_ != State::kConnected)
    return refuse(Admission::kNoSession, codedText(codes::kTicketInvalid, "this worker has no session to resume"));
  if (!equalSecrets(resumption.secret, secret_))
    return refuse(Admission::kTicketRefused,
                  codedText(codes::kTicketInvalid, "the secret does not belong to this session"));
  if (resumption.attempt <= lastAttempt_)
    return refuse(Admission::kBusy,
                  codedText(codes::kTicketUsed, "the client has already reconnected by a later connection"));
  lastAttempt_ = resumption.attempt;
  return out;
}

Welcome Supervisor::judgeLane(const LaneClaim& claim, bool remote, Welcome out) {
  const auto refuse = [&](Admission admission, std::string message) {
    out.admission = admission;
    out.message = std::move(message);
    return out;
  };
  if (!remote || !outlivesConnection() || state_ != State::kConnected)
    return refuse(Admission::kNoSession, codedText(codes::kTicketInvalid, "this worker has no session with lanes"));
  if (!equalSecrets(claim.secret, secret_))
    return refuse(Admission::kTicketRefused,
                  codedText(codes::kTicketInvalid, "the secret does not belong to this session"));
  if (claim.attempt != lastAttempt_)
    return refuse(Admission::kBusy, codedText(codes::kTicketUsed, "the lane belongs to an earlier connection"));
  return out;
}

void Supervisor::admit(Acceptor::Admitted admitted) {
  if (admitted.hello.lane) {
    executor_->offerLane(std::move(admitted.channel), admitted.hello.lane->lane, admitted.hello.lane->count);
    return;
  }
  if (admitted.hello.resumption) {
    executor_->offer(std::move(admitted.channel), admitted.hello.resumption->received);
    return;
  }
  auto memory = SessionMemory::create();
  Welcome welcome{wire::kProtocolVersion, kApiHash, Admission::kWelcome, "", {}};
  int64_t parkAfterNs = 0;
  if (!memory) {
    welcome.admission = Admission::kFailed;
    welcome.message = memory.error().message;
  } else {
    welcome.snapshot = snapshot_.encode();
    grantReturn(admitted, welcome);
    // Over TCP, both ends agree on the session's end by messages that exist only on a link that outlives its
    // connection.
    if (admitted.hello.canPark && (!admitted.remote || graceSeconds_ != 0)) parkAfterNs = assignment_.parkAfterNs;
    welcome.parks = parkAfterNs != 0;
  }
  auto sent = sendAll(admitted.channel, encode(welcome));
  if (sent && memory && !admitted.remote) sent = sendFile(admitted.channel.socket(), memory->file());
  if (!sent || !memory) {
    log(LogLevel::Warn, "the session could not begin: %s", (memory ? sent.error() : memory.error()).message.c_str());
    return;
  }
  state_ = State::kConnected;
  control_.send(Json::Object{{"type", "connected"},
                             {"session", assignment_.session},
                             {"transport", admitted.remote ? "tcp" : "shm"},
                             {"clientPid", admitted.pid},
                             {"programPid", admitted.hello.pid},
                             {"program", admitted.hello.program}});
  executor_ = std::make_unique<Executor>(
      driver_, devices_, *accounts_,
      ServerLink(std::move(admitted.channel), std::move(*memory), admitted.remote, graceSeconds_), &imageCache_,
      &output_, std::move(gates_), sharing_.get(), Parking{parkAfterNs, admitted.hello.isParked});
  if (const ProgramCallsTable* calls = programCallsOf(driver_)) calls->client(admitted.hello.pid);
  executor_->setProfilerLibraries(options_.driver, options_.cupti);
  thread_ = std::thread([this] {
    end_ = executor_->run();
    const uint64_t one = 1;
    if (::write(finished_.get(), &one, sizeof(one)) != sizeof(one)) std::abort();
  });
}

void Supervisor::grantReturn(const Acceptor::Admitted& admitted, Welcome& welcome) {
  if (!admitted.remote) return;
  const bool isNear = !admitted.hello.processSpace.empty() && admitted.hello.processSpace == ProcessWatch::space();
  const uint32_t grace = std::min(admitted.hello.graceSeconds, options_.reconnectGraceSeconds);
  // Reconnecting needs an unguessable secret.
  if (::getrandom(secret_.data(), secret_.size(), 0) != static_cast<ssize_t>(secret_.size())) return;
  graceSeconds_ = grace;
  if (isNear) clientProcess_ = ProcessWatch(admitted.pid);
  welcome.graceSeconds = grace;
  welcome.secret = secret_;
  welcome.pid = isNear ? static_cast<uint32_t>(::getpid()) : 0;
}

void Supervisor::watchClient() {
  if (!executor_ || over_) return;
  pollfd look[2] = {{outlivesConnection() ? -1 : executor_->socket(), POLLRDHUP, 0}, {finished_.get(), POLLIN, 0}};
  ::poll(look, 2, 0);
  const bool hungUp = (look[0].revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
  if (!clientGone_ && (hungUp || (outlivesConnection() && clientProcess_.ended()))) {
    clientGone_ = true;
    // Over TCP the executor reads to the end of the stream and detects it itself.
    executor_->clientGone();
  }
  if (look[1].revents & POLLIN) {
    thread_.join();
    sendStats();
    finish(end_.reason, end_.ok, end_.isParked);
  }
}

uint64_t Supervisor::memoryUsed() const {
  uint64_t sum = 0;
  for (size_t device = 0; device < assignment_.devices.size(); ++device) sum += memoryUsed(device);
  return sum;
}

uint64_t Supervisor::memoryUsed(size_t device) const {
  return executor_->counters().memoryUsed[device].load(std::memory_order_relaxed) + accounts_->contextInLimit(device);
}

void Supervisor::sendStats() {
  reportedMemory_ = memoryUsed();
  Json::Array devices;
  const auto& counters = executor_->counters();
  for (size_t i = 0; i < assignment_.devices.size(); ++i)
    devices.push_back(Json::Object{{"uuid", assignment_.devices[i].uuid},
                                   {"memoryUsedBytes", memoryUsed(i)},
                                   {"computeUsedNs", counters.computeUsedNs[i].load(std::memory_order_relaxed)},
                                   {"isMeasured", counters.isMeasured[i].load(std::memory_order_relaxed)}});
  control_.send(Json::Object{{"type", "stats"},
                             {"session", assignment_.session},
                             {"devices", std::move(devices)},
                             {"commands", counters.commands.load(std::memory_order_relaxed)},
                             {"launches", counters.launches.load(std::memory_order_relaxed)},
                             {"waits", counters.waits.load(std::memory_order_relaxed)},
                             {"notParked", executor_->whyNotParked()}});
}

void Supervisor::finish(const std::string& reason, bool ok, bool isParked) {
  log(ok ? LogLevel::Info : LogLevel::Error, "session %s %s: %s", assignment_.session.c_str(),
      isParked ? "is parked" : "ended", reason.c_str());
  // Work of its last moments is counted, too.
  if (executor_ && state_ == State::kConnected) sendStats();
  if (accounts_) accounts_->rest();
  control_.send(Json::Object{{"type", "closed"}, {"session", assignment_.session}, {"reason", reason}, {"ok", ok}});
  exitStatus_ = ok ? 0 : 3;
  over_ = true;
}

}  // namespace millpond::worker
