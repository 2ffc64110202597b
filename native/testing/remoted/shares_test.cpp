// SPDX-License-Identifier: Apache-2.0
// Programs of several sessions on one software GPU: the GPU time of each, as measured by their gate.
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <numeric>
#include <thread>

#include "testing/remoted.h"
#include "worker/gate/gate_file.h"

using namespace millpond::testing;
namespace gate = millpond::worker::gate;

namespace {

/// spin(u32 rounds): a thread that loops.
constexpr char kModule[] = R"(.version 7.0
.target sm_70
.address_size 64
.visible .entry spin(.param .u32 rounds)
{
  .reg .pred %p<2>;
  .reg .u32 %r<4>;
  ld.param.u32 %r1, [rounds];
again:
  sub.u32 %r1, %r1, 1;
  setp.ne.u32 %p1, %r1, 0;
  @%p1 bra again;
  ret;
}
)";

/// Some hundred microseconds.
constexpr unsigned kRounds = 30'000;

constexpr int64_t kLeastLookNs = 300'000'000;
constexpr int64_t kLongestLookNs = 20'000'000'000;

/// Launches forever, with some kernels queued at all times.
void keepBusy() {
  begin();
  CUmodule module = nullptr;
  CUfunction spin = nullptr;
  OK(CU(cuModuleLoadData)(&module, kModule));
  OK(CU(cuModuleGetFunction)(&spin, module, "spin"));
  std::array<CUevent, 2> events{};
  for (CUevent& event : events) OK(CU(cuEventCreate)(&event, CU_EVENT_DISABLE_TIMING));
  unsigned rounds = kRounds;
  void* parameters[] = {&rounds};
  for (unsigned turn = 0;; ++turn) {
    for (int i = 0; i < 16; ++i) OK(CU(cuLaunchKernel)(spin, 1, 1, 1, 1, 1, 1, 0, nullptr, parameters, nullptr));
    OK(CU(cuEventRecord)(events[turn % 2], nullptr));
    OK(CU(cuEventSynchronize)(events[(turn + 1) % 2]));
  }
}

/// A worker and its program.
class Tenant {
 public:
  /// `claim`: the claim of the session; empty: a claim of its own.
  Tenant(const std::string& gates, const std::string& uuid, const std::string& name, const char* serviceClass,
         unsigned percent, const std::string& claim)
      : directory_(gates + "/" + name), uuid_(uuid), class_(serviceClass) {
    std::filesystem::create_directory(directory_);
    std::string together;
    if (!claim.empty()) {
      const std::string folder = gates + "/claim-" + claim;
      std::filesystem::create_directory(folder);
      together = R"("claimDirectory":")" + folder + R"(",)";
    }
    worker_ = std::make_unique<WorkerProcess>(
        directory_, std::vector<std::string>{"--gates", gates, "--assign",
                                             R"({"session":"s","ticket":"t","expires":4000000000,)" + together +
                                                 R"("devices":)" + devices(percent) + "}"});
  }
  ~Tenant() {
    if (program_ > 0) {
      ::kill(program_, SIGKILL);
      ::waitpid(program_, nullptr, 0);
    }
    std::string said;
    worker_->wait(said);
  }
  Tenant(const Tenant&) = delete;
  Tenant& operator=(const Tenant&) = delete;

  void begin(const std::function<void()>& body = keepBusy) {
    std::fflush(nullptr);
    program_ = ::fork();
    CHECK(program_ >= 0);
    if (program_ != 0) return;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // it would never end if a check has failed
    libraryPath() = MILLPOND_CLIENT_LIBRARY;
    ::setenv("MILLPOND_LOG", "off", 0);
    ::setenv("MILLPOND_WORKER", worker_->address(Way::kSharedMemory).c_str(), 1);
    ::setenv("MILLPOND_TICKET", "t", 1);
    body();
    ::_exit(0);
  }
  void killWorker() { ::kill(worker_->pid(), SIGKILL); }
  /// Like its agent.
  void resize(unsigned percent) {
    const int control = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::snprintf(address.sun_path, sizeof(address.sun_path), "%s/control", directory_.c_str());
    CHECK(::connect(control, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0);
    const std::string message = R"({"type":"resize","session":"s","revision":1,"devices":)" + devices(percent) + "}\n";
    CHECK(::send(control, message.data(), message.size(), 0) == static_cast<ssize_t>(message.size()));
    std::string heard;
    std::array<char, 4096> piece;
    while (heard.find("\"resized\"") == std::string::npos) {
      const ssize_t n = ::recv(control, piece.data(), piece.size(), 0);
      CHECK(n > 0);
      heard.append(piece.data(), static_cast<size_t>(n));
    }
    CHECK(heard.find("\"ok\":true") != std::string::npos);
    ::close(control);
  }

 private:
  std::string devices(unsigned percent) const {
    return R"([{"uuid":")" + uuid_ + R"(","memoryBytes":16777216,"computePercent":)" + std::to_string(percent) +
           R"(,"serviceClass":")" + class_ + R"("}])";
  }

  const std::string directory_;
  const std::string uuid_;
  const std::string class_;
  std::unique_ptr<WorkerProcess> worker_;
  pid_t program_ = -1;
};

class SharedGpu {
 public:
  SharedGpu() {
    CHECK(::mkdtemp(directory_.data()) != nullptr);
    ::setenv("MILLPOND_SOFTGPU_STATE", directory_.c_str(), 1);
    ::setenv("MILLPOND_SOFTGPU_SEED", "test", 1);
    ::setenv("MILLPOND_SOFTGPU_DEVICES", "1", 1);
    ::setenv("MILLPOND_SOFTGPU_MEMORY", "64Mi", 1);
    uuid_ = WorkerProcess::deviceUuids().at(0);
  }
  ~SharedGpu() {
    tenants_.clear();
    std::filesystem::remove_all(directory_);
  }

  Tenant& add(const char* serviceClass, unsigned percent, const std::string& claim = "") {
    return *tenants_.emplace_back(
        std::make_unique<Tenant>(directory_, uuid_, std::to_string(tenants_.size()), serviceClass, percent, claim));
  }
  /// The GPU time of the sessions so far, in the order of their programs' start.
  std::vector<int64_t> used() {
    std::vector<int64_t> out;
    auto file = gate::GateFile::open(directory_ + "/" + uuid_);
    CHECK(bool(file));
    const gate::GateFile::Locked locked(**file);
    for (const gate::Slot& slot : locked.slicer.table().slots)
      if (slot.state != gate::Slot::State::kFree) out.push_back(slot.usedNs);
    return out;
  }
  /// Waits until `sessions` sessions have had work completed.
  void awaitWork(size_t sessions) {
    const auto isAtWork = [](const std::vector<int64_t>& all) {
      return std::all_of(all.begin(), all.end(), [](int64_t ns) { return ns > 5'000'000; });
    };
    for (auto all = used(); all.size() != sessions || !isAtWork(all); all = used())
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  /// Waits until each one's fraction of the GPU's time, counted from now, satisfies `isRight`. The load of the machine
  /// matters less and less; shares that are not enforced never become right.
  void settles(const std::function<bool(const std::vector<double>&)>& isRight, const char* what) {
    const auto from = std::chrono::steady_clock::now();
    const std::vector<int64_t> before = used();
    std::vector<double> parts;
    for (int64_t worked = 0; worked < kLongestLookNs;) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      const std::vector<int64_t> after = used();
      const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - from;
      CHECK_EQ(after.size(), before.size());
      parts.clear();
      worked = 0;
      for (size_t i = 0; i < after.size(); ++i) {
        worked += after[i] - before[i];
        parts.push_back(static_cast<double>(after[i] - before[i]) / took.count());
      }
      if (worked >= kLeastLookNs && isRight(parts)) return;
    }
    std::string is;
    for (const double part : parts) is += " " + std::to_string(part);
    fail(__FILE__, __LINE__, std::string(what) + ", but the parts are" + is);
  }

 private:
  std::string directory_ = (std::filesystem::temp_directory_path() / "millpond-shares-XXXXXX").string();
  std::string uuid_;
  std::vector<std::unique_ptr<Tenant>> tenants_;
};

using Parts = std::vector<double>;
bool isWithin(double value, double least, double most) { return value >= least && value <= most; }

}  // namespace

TEST("two programs that want all have their shares of a GPU, and other ones after a resize") {
  SharedGpu gpu;
  Tenant& small = gpu.add("guaranteed", 30);
  Tenant& large = gpu.add("guaranteed", 70);
  small.begin();
  gpu.awaitWork(1);
  large.begin();
  gpu.awaitWork(2);
  gpu.settles([](const Parts& p) { return p[0] < 0.33 && p[1] < 0.73 && isWithin(p[1] / p[0], 1.8, 3); }, "30 to 70");
  small.resize(10);
  large.resize(90);
  gpu.settles([](const Parts& p) { return p[0] < 0.13 && isWithin(p[1] / p[0], 5.5, 12); }, "10 to 90");
}

TEST("a guaranteed program alone has its share and no more") {
  SharedGpu gpu;
  gpu.add("guaranteed", 20).begin();
  gpu.awaitWork(1);
  gpu.settles([](const Parts& p) { return isWithin(p[0], 0.1, 0.22); }, "20 of 100");
}

TEST("the programs of a claim have its share together, beside another's and alone") {
  SharedGpu gpu;
  constexpr size_t kMany = 4;
  for (size_t i = 0; i < kMany; ++i) gpu.add("guaranteed", 20, "many").begin();
  gpu.awaitWork(kMany);
  const auto sum = [](const Parts& p) { return std::accumulate(p.begin(), p.begin() + kMany, 0.0); };
  gpu.settles([&](const Parts& p) { return isWithin(sum(p), 0.1, 0.22); }, "20 of 100 for all of them");
  gpu.add("guaranteed", 60).begin();
  gpu.awaitWork(kMany + 1);
  gpu.settles([&](const Parts& p) { return sum(p) < 0.22 && isWithin(p[kMany] / sum(p), 2.2, 4); }, "20 for all to 60");
}

TEST("a burstable program has what is idle, a best-effort one what all others leave") {
  SharedGpu gpu;
  // A session that is present and idle.
  gpu.add("guaranteed", 80).begin([] {
    begin();
    ::pause();
  });
  while (gpu.used().empty()) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  gpu.add("burstable", 20).begin();
  while (gpu.used().size() < 2) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  gpu.settles([](const Parts& p) { return p[1] > 0.5; }, "all for the burstable one");

  SharedGpu other;
  other.add("guaranteed", 40).begin();
  other.awaitWork(1);
  other.add("best-effort", 1).begin();
  other.awaitWork(2);
  other.settles([](const Parts& p) { return p[0] < 0.43 && isWithin(p[1] / p[0], 0.8, 2); }, "40, and the rest");
}

TEST("a worker that is killed at work leaves its part to the others at once") {
  SharedGpu gpu;
  Tenant& victim = gpu.add("burstable", 50);
  victim.begin([] {
    ::close(2);  // it reports that it has lost its device
    keepBusy();
  });
  gpu.add("burstable", 50).begin();
  gpu.awaitWork(2);
  victim.killWorker();
  while (gpu.used().size() > 1) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  // Alone it need not be measured; a third session causes both to be measured, and gets half of the GPU.
  gpu.add("burstable", 50).begin();
  gpu.awaitWork(2);
  gpu.settles([](const Parts& p) { return isWithin(p[1] / p[0], 0.7, 1.5); }, "half for each");
}
