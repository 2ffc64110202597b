// SPDX-License-Identifier: Apache-2.0
// The sharing part of a node's workers: each answers the others.
#pragma once

#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "testing/check.h"
#include "worker/ipc/peer_sharing.h"

namespace millpond::worker {

/// A node's folder of workers.
class SharingNode {
 public:
  SharingNode() {
    char pattern[] = "/tmp/millpond-sharing-XXXXXX";
    CHECK(::mkdtemp(pattern) != nullptr);
    path_ = pattern;
  }
  ~SharingNode() {
    for (const char* id : {"w-a", "w-b"}) ::rmdir((path_ + "/" + id).c_str());
    ::rmdir(path_.c_str());
  }
  std::string socketOf(const std::string& id) const {
    ::mkdir((path_ + "/" + id).c_str(), 0700);
    return path_ + "/" + id + "/peers.sock";
  }

 private:
  std::string path_;
};

/// A worker that answers.
class SharingWorker {
 public:
  SharingWorker(const SharingNode& node, const std::string& id, const Sharing::Secret& secret)
      : sharing(node.socketOf(id), id, secret) {
    CHECK(bool(sharing.listen()));
    thread_ = std::thread([this] {
      while (!isOver_.load()) {
        std::vector<int> sockets;
        sharing.collect(sockets);
        std::vector<pollfd> looks;
        for (const int socket : sockets) looks.push_back({socket, POLLIN, 0});
        ::poll(looks.data(), looks.size(), 10);
        sharing.serve();
      }
    });
  }
  ~SharingWorker() {
    isOver_.store(true);
    thread_.join();
  }

  Sharing sharing;

 private:
  std::atomic<bool> isOver_{false};
  std::thread thread_;
};

}  // namespace millpond::worker
