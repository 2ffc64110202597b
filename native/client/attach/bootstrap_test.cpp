// SPDX-License-Identifier: Apache-2.0
#include "client/attach/bootstrap.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <map>

#include "base/json.h"
#include "base/log.h"
#include "testing/check.h"
#include "testing/servers/http_server.h"
#include "testing/stderr_capture.h"

using namespace millpond;
using namespace millpond::client;
using millpond::testing::HttpTestServer;

namespace {

// Canned answers by method, each used once; the last one is repeated.
class Pool {
 public:
  Pool() : server_([this](const HttpTestServer::Request& request) { return answer(request); }) {}
  void onRaw(const std::string& method, std::vector<std::string> answers) {
    std::lock_guard lock(mutex_);
    answers_["/millpond.v1." + method] = std::move(answers);
  }
  void on(const std::string& method, const std::string& body) { onRaw(method, {HttpTestServer::json(200, body)}); }
  std::string url() const { return server_.url(); }
  /// The methods called so far, in order, without the package.
  std::string calls() const {
    std::string all;
    for (const auto& request : server_.requests())
      all += (all.empty() ? "" : " ") + request.path.substr(request.path.find('/', 1) + 1);
    return all;
  }
  Json request(size_t i) const { return *Json::parse(server_.requests().at(i).body); }
  std::string head(size_t i) const { return server_.requests().at(i).head; }

 private:
  std::string answer(const HttpTestServer::Request& request) {
    std::lock_guard lock(mutex_);
    auto& answers = answers_[request.path];
    if (answers.empty()) return HttpTestServer::json(404, "");
    std::string first = answers.front();
    if (answers.size() > 1) answers.erase(answers.begin());
    return first;
  }
  std::mutex mutex_;
  std::map<std::string, std::vector<std::string>> answers_;
  HttpTestServer server_;
};

std::string claim(const std::string& state, const std::string& reason, int version) {
  return R"({"claim":{"name":"claim-1","state":"CLAIM_STATE_)" + state + "\"" +
         (reason.empty() ? "" : ",\"reason\":\"" + reason + "\"") + ",\"version\":\"" + std::to_string(version) +
         "\"}}";
}

Environment environmentFor(const Pool& pool) {
  Environment e;
  e.controller = pool.url();
  e.token = "secret";
  e.bootId = "boot-1";
  e.program = "vectoradd";
  e.user = "ann";
  e.host = "box";
  e.pid = 77;
  return e;
}

// A pool in which everything succeeds, with the worker's socket at an existing path.
void allWell(Pool& pool) {
  pool.on("ClaimService/CreateClaim", claim("BOUND", "", 1));
  pool.on("ClaimService/WaitClaim", claim("BOUND", "", 1));
  pool.on("ClaimService/CreateTicket", R"({"ticket":"mpt1.a.b","agentUrl":")" + pool.url() + R"(","session":"s-1"})");
  pool.on("NodeService/OpenSession",
          R"({"session":"s-1","unixPath":"/dev/null","tcpHost":"127.0.0.1","tcpPort":40123,"bootId":"boot-1"})");
  pool.on("ClaimService/ReleaseClaim", "{}");
}

Result<Attachment> attachTo(const Environment& environment) {
  auto config = AttachConfig::from(environment);
  CHECK(bool(config));
  return attach(*config);
}
std::string failureOf(const Environment& environment) {
  const auto attachment = attachTo(environment);
  CHECK(!attachment);
  return attachment.error().message;
}
bool contains(const std::string& text, const std::string& part) {
  if (text.find(part) != std::string::npos) return true;
  std::fprintf(stderr, "'%s' does not contain '%s'\n", text.c_str(), part.c_str());
  return false;
}

}  // namespace

TEST("makes a claim, gets a ticket, opens a session") {
  Pool pool;
  allWell(pool);
  Environment e = environmentFor(pool);
  e.gpus = "2";
  e.memory = "512Mi";
  e.compute = "50";
  e.claimVariables = {{"MILLPOND_QUEUE", "research"}, {"MILLPOND_LABELS", "app=\"web\""}};
  const auto attachment = attachTo(e);
  CHECK(bool(attachment));
  CHECK_EQ(pool.calls(), "CreateClaim CreateTicket OpenSession");
  CHECK_EQ(attachment->ownClaim, "claim-1");
  CHECK_EQ(attachment->endpoint.unixPath, "/dev/null");
  CHECK_EQ(attachment->endpoint.tcpHost, "127.0.0.1");
  CHECK_EQ(attachment->endpoint.tcpPort, 40123);
  CHECK_EQ(attachment->endpoint.ticket, "mpt1.a.b");
  CHECK_EQ(attachment->endpoint.session, "s-1");
  CHECK_EQ(attachment->endpoint.program, "vectoradd");
  const std::string name = *pool.request(0).find("claim")->find("name")->string();
  CHECK_EQ(pool.request(0).dump(),
           R"({"claim":{"name":")" + name +
               R"(","gpus":2,"memoryBytes":"536870912","computePercent":50,"owner":"ann@box:77 vectoradd",)"
               R"("leaseSeconds":15,"sessionBound":true,"clientHost":"boot-1"},)"
               R"("variables":{"MILLPOND_QUEUE":"research","MILLPOND_LABELS":"app=\"web\""}})");
  CHECK(contains(pool.head(0), "Authorization: Bearer secret"));
  CHECK_EQ(pool.request(1).dump(), R"({"claim":"claim-1","clientHost":"boot-1","clientPid":77,"program":"vectoradd"})");
  CHECK_EQ(pool.request(2).dump(), R"({"ticket":"mpt1.a.b","transport":"auto"})");
  CHECK(pool.head(2).find("Authorization") == std::string::npos);
}

TEST("waits for the claim, whatever changes meanwhile, and releases nothing") {
  Pool pool;
  allWell(pool);
  pool.on("ClaimService/CreateClaim", claim("PENDING", "0 of 2 devices free", 1));
  pool.onRaw(
      "ClaimService/WaitClaim",
      {HttpTestServer::json(200, claim("PENDING", "0 of 2 devices free", 2)), HttpTestServer::json(503, "x"), "",
       HttpTestServer::json(200, claim("PENDING", "position 1", 3)), HttpTestServer::json(200, claim("BOUND", "", 4))});
  Environment e = environmentFor(pool);
  e.memory = "512Mi";
  setLogLevel(LogLevel::Warn);
  const std::string told = millpond::testing::captured([&] { CHECK(bool(attachTo(e))); });
  CHECK(
      told.starts_with("millpond: warn: waiting for 1 vGPU with 512 MiB (claim-1): 0 of 2 devices free\n"
                       "millpond: warn: waiting for 1 vGPU with 512 MiB (claim-1): position 1\n"
                       "millpond: warn: claim-1 is bound after "));
  CHECK_EQ(std::count(told.begin(), told.end(), '\n'), 3);
  CHECK_EQ(pool.calls(), "CreateClaim WaitClaim WaitClaim WaitClaim WaitClaim WaitClaim CreateTicket OpenSession");
  CHECK_EQ(pool.request(1).dump(), R"({"name":"claim-1","knownVersion":"1","timeoutSeconds":10})");
  CHECK_EQ(pool.request(5).dump(), R"({"name":"claim-1","knownVersion":"3","timeoutSeconds":10})");
}

TEST("a dormant claim is woken, waited for, and asked for again when it went back to sleep before its ticket") {
  Pool pool;
  allWell(pool);
  pool.onRaw("ClaimService/WaitClaim", {HttpTestServer::json(200, claim("DORMANT", "no program uses it", 1)),
                                        HttpTestServer::json(200, claim("PENDING", "0 of 2 devices free", 2)),
                                        HttpTestServer::json(200, claim("BOUND", "", 3)),
                                        HttpTestServer::json(200, claim("DORMANT", "no program uses it", 4)),
                                        HttpTestServer::json(200, claim("BOUND", "", 5))});
  const std::string ticket = R"({"ticket":"mpt1.a.b","agentUrl":")" + pool.url() + R"(","session":"s-1"})";
  const std::string lost = R"({"code":"failed_precondition","message":"it is dormant [MILLPOND_E_CLAIM_NOT_BOUND]"})";
  pool.onRaw("ClaimService/CreateTicket", {HttpTestServer::json(400, lost), HttpTestServer::json(200, ticket)});
  Environment e = environmentFor(pool);
  e.claim = "claim-1";
  const auto attachment = attachTo(e);
  CHECK(bool(attachment));
  CHECK_EQ(pool.calls(), "WaitClaim WaitClaim WaitClaim CreateTicket WaitClaim WaitClaim CreateTicket OpenSession");
  CHECK(!pool.request(0).find("wake"));
  for (const size_t i : {1u, 2u, 4u, 5u}) CHECK(pool.request(i).dump().ends_with(R"("wake":true})"));
  CHECK_EQ(attachment->ownClaim, "");
}

TEST("who had devices before says which, and only when it wakes the claim") {
  Pool pool;
  allWell(pool);
  pool.onRaw("ClaimService/WaitClaim",
             {HttpTestServer::json(200, claim("DORMANT", "", 1)), HttpTestServer::json(200, claim("BOUND", "", 2))});
  Environment e = environmentFor(pool);
  e.claim = "claim-1";
  auto config = AttachConfig::from(e);
  CHECK(bool(config));
  config->toldModels = {"Small GPU", "Large GPU"};
  config->wasLocal = true;
  CHECK(bool(attach(*config)));
  CHECK_EQ(pool.request(0).dump(), R"({"name":"claim-1","knownVersion":"0","timeoutSeconds":0})");
  CHECK(pool.request(1).dump().ends_with(R"("wake":true,"toldModels":["Small GPU","Large GPU"],"toldHost":")" +
                                         e.bootId + "\"}"));
}

TEST("a claim that is taken back before each ticket is given up") {
  Pool pool;
  allWell(pool);
  pool.onRaw("ClaimService/CreateTicket",
             {HttpTestServer::json(403, R"({"message":"it was taken away [MILLPOND_E_TICKET_STALE]"})")});
  Environment e = environmentFor(pool);
  e.claim = "claim-1";
  CHECK(contains(failureOf(e), "it was taken away"));
}

TEST("attaches to a claim by name and never ends it") {
  Pool pool;
  allWell(pool);
  Environment e = environmentFor(pool);
  e.claim = "claim-1";
  const auto attachment = attachTo(e);
  CHECK(bool(attachment));
  CHECK_EQ(attachment->ownClaim, "");
  CHECK_EQ(pool.calls(), "WaitClaim CreateTicket OpenSession");
  CHECK_EQ(pool.request(0).dump(), R"({"name":"claim-1","knownVersion":"0","timeoutSeconds":0})");
  pool.onRaw("ClaimService/CreateTicket", {HttpTestServer::json(403, R"({"code":"x","message":"no [MILLPOND_E_X]"})")});
  CHECK_EQ(failureOf(e), "no [MILLPOND_E_X]");
  CHECK(pool.calls().find("ReleaseClaim") == std::string::npos);
}

TEST("releases its own claim when it cannot be used") {
  Pool pool;
  allWell(pool);
  pool.onRaw("NodeService/OpenSession",
             {HttpTestServer::json(400, R"({"code":"x","message":"ticket expired. Ask anew [MILLPOND_E_TICKET]"})")});
  CHECK_EQ(failureOf(environmentFor(pool)), "ticket expired. Ask anew [MILLPOND_E_TICKET]");
  CHECK_EQ(pool.calls(), "CreateClaim CreateTicket OpenSession ReleaseClaim");
  CHECK_EQ(pool.request(3).dump(), R"({"name":"claim-1"})");

  allWell(pool);
  const auto config = AttachConfig::from(environmentFor(pool));
  const auto attachment = attach(*config);
  CHECK(bool(attachment));
  releaseOwnClaim(*config, *attachment);
  CHECK(pool.calls().ends_with("OpenSession ReleaseClaim"));
}

TEST("of several controllers the one that leads is found, and found again when another takes over") {
  Pool follower;
  Pool leader;
  const std::string elsewhere = R"({"code":"unavailable","message":"another leads [MILLPOND_E_NOT_LEADER]"})";
  const std::string notLeader = HttpTestServer::json(503, elsewhere);
  for (const char* method : {"CreateClaim", "WaitClaim", "ReleaseClaim"})
    follower.onRaw(std::string("ClaimService/") + method, {notLeader});
  allWell(leader);
  Environment e = environmentFor(follower);
  e.controller = "http://127.0.0.1:1/," + follower.url() + "," + leader.url();
  // It is the leader until the claim exists, and a follower afterwards.
  leader.on("ClaimService/CreateClaim", claim("PENDING", "0 of 1 devices free", 1));
  leader.onRaw("ClaimService/WaitClaim", {notLeader, HttpTestServer::json(200, claim("BOUND", "", 2))});
  follower.onRaw("ClaimService/WaitClaim", {"", notLeader});
  auto attachment = attachTo(e);
  CHECK(bool(attachment));
  CHECK_EQ(follower.calls(), "CreateClaim WaitClaim");
  CHECK_EQ(leader.calls(), "CreateClaim WaitClaim WaitClaim CreateTicket OpenSession");
  // The claim is released, whichever controller receives the request first.
  releaseOwnClaim(*AttachConfig::from(e), *attachment);
  CHECK(leader.calls().ends_with("OpenSession ReleaseClaim"));
}

TEST("an agent that is just restarting is tried again, with another ticket") {
  Pool pool;
  allWell(pool);
  const std::string good = HttpTestServer::json(200, R"({"session":"s-1","unixPath":"/dev/null","bootId":"boot-1"})");
  pool.onRaw("NodeService/OpenSession", {"", HttpTestServer::json(503, "{}"), good});
  CHECK(bool(attachTo(environmentFor(pool))));
  CHECK_EQ(pool.calls(), "CreateClaim CreateTicket OpenSession CreateTicket OpenSession CreateTicket OpenSession");
  // All of them for the one session.
  CHECK(!pool.request(1).find("unopenedSession"));
  for (const size_t i : {3u, 5u}) CHECK_EQ(*pool.request(i).find("unopenedSession")->string(), "s-1");
}

TEST("an agent that was ended after it took a ticket is asked for another session") {
  Pool pool;
  allWell(pool);
  const std::string used =
      HttpTestServer::json(409, R"({"code":"x","message":"it was used before [MILLPOND_E_TICKET_USED]"})");
  const std::string good = HttpTestServer::json(200, R"({"session":"s-1","unixPath":"/dev/null","bootId":"boot-1"})");
  pool.onRaw("NodeService/OpenSession", {"", used, good});
  CHECK(bool(attachTo(environmentFor(pool))));
  CHECK_EQ(pool.calls(), "CreateClaim CreateTicket OpenSession CreateTicket OpenSession CreateTicket OpenSession");
  CHECK_EQ(*pool.request(3).find("unopenedSession")->string(), "s-1");
  CHECK(!pool.request(5).find("unopenedSession"));

  // Without an earlier attempt, it is an error of its own.
  pool.onRaw("NodeService/OpenSession", {used});
  CHECK_EQ(failureOf(environmentFor(pool)), "it was used before [MILLPOND_E_TICKET_USED]");
}

TEST("a controller that is being started again is waited for, and the claim is made once") {
  Pool pool;
  allWell(pool);
  pool.onRaw("ClaimService/CreateClaim",
             {"", HttpTestServer::json(503, "{}"),
              HttpTestServer::json(409, R"({"code":"x","message":"it is there [MILLPOND_E_ALREADY_EXISTS]"})")});
  const std::string named = R"({"claim":{"name":"NAME","state":"CLAIM_STATE_BOUND","version":"1"}})";
  pool.onRaw("ClaimService/WaitClaim", {"", HttpTestServer::json(200, named)});
  CHECK(!attachTo(environmentFor(pool)));  // the name differs
  CHECK_EQ(pool.calls(), "CreateClaim CreateClaim CreateClaim WaitClaim WaitClaim ReleaseClaim");
  const std::string name = *pool.request(0).find("claim")->find("name")->string();
  CHECK(name.starts_with("claim-"));
  CHECK_EQ(name.size(), size_t{22});
  CHECK_EQ(pool.request(0).dump(), pool.request(1).dump());
  CHECK_EQ(pool.request(0).dump(), pool.request(2).dump());
  CHECK_EQ(*pool.request(3).find("name")->string(), name);
  CHECK_EQ(*pool.request(5).find("name")->string(), name);
}

TEST("a claim of another is not taken for one's own") {
  Pool pool;
  allWell(pool);
  pool.onRaw("ClaimService/CreateClaim",
             {HttpTestServer::json(409, R"({"code":"x","message":"no [MILLPOND_E_ALREADY_EXISTS]"})")});
  CHECK_EQ(failureOf(environmentFor(pool)), "no [MILLPOND_E_ALREADY_EXISTS]");
  CHECK_EQ(pool.calls(), "CreateClaim");
}

TEST("waiting for an unreachable controller is logged, and times out") {
  Pool pool;
  Environment e = environmentFor(pool);
  e.waitTimeout = "2";
  pool.onRaw("ClaimService/CreateClaim", {""});
  setLogLevel(LogLevel::Warn);
  const std::string told =
      millpond::testing::captured([&] { CHECK(failureOf(e).ends_with("[MILLPOND_E_UNREACHABLE]")); });
  CHECK(contains(told, "[MILLPOND_E_UNREACHABLE]; trying again for up to 2 s\n"));
  CHECK_EQ(std::count(told.begin(), told.end(), '\n'), 1);
  e.claim = "claim-1";
  pool.onRaw("ClaimService/WaitClaim", {"", HttpTestServer::json(200, claim("RELEASED", "", 1))});
  CHECK(failureOf(e).ends_with("[MILLPOND_E_CLAIM_ENDED]"));
}

TEST("gives up when the time is over, and says why there was no GPU") {
  Pool pool;
  allWell(pool);
  pool.on("ClaimService/CreateClaim", claim("PENDING", "largest free: 3 GiB", 1));
  pool.on("ClaimService/WaitClaim", claim("PENDING", "largest free: 2 GiB", 2));
  Environment e = environmentFor(pool);
  e.waitTimeout = "1";
  const std::string message = failureOf(e);
  CHECK(contains(message, "no GPU within 1 s"));
  CHECK(contains(message, "largest free: 2 GiB"));
  CHECK(message.ends_with("[MILLPOND_E_WAIT_TIMEOUT]"));
  CHECK(pool.calls().ends_with(" ReleaseClaim"));
}

TEST("a claim that ended is said with its reason") {
  Pool pool;
  allWell(pool);
  pool.on("ClaimService/CreateClaim", claim("FAILED", "node-a vanished", 1));
  CHECK(contains(failureOf(environmentFor(pool)), "node-a vanished"));
  Environment e = environmentFor(pool);
  e.claim = "claim-1";
  pool.on("ClaimService/WaitClaim", claim("RELEASED", "", 1));
  CHECK(failureOf(e).ends_with("[MILLPOND_E_CLAIM_ENDED]"));
}

TEST("which way to the worker") {
  Pool pool;
  allWell(pool);
  Environment e = environmentFor(pool);
  const auto open = [&](const char* transport, const char* unixPath, int port, const char* bootId) {
    if (transport) e.transport = transport;
    pool.on("NodeService/OpenSession", R"({"session":"s-1","unixPath":")" + std::string(unixPath) +
                                           R"(","tcpHost":"10.0.0.1","tcpPort":)" + std::to_string(port) +
                                           R"(,"bootId":")" + bootId + "\"}");
    return attachTo(e);
  };
  CHECK_EQ(open("auto", "/dev/null", 0, "boot-1")->endpoint.unixPath, "/dev/null");
  CHECK_EQ(open("auto", "/dev/null", 0, "boot-1")->endpoint.tcpHost, "");
  CHECK_EQ(open("auto", "/dev/null", 5, "boot-2")->endpoint.unixPath, "");
  CHECK_EQ(open("auto", "/nowhere/sock", 5, "boot-1")->endpoint.tcpHost, "10.0.0.1");
  CHECK_EQ(open("tcp", "/dev/null", 5, "boot-1")->endpoint.unixPath, "");
  CHECK_EQ(open("shm", "/dev/null", 5, "boot-1")->endpoint.tcpHost, "");
  CHECK(contains(open("auto", "/nowhere/sock", 0, "boot-1").error().message, "/nowhere/sock cannot be reached"));
  CHECK(contains(open("shm", "/dev/null", 5, "boot-2").error().message, "the worker is on another machine"));
  CHECK(contains(open("tcp", "/dev/null", 0, "boot-1").error().message, "[MILLPOND_E_TRANSPORT_UNAVAILABLE]"));
}

TEST("a controller that misbehaves is named") {
  Pool pool;
  Environment e = environmentFor(pool);
  e.waitTimeout = "1";
  const auto with = [&](const std::string& bytes) {
    allWell(pool);
    pool.onRaw("ClaimService/CreateClaim", {bytes});
    return failureOf(e);
  };
  CHECK(contains(with("garbage"), "the controller at http://127.0.0.1:"));
  CHECK(with("garbage").ends_with("[MILLPOND_E_UNREACHABLE]"));
  CHECK(with("").ends_with("[MILLPOND_E_UNREACHABLE]"));
  CHECK(contains(with(HttpTestServer::json(200, "{\"claim\":")), "not JSON"));
  CHECK(with(HttpTestServer::json(200, "[]")).ends_with("[MILLPOND_E_UNREACHABLE]"));
  CHECK(contains(with(HttpTestServer::json(200, "{}")), "no claim with a name"));
  CHECK(contains(with(HttpTestServer::json(200, R"({"claim":{"name":"claim-1"}})")), "no claim with a state"));
  CHECK(
      contains(with(HttpTestServer::json(200, R"({"claim":{"name":"c","state":"CLAIM_STATE_NEW"}})")), "claim state"));
  CHECK(contains(with(HttpTestServer::json(200, R"({"claim":{"name":"c","state":"CLAIM_STATE_BOUND","version":"x"}})")),
                 "claim version"));
  CHECK(contains(with(HttpTestServer::json(500, "<html>")), "with status 500 and no explanation"));
  CHECK_EQ(with(HttpTestServer::json(401, R"({"code":"unauthenticated","message":"token is wrong [MILLPOND_E_T]"})")),
           "token is wrong [MILLPOND_E_T]");
  allWell(pool);
  pool.on("ClaimService/CreateTicket", R"({"ticket":"t","agentUrl":"https://x#sha256=5","session":"s"})");
  CHECK(contains(failureOf(e), "has a fingerprint that is not"));
  pool.on("ClaimService/CreateTicket", R"({"ticket":"t","agentUrl":"http://10.0.0.7:7171","session":"s"})");
  CHECK(contains(failureOf(e), "its reply would not be encrypted"));
  pool.on("ClaimService/CreateTicket", R"({"agentUrl":"http://x","session":"s"})");
  CHECK(contains(failureOf(e), "no ticket"));
  allWell(pool);
  pool.on("NodeService/OpenSession", R"({"session":"other","unixPath":"/dev/null","bootId":"boot-1"})");
  CHECK(contains(failureOf(e), "session of the ticket"));
  pool.on("NodeService/OpenSession", R"({"session":"s-1","tcpHost":"h","tcpPort":70000})");
  CHECK(contains(failureOf(e), "usable TCP port"));
  pool.on("NodeService/OpenSession", R"({"session":"s-1","tcpHost":"h","tcpPort":7000,"linkSecret":"x"})");
  CHECK(contains(failureOf(e), "secret that can be used"));
}

TEST("connections to the worker are encrypted where the agent says so") {
  Pool pool;
  allWell(pool);
  Environment e = environmentFor(pool);
  const auto secretOf = [&](const std::string& more) {
    pool.on("NodeService/OpenSession",
            R"({"session":"s-1","tcpHost":"10.0.0.1","tcpPort":5,"bootId":"x")" + more + "}");
    return attachTo(e)->endpoint.secret;
  };
  CHECK(!secretOf(""));
  CHECK(!secretOf(R"(,"linkSecret":"")"));
  const std::string digits(64, '7');
  CHECK(secretOf(R"(,"linkSecret":")" + digits + "\"") == parseHex32(digits));
}

TEST("without encryption, the worker's user is trusted on loopback, beside those of the environment") {
  Pool pool;
  allWell(pool);
  Environment e = environmentFor(pool);
  const auto usersWith = [&](const std::string& more) {
    pool.on("NodeService/OpenSession", R"({"session":"s-1","tcpHost":"h","tcpPort":5,"bootId":"x")" + more + "}");
    return attachTo(e)->endpoint.users;
  };
  CHECK(usersWith("") == TrustedUsers{0});
  CHECK(usersWith(R"(,"workerUser":1900000007)") == TrustedUsers{1'900'000'007});
  e.trustedUsers = "1000";
  CHECK((usersWith(R"(,"workerUser":7)") == TrustedUsers{1000, 7}));
  pool.on("NodeService/OpenSession", R"({"session":"s-1","tcpHost":"h","tcpPort":7000,"workerUser":4294967296})");
  CHECK(contains(failureOf(e), "user of the worker"));
}

TEST("straight to a worker") {
  Environment e;
  e.worker = "unix:/run/data.sock";
  e.ticket = "t";
  e.controller = "ignored";
  auto attachment = attachTo(e);
  CHECK_EQ(attachment->endpoint.unixPath, "/run/data.sock");
  CHECK_EQ(attachment->endpoint.ticket, "t");
  CHECK_EQ(AttachConfig::from(e)->worker->graceSeconds, 60u);
  e.reconnectGrace = "0";
  CHECK_EQ(AttachConfig::from(e)->worker->graceSeconds, 0u);
  e.worker = "tcp:[::1]:80";
  attachment = attachTo(e);
  CHECK_EQ(attachment->endpoint.tcpHost, "::1");
  CHECK_EQ(attachment->endpoint.tcpPort, 80);
  e.worker = "tcp:localhost:4000";
  CHECK_EQ(attachTo(e)->endpoint.tcpPort, 4000);
  for (const char* bad :
       {"", "unix:", "unix:rel", "tcp:host", "tcp:host:0", "tcp::1", "tcp:host:99999", "tcp:a/b:1", "x"}) {
    e.worker = bad;
    CHECK(!AttachConfig::from(e));
  }
  e.worker = "tcp:localhost:4000";
  e.transport = "shm";
  CHECK(contains(AttachConfig::from(e).error().message, "does not fit MILLPOND_WORKER"));
}
