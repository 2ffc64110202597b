// SPDX-License-Identifier: Apache-2.0
// Objects that a session shares with the other sessions of its claim: memory, as files of the driver, pools of it, and
// events, by the driver's handles. Each session has its own worker. The workers of a node send requests to each other
// at sockets that only they can reach; the secret of the claim authenticates the requests.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/sha256.h"
#include "base/unique_fd.h"

namespace millpond::worker {

class Sharing {
 public:
  /// The handle that programs pass to each other. It names the owner and the object, and proves that a session of the
  /// claim created it.
  using Handle = std::array<std::byte, 64>;
  /// The secret known only to the sessions of one claim.
  using Secret = std::array<std::byte, 32>;

  enum class Kind : uint32_t { kMemory, kPages, kEvent, kPool, kPoolMemory };
  /// Shared memory, or an event.
  struct Item {
    struct Facts {
      std::array<std::byte, 16> uuid{};  ///< of the device
      uint64_t bytes = 0;                ///< as requested by the program
      uint64_t offset = 0;               ///< offset and size within the file
      uint64_t fileBytes = 0;
      uint64_t run = 0;     ///< number of the file's memory
      uint64_t charge = 0;  ///< number under which the memory counts once in the claim; 0: it counts for each session
      uint64_t pool = 0;    ///< number of the pool, or of the pool of the memory, in the session that created it
      std::array<std::byte, 64> event{};  ///< the driver's handle
    };
    Facts facts;
    std::shared_ptr<const UniqueFd> file;  ///< of memory
    std::string worker;                    ///< of an opened object: the sharing session
  };
  /// Why nothing was opened.
  enum class Refusal {
    kNotOfClaim,  ///< or no handle at all
    kOwn,         ///< this session itself created it, and may not open it
    kGone,        ///< its owner has ended it, or has ended
  };

  /// `path`: of this worker's socket, `…/<id>/<name>`; those of the others are beside it, in folders of their ids.
  Sharing(std::string path, std::string id, const Secret& secret);
  ~Sharing();
  Sharing(const Sharing&) = delete;
  Sharing& operator=(const Sharing&) = delete;

  Status listen();
  /// The sockets to poll for `serve`.
  void collect(std::vector<int>& sockets) const;
  /// Answers the requests that have arrived, without waiting. Called by one thread; the other members by any.
  void serve();

  /// The file of a device's memory of that number, part of which is shared already.
  std::shared_ptr<const UniqueFd> fileOf(const std::array<std::byte, 16>& uuid, uint64_t run) const;
  /// The handle of an object that is already shared.
  std::optional<Handle> find(Kind kind, uint64_t object) const;
  /// Shares an object under its number in the session.
  Handle add(Kind kind, uint64_t object, Item item);
  /// The object has ended. It stays open in other sessions.
  void remove(Kind kind, uint64_t object);
  /// Requests an object that another session shares.
  std::optional<Refusal> open(Kind kind, const Handle& handle, Item& item) const;

 private:
  struct Shared {
    uint64_t number;
    Item item;
  };
  using Key = std::pair<Kind, uint64_t>;

  Handle handleOf(Kind kind, uint64_t number) const;
  /// The authentication code of a message with that meaning, which only a holder of the secret can compute.
  Sha256 proof(const char* meaning, std::span<const std::byte> of) const;
  /// A connected process, and the received part of its question.
  struct Caller {
    UniqueFd socket;
    std::vector<std::byte> received;
  };
  /// Whether the connection is over: its request was answered, or is malformed.
  bool progress(Caller& caller);
  void answer(int socket, std::span<const std::byte> received);

  const std::string path_;
  const std::string id_;
  const Secret secret_;
  UniqueFd listener_;
  std::deque<Caller> callers_;
  mutable std::mutex mutex_;
  std::map<Key, Shared> shared_;
  uint64_t lastNumber_ = 0;
};

}  // namespace millpond::worker
