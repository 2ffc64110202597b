// SPDX-License-Identifier: Apache-2.0
#include "client/attach/attach_config.h"

#include <errno.h>
#include <unistd.h>

#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <memory>

#include "base/errors/coded_error.h"
#include "client/attach/gen/claim_variables.h"
#include "protocol/usable_cpus.h"
#include "protocol/wire.h"

namespace millpond::client {

namespace {

constexpr uint64_t kMebibyte = uint64_t{1} << 20;
constexpr uint64_t kMaxMemory = uint64_t{1} << 50;
constexpr uint64_t kMaxUser = 4'294'967'294;

std::optional<std::string> variable(const char* name) {
  const char* value = std::getenv(name);
  if (!value || !*value) return std::nullopt;
  return std::string(value);
}

std::string bootIdOfThisMachine() {
  const std::unique_ptr<FILE, int (*)(FILE*)> file(std::fopen("/proc/sys/kernel/random/boot_id", "re"), &std::fclose);
  char text[64] = {};
  if (!file || !std::fgets(text, sizeof text, file.get())) return "";
  std::string id = text;
  while (!id.empty() && id.back() == '\n') id.pop_back();
  return id;
}

Error badVariable(const char* name, const std::string& value, const std::string& remedy) {
  return codedError(codes::kInvalid,
                    std::string(name) + "='" + value.substr(0, 100) + "' is not understood: " + remedy);
}

std::optional<uint64_t> wholeNumber(std::string_view text) {
  uint64_t value = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || stop != text.data() + text.size() || text.empty()) return std::nullopt;
  return value;
}

std::optional<uint64_t> numberBetween(std::string_view text, uint64_t least, uint64_t most) {
  const auto value = wholeNumber(text);
  return value && *value >= least && *value <= most ? value : std::nullopt;
}

bool printable(std::string_view text) {
  for (const char c : text) {
    if (c <= ' ' || c >= 0x7f) return false;
  }
  return true;
}

// Bytes per unit of a size suffix, as parseSize of api/src/units.ts reads it.
std::optional<uint64_t> unitOf(std::string_view suffix) {
  const auto drop = [&](char upper, char lower) {
    const bool there = suffix.ends_with(upper) || suffix.ends_with(lower);
    if (there) suffix.remove_suffix(1);
    return there;
  };
  const bool bytes = drop('B', 'b');
  if (bytes && suffix.empty()) return 1;
  const uint64_t step = drop('I', 'i') ? 1024 : 1000;
  if (suffix.size() != 1) return std::nullopt;
  switch (suffix[0] | 0x20) {
    case 'k': return step;
    case 'm': return step * step;
    case 'g': return step * step * step;
    case 't': return step * step * step * step;
    default: return std::nullopt;
  }
}

// `digits[.digits]` times `unit`, rounded down; none when malformed or over kMaxMemory.
std::optional<uint64_t> scaled(std::string_view number, uint64_t unit) {
  const size_t point = number.find('.');
  const auto whole = wholeNumber(number.substr(0, point));
  if (!whole || *whole > kMaxMemory / unit) return std::nullopt;
  uint64_t value = *whole * unit;
  if (point != std::string_view::npos) {
    const std::string_view digits = number.substr(point + 1);
    const auto fraction = wholeNumber(digits);
    if (!fraction || digits.size() > 9) return std::nullopt;
    uint64_t divisor = 1;
    for (size_t i = 0; i < digits.size(); ++i) divisor *= 10;
    // unit <= 2^40 and fraction < 10^9: the product needs more than 64 bits
    value += static_cast<uint64_t>(static_cast<unsigned __int128>(unit) * *fraction / divisor);
  }
  return value <= kMaxMemory ? std::optional(value) : std::nullopt;
}

// `50%`, `50`, or a fraction with a point, in steps of one percent. Not a bare `1`, which is ambiguous between 100 %
// and 1 %.
std::optional<uint32_t> parsePercent(std::string_view text) {
  if (text == "1") return std::nullopt;
  uint64_t percent = 0;
  if (text.find('.') != std::string_view::npos) {
    const auto billionths = scaled(text, 1'000'000'000);
    if (!billionths || *billionths % 10'000'000 != 0) return std::nullopt;
    percent = *billionths / 10'000'000;
  } else {
    if (text.ends_with('%')) text.remove_suffix(1);
    percent = wholeNumber(text).value_or(0);
  }
  if (percent < 1 || percent > 100) return std::nullopt;
  return static_cast<uint32_t>(percent);
}

Result<TrustedUsers> parseUsers(const std::string& text) {
  TrustedUsers users;
  for (std::string_view rest = text;;) {
    const size_t comma = std::min(rest.find(','), rest.size());
    const auto user = numberBetween(rest.substr(0, comma), 0, kMaxUser);
    if (!user) return badVariable("MILLPOND_TRUSTED_USERS", text, "use user ids, such as 1000, separated by commas");
    users.push_back(static_cast<uid_t>(*user));
    if (comma == rest.size()) return users;
    rest.remove_prefix(comma + 1);
  }
}

Result<Endpoint> parseWorker(const std::string& text) {
  const Error bad = badVariable("MILLPOND_WORKER", text, "use unix:/path/of/data.sock or tcp:host:port");
  Endpoint endpoint;
  if (text.starts_with("unix:")) {
    endpoint.unixPath = text.substr(5);
    if (!endpoint.unixPath.starts_with('/')) return bad;
    return endpoint;
  }
  if (!text.starts_with("tcp:")) return bad;
  // The same rules as in a URL: brackets around IPv6, a valid port.
  auto url = Url::parse("http://" + text.substr(4));
  if (!url || !url->path.empty() || !text.ends_with(":" + std::to_string(url->port))) return bad;
  endpoint.tcpHost = url->host;
  endpoint.tcpPort = url->port;
  return endpoint;
}

// Base URLs, separated by commas.
Result<std::vector<Url>> parseControllers(std::string_view text) {
  std::vector<Url> urls;
  for (;;) {
    const size_t comma = text.find(',');
    auto url = Url::parse(text.substr(0, comma));
    if (!url) return codedError(codes::kInvalid, "MILLPOND_CONTROLLER: " + url.error().message);
    if (url->fingerprint)
      return codedError(codes::kInvalid, "MILLPOND_CONTROLLER: a controller has no fingerprint", "Set MILLPOND_CA.");
    urls.push_back(std::move(*url));
    if (comma == std::string_view::npos) return urls;
    text.remove_prefix(comma + 1);
  }
}

Result<TransportChoice> parseTransport(const std::string& text) {
  if (text == "auto") return TransportChoice::Auto;
  if (text == "shm") return TransportChoice::SharedMemory;
  if (text == "tcp") return TransportChoice::Tcp;
  return badVariable("MILLPOND_TRANSPORT", text, "use auto, shm or tcp");
}

/// Each lane copies on a processor of its own, and the program needs some, too.
uint32_t defaultLanes() {
  const double processors = usableCpus();
  return processors >= 8 ? 4 : processors >= 4 ? 2 : 0;
}

}  // namespace

Environment Environment::ofThisProcess() {
  Environment e;
  e.controller = variable("MILLPOND_CONTROLLER");
  e.authorities = variable("MILLPOND_CA");
  e.token = variable("MILLPOND_TOKEN");
  e.claim = variable("MILLPOND_CLAIM");
  e.gpus = variable("MILLPOND_GPUS");
  e.memory = variable("MILLPOND_MEMORY");
  e.compute = variable("MILLPOND_COMPUTE");
  for (const char* name : kClaimVariables) {
    if (auto value = variable(name)) e.claimVariables.emplace_back(name, std::move(*value));
  }
  e.transport = variable("MILLPOND_TRANSPORT");
  e.waitTimeout = variable("MILLPOND_WAIT_TIMEOUT");
  e.worker = variable("MILLPOND_WORKER");
  e.ticket = variable("MILLPOND_TICKET");
  e.linkSecret = variable("MILLPOND_LINK_SECRET");
  e.reconnectGrace = variable("MILLPOND_RECONNECT_GRACE");
  e.lanes = variable("MILLPOND_LANES");
  e.trustedUsers = variable("MILLPOND_TRUSTED_USERS");
  e.bootId = bootIdOfThisMachine();
  e.program = ::program_invocation_short_name;
  // Not from the user database: a lookup would load more libraries into a foreign process.
  e.user = variable("USER").value_or(variable("LOGNAME").value_or("uid" + std::to_string(::getuid())));
  char host[256] = {};
  if (::gethostname(host, sizeof host - 1) == 0) e.host = host;
  e.pid = ::getpid();
  return e;
}

Result<MemorySize> MemorySize::parse(std::string_view text) {
  const std::string shown(text);
  MemorySize size;
  const size_t end = text.find_first_not_of("0123456789.");
  const std::string_view suffix = end == std::string_view::npos ? "" : text.substr(end);
  const std::string_view number = text.substr(0, end);
  if (suffix == "%" || (suffix.empty() && number.find('.') != std::string_view::npos)) {
    const auto percent = parsePercent(text);
    if (!percent)
      return badVariable("MILLPOND_MEMORY", shown, "a share goes from 1% to 100% (0.01 to 1.0) in steps of 1%");
    size.percent = *percent;
    return size;
  }
  const auto unit = suffix.empty() ? kMebibyte : unitOf(suffix);
  const auto bytes = unit ? scaled(number, *unit) : std::nullopt;
  if (!bytes) {
    return badVariable("MILLPOND_MEMORY", shown,
                       "use a size such as 512Mi, 8G or 8192 (MiB), or a share of the device such as 50% or 0.5");
  }
  if (*bytes < kMebibyte) return badVariable("MILLPOND_MEMORY", shown, "a vGPU has at least 1 MiB");
  size.bytes = *bytes;
  return size;
}

Result<AttachConfig> AttachConfig::from(const Environment& e) {
  AttachConfig config;
  config.bootId = e.bootId;
  config.program = e.program.substr(0, 64);
  config.pid = e.pid;
  config.owner = e.user.substr(0, 64) + "@" + e.host.substr(0, 64) + ":" + std::to_string(e.pid) + " " + config.program;
  if (e.transport) {
    auto transport = parseTransport(*e.transport);
    if (!transport) return transport.error();
    config.transport = *transport;
  }
  if (e.reconnectGrace) {
    const auto seconds = numberBetween(*e.reconnectGrace, 0, 86'400);
    if (!seconds)
      return badVariable("MILLPOND_RECONNECT_GRACE", *e.reconnectGrace,
                         "use whole seconds from 0 to 86400; 0 ends the session with its connection");
    config.reconnectGraceSeconds = static_cast<uint32_t>(*seconds);
  }
  config.lanes = defaultLanes();
  if (e.lanes) {
    const auto lanes = numberBetween(*e.lanes, 0, wire::kMaxLanes);
    if (!lanes)
      return badVariable("MILLPOND_LANES", *e.lanes,
                         "use a whole number from 0 to " + std::to_string(wire::kMaxLanes) + "; 0: none");
    config.lanes = static_cast<uint32_t>(*lanes);
  }
  if (e.trustedUsers) {
    auto users = parseUsers(*e.trustedUsers);
    if (!users) return users.error();
    config.trust.users = std::move(*users);
  }
  if (e.worker) {
    auto endpoint = parseWorker(*e.worker);
    if (!endpoint) return endpoint.error();
    const TransportChoice other = endpoint->unixPath.empty() ? TransportChoice::SharedMemory : TransportChoice::Tcp;
    if (config.transport == other) {
      return badVariable("MILLPOND_TRANSPORT", *e.transport, "it does not fit MILLPOND_WORKER='" + *e.worker + "'");
    }
    endpoint->transport = config.transport;
    endpoint->ticket = e.ticket.value_or("");
    if (e.linkSecret) endpoint->secret = parseHex32(*e.linkSecret);
    if (e.linkSecret && !endpoint->secret)
      return codedError(codes::kInvalid, "MILLPOND_LINK_SECRET is not understood: it is 64 hexadecimal digits");
    endpoint->program = config.program;
    endpoint->graceSeconds = config.reconnectGraceSeconds;
    endpoint->lanes = config.lanes;
    endpoint->users = config.trust.users;
    config.worker = std::move(*endpoint);
    return config;
  }
  if (!e.controller) {
    return codedError(
        codes::kNotConfigured,
        "no GPU: neither MILLPOND_CONTROLLER nor MILLPOND_WORKER is set, so there is nowhere to get one from",
        "Run the program with 'millpond run -- ...', or set MILLPOND_CONTROLLER=https://host:port.");
  }
  auto controllers = parseControllers(*e.controller);
  if (!controllers) return controllers.error();
  config.controllers = std::move(*controllers);
  config.trust.authorities = e.authorities.value_or("");
  if (e.token) {
    if (!printable(*e.token) || e.token->size() > 4096) {
      return codedError(codes::kInvalid,
                        "MILLPOND_TOKEN is not understood: a token is one word of at most 4096 printable characters");
    }
    config.token = *e.token;
  }
  config.claim = e.claim.value_or("");
  if (config.claim.size() > 63 || !printable(config.claim)) {
    return badVariable("MILLPOND_CLAIM", *e.claim, "use the name of a claim, as 'millpond get claims' shows it");
  }
  if (e.gpus) {
    const auto gpus = numberBetween(*e.gpus, 1, 64);
    if (!gpus) return badVariable("MILLPOND_GPUS", *e.gpus, "use a number of vGPUs from 1 to 64");
    config.gpus = static_cast<uint32_t>(*gpus);
  }
  if (e.memory) {
    auto memory = MemorySize::parse(*e.memory);
    if (!memory) return memory.error();
    config.memory = *memory;
  }
  if (e.compute) {
    const auto percent = parsePercent(*e.compute);
    if (!percent)
      return badVariable("MILLPOND_COMPUTE", *e.compute,
                         "a share goes from 1% to 100% (0.01 to 1.0) in steps of 1%; a bare 1 could mean both");
    config.computePercent = *percent;
  }
  config.claimVariables = e.claimVariables;
  if (e.waitTimeout) {
    const auto seconds = numberBetween(*e.waitTimeout, 0, 1'000'000'000);
    if (!seconds) return badVariable("MILLPOND_WAIT_TIMEOUT", *e.waitTimeout, "use whole seconds; 0 waits forever");
    config.waitTimeoutSeconds = static_cast<int>(*seconds);
  }
  return config;
}

}  // namespace millpond::client
