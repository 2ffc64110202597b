// SPDX-License-Identifier: Apache-2.0
// The objects behind the driver's opaque handles, so that an unknown or ended handle is an error instead of a crash.
#pragma once

#include <memory>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>
#include <utility>
#include <vector>

namespace millpond::softgpu {

/// Maps handles of type H (a pointer to an incomplete type) to objects. The handle of an object is its
/// address.
template <typename T, typename H>
class HandleTable {
 public:
  static H handleOf(const T* object) { return reinterpret_cast<H>(const_cast<T*>(object)); }

  H add(std::shared_ptr<T> object) {
    std::unique_lock lock(mutex_);
    H handle = handleOf(object.get());
    objects_.insert_or_assign(handle, std::move(object));
    return handle;
  }
  /// Null if the handle is unknown.
  std::shared_ptr<T> find(H handle) const {
    std::shared_lock lock(mutex_);
    auto position = objects_.find(handle);
    return position == objects_.end() ? nullptr : position->second;
  }
  /// Removes the object; null if the handle is unknown.
  std::shared_ptr<T> remove(H handle) {
    std::unique_lock lock(mutex_);
    auto position = objects_.find(handle);
    if (position == objects_.end()) return nullptr;
    std::shared_ptr<T> object = std::move(position->second);
    objects_.erase(position);
    return object;
  }
  /// Removes the objects that `predicate` selects. They end with the returned list, outside the table's lock.
  template <typename Predicate>
  std::vector<std::shared_ptr<T>> removeIf(Predicate predicate) {
    std::vector<std::shared_ptr<T>> removed;
    std::unique_lock lock(mutex_);
    for (auto position = objects_.begin(); position != objects_.end();) {
      if (predicate(*position->second)) {
        removed.push_back(std::move(position->second));
        position = objects_.erase(position);
      } else {
        ++position;
      }
    }
    return removed;
  }
  std::vector<std::shared_ptr<T>> all() const {
    std::shared_lock lock(mutex_);
    std::vector<std::shared_ptr<T>> objects;
    for (const auto& entry : objects_) objects.push_back(entry.second);
    return objects;
  }

 private:
  mutable std::shared_mutex mutex_;
  std::unordered_map<H, std::shared_ptr<T>> objects_;
};

}  // namespace millpond::softgpu
