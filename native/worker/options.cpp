// SPDX-License-Identifier: Apache-2.0
#include "worker/options.h"

#include <charconv>
#include <utility>

#include "protocol/handshake/handshake.h"

namespace millpond::worker {
namespace {

/// A year.
constexpr uint64_t kMostParkAfterMs = uint64_t{366} * 86'400'000;

template <typename T>
bool number(const std::string& text, T low, T high, T& out) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  return error == std::errc() && end == text.data() + text.size() && out >= low && out <= high;
}

/// `port` with its colon, empty where there is none. An IPv6 address with a port stands in brackets.
bool splitAddress(const std::string& text, std::string& host, std::string& port) {
  if (text.starts_with('[')) {
    const size_t end = text.find(']');
    if (end == std::string::npos) return false;
    host = text.substr(1, end - 1);
    port = text.substr(end + 1);
    return port.empty() || port.starts_with(':');
  }
  const size_t colon = text.rfind(':');
  const bool hasPort = colon != std::string::npos && text.find(':') == colon;
  host = text.substr(0, hasPort ? colon : std::string::npos);
  port = hasPort ? text.substr(colon) : "";
  return true;
}

/// `ports`: empty, `:PORT` or `:FIRST-LAST`.
Status readPorts(const std::string& ports, Options& out) {
  if (ports.empty()) return Done{};
  const size_t dash = ports.find('-', 2);
  const std::string first = ports.substr(1, dash == std::string::npos ? dash : dash - 1);
  if (!number<uint16_t>(first, 0, 65535, out.tcpPort)) return Error{"the port is not a number from 0 to 65535"};
  out.tcpLastPort = out.tcpPort;
  if (dash == std::string::npos) return Done{};
  if (out.tcpPort == 0 || !number<uint16_t>(ports.substr(dash + 1), out.tcpPort, 65535, out.tcpLastPort))
    return Error{"the ports are not a range such as 7200-7299"};
  return Done{};
}

/// Guaranteed if the member is absent; none for an unknown class.
std::optional<ServiceClass> readClass(const Json* member) {
  if (!member) return ServiceClass::kGuaranteed;
  const std::string* name = member->string();
  if (name && *name == "guaranteed") return ServiceClass::kGuaranteed;
  if (name && *name == "burstable") return ServiceClass::kBurstable;
  if (name && *name == "best-effort") return ServiceClass::kBestEffort;
  return std::nullopt;
}

/// `what`: the owner of the members, for messages.
Result<std::vector<DeviceShare>> readDevices(const Json& message, const std::string& what) {
  const Json* devices = message.find("devices");
  if (!devices || !devices->array()) return Error{what + " needs devices"};
  if (devices->array()->empty() || devices->array()->size() > kMaxSessionDevices)
    return Error{what + " needs 1 to " + std::to_string(kMaxSessionDevices) + " devices, not " +
                 std::to_string(devices->array()->size())};
  std::vector<DeviceShare> out;
  for (const Json& entry : *devices->array()) {
    const Json* uuid = entry.find("uuid");
    const Json* memory = entry.find("memoryBytes");
    const Json* compute = entry.find("computePercent");
    const uint64_t percent = compute ? compute->uint64().value_or(0) : 0;
    const auto bytes = memory ? memory->uint64() : std::nullopt;
    const auto serviceClass = readClass(entry.find("serviceClass"));
    if (!serviceClass)
      return Error{"the serviceClass of a device of " + what + " is not one of guaranteed, burstable, best-effort"};
    // Best effort has no share.
    const uint64_t least = *serviceClass == ServiceClass::kBestEffort ? 0 : 1;
    if (!uuid || !uuid->string() || !bytes || !compute || percent < least || percent > 100)
      return Error{"a device of " + what + " needs uuid, memoryBytes and computePercent from 1 to 100"};
    out.push_back({*uuid->string(), *bytes, static_cast<uint32_t>(percent), *serviceClass});
  }
  return out;
}

/// An optional member of an assignment that has one number for each of its devices.
Status readSizes(const Json& message, const std::string& name, std::vector<DeviceShare>& devices,
                 void (*set)(DeviceShare&, uint64_t)) {
  const Json* member = message.find(name.c_str());
  if (!member) return Done{};
  const Json::Array* all = member->array();
  if (!all || all->size() != devices.size())
    return Error{"the " + name + " of an assignment do not have one number for each of its devices"};
  for (size_t i = 0; i < all->size(); ++i) {
    const auto bytes = (*all)[i].uint64();
    if (!bytes) return Error{"the " + name + " of an assignment are not numbers"};
    set(devices[i], *bytes);
  }
  return Done{};
}

}  // namespace

Result<Assignment> Assignment::parse(const Json& message) {
  Assignment out;
  const auto text = [&](const char* name, std::string& into) {
    const Json* member = message.find(name);
    const std::string* value = member ? member->string() : nullptr;
    if (value) into = *value;
    return value != nullptr;
  };
  if (!text("session", out.session) || out.session.empty()) return Error{"an assignment needs a session"};
  if (!text("ticket", out.ticket) || out.ticket.empty() || out.ticket.size() > kMaxTicket)
    return Error{"an assignment needs a ticket of 1 to " + std::to_string(kMaxTicket) + " bytes"};
  const Json* expires = message.find("expires");
  const auto when = expires ? expires->int64() : std::nullopt;
  if (!when) return Error{"an assignment needs the time when it expires"};
  out.expires = *when;
  if (const Json* secret = message.find("linkSecret")) {
    const std::string* digits = secret->string();
    if (digits) out.secret = parseHex32(*digits);
    if (!digits || (!out.secret && !digits->empty()))
      return Error{"the link secret of an assignment is 64 hexadecimal digits"};
  }
  if (const Json* after = message.find("parkAfterMs")) {
    const auto ms = after->uint64();
    if (!ms || *ms > kMostParkAfterMs)
      return Error{"the parkAfterMs of an assignment is not a number up to " + std::to_string(kMostParkAfterMs)};
    out.parkAfterNs = static_cast<int64_t>(*ms) * 1'000'000;
  }
  if (const Json* directory = message.find("claimDirectory")) {
    const std::string* path = directory->string();
    if (!path || (!path->empty() && !path->starts_with('/')))
      return Error{"the claimDirectory of an assignment is not an absolute path"};
    out.claimDirectory = *path;
  }
  if (const Json* tenant = message.find("tenant")) {
    const std::string* digits = tenant->string();
    if (!digits || (!digits->empty() && !parseHex32(*digits)))
      return Error{"the tenant of an assignment is 64 hexadecimal digits"};
    out.tenant = *digits;
  }
  if (const Json* revision = message.find("sizeRevision")) {
    const auto number = revision->uint64();
    if (!number) return Error{"the sizeRevision of an assignment is not a number"};
    out.sizeRevision = *number;
  }
  auto devices = readDevices(message, "an assignment");
  if (!devices) return devices.error();
  out.devices = std::move(*devices);
  if (const Json* priority = message.find("priority")) {
    const auto number = priority->int64();
    if (!number || *number < INT32_MIN || *number > INT32_MAX)
      return Error{"the priority of an assignment is not a 32-bit number"};
    for (DeviceShare& device : out.devices) device.priority = static_cast<int32_t>(*number);
  }
  if (const Json* host = message.find("claimHostBytes")) {
    const auto bytes = host->uint64();
    if (!bytes) return Error{"the claimHostBytes of an assignment is not a number"};
    out.claimHostBytes = *bytes;
  }
  using Set = void (*)(DeviceShare&, uint64_t);
  const std::pair<const char*, Set> sizes[] = {
      {"overheadBytes", [](DeviceShare& device, uint64_t bytes) { device.contextBytes = bytes; }},
      {"printsBytes", [](DeviceShare& device, uint64_t bytes) { device.printsBytes = bytes; }},
      {"allocatesBytes", [](DeviceShare& device, uint64_t bytes) { device.allocatesBytes = bytes; }}};
  for (const auto& [name, set] : sizes)
    if (auto read = readSizes(message, name, out.devices, set); !read) return read.error();
  std::string group;
  if (!text("group", group) || group.empty()) return out;
  out.group = parseHex32(group);
  if (!out.group) return Error{"the group of an assignment is 64 hexadecimal digits"};
  return out;
}

Result<Resizing> Resizing::parse(const Json& message) {
  Resizing out;
  const Json* session = message.find("session");
  if (!session || !session->string()) return Error{"a resize needs a session"};
  out.session = *session->string();
  const Json* revision = message.find("revision");
  const auto number = revision ? revision->uint64() : std::nullopt;
  if (!number) return Error{"a resize needs a revision"};
  out.revision = *number;
  auto devices = readDevices(message, "a resize");
  if (!devices) return devices.error();
  for (const DeviceShare& device : *devices)
    if (device.memoryBytes == 0) return Error{"a device of a resize needs memoryBytes of 1 and more"};
  out.devices = std::move(*devices);
  return out;
}

Result<Options> Options::parse(std::span<char*> arguments) {
  Options out;
  for (size_t i = 1; i < arguments.size(); ++i) {
    const std::string name = arguments[i];
    if (name == "--probe") {
      out.probe = true;
      continue;
    }
    if (name == "--costs") {
      out.costs = true;
      continue;
    }
    if (name == "--health") {
      out.health = true;
      continue;
    }
    if (name == "--no-containment") {
      out.isContained = false;
      continue;
    }
    if (name == "--trust-pageable-access") {
      out.trustsPageableAccess = true;
      continue;
    }
    if (i + 1 == arguments.size()) return Error{name + " is unknown or needs a value"};
    const std::string value = arguments[++i];
    // No path or name of ours begins like this: a value is missing.
    if (value.starts_with("--")) return Error{name + " needs a value, not " + value};
    if (name == "--driver") {
      out.driver = value;
    } else if (name == "--id") {
      out.id = value;
    } else if (name == "--control") {
      out.controlPath = value;
    } else if (name == "--data") {
      out.dataPath = value;
    } else if (name == "--peers") {
      out.peersPath = value;
    } else if (name == "--warm-device") {
      out.warmDevice = value;
    } else if (name == "--tcp") {
      std::string port;
      if (!splitAddress(value, out.tcpHost.emplace(), port)) return Error{"--tcp " + value + ": expected HOST[:PORT]"};
      if (auto read = readPorts(port, out); !read) return Error{"--tcp " + value + ": " + read.error().message};
    } else if (name == "--image-cache") {
      out.imageCache = value;
    } else if (name == "--gates") {
      out.gates = value;
    } else if (name == "--gate-device") {
      // It becomes part of a path.
      if (value.empty() || value.find('/') != std::string::npos)
        return Error{"--gate-device " + value + ": expected the UUID of a device"};
      out.gateDevices.push_back(value);
    } else if (name == "--claims") {
      out.claims = value;
    } else if (name == "--image-cache-bytes") {
      if (!number<uint64_t>(value, 0, uint64_t{1} << 50, out.imageCacheBytes))
        return Error{"--image-cache-bytes " + value + ": expected a number of bytes"};
    } else if (name == "--orphan-seconds") {
      if (!number(value, 1, 86400, out.orphanSeconds))
        return Error{"--orphan-seconds " + value + ": expected 1 to 86400"};
    } else if (name == "--reconnect-grace") {
      if (!number<uint32_t>(value, 0, 86400, out.reconnectGraceSeconds))
        return Error{"--reconnect-grace " + value + ": expected 0 to 86400 seconds"};
    } else if (name == "--user") {
      if (!number<uint32_t>(value, 1, UINT32_MAX - 1, out.user.emplace()))
        return Error{"--user " + value + ": expected a user id from 1 to 4294967294"};
    } else if (name == "--assign") {
      auto json = Json::parse(value);
      if (!json) return Error{"--assign: " + json.error().message};
      auto assignment = Assignment::parse(*json);
      if (!assignment) return Error{"--assign: " + assignment.error().message};
      out.assignment = std::move(*assignment);
    } else {
      return Error{"unknown option " + name};
    }
  }
  if (out.driver.empty()) return Error{"--driver is required"};
  if (!out.probe && !out.costs && !out.health && (out.id.empty() || out.controlPath.empty() || out.dataPath.empty()))
    return Error{"--id, --control and --data are required"};
  return out;
}

}  // namespace millpond::worker
