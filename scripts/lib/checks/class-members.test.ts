// SPDX-License-Identifier: Apache-2.0
import { expect, test } from "vitest";
import { classesOf, findLargeClasses } from "./class-members.ts";

const header = `
namespace millpond {

template <typename T>
class Table final : public Base<T> {
 public:
  using Key = uint64_t;
  struct Entry {
    int number = 0;
    std::string name, text;
  };
  explicit Table(int size) : size_(size) {}
  ~Table();
  Table(const Table&) = delete;
  /// Two lines, one member.
  Result<Entry> find(const std::string& name,
                     Key key) const;
  template <typename Each>
  void forEach(Each&& each) {
    for (Entry& entry : entries_) {
      each(entry);
    }
  }
  std::map<int, int> counts;
  int first = 0, last = 0;

 private:
  void grow();
  int size_;
};

}  // namespace millpond
`;

test("counts the public members of C++ classes, types within as one", () => {
  expect(classesOf({ path: "a.h", text: header })).toEqual([
    { path: "a.h", name: "Entry", publicMembers: 3 },
    // Entry, the constructor, find, forEach, counts, first, last
    { path: "a.h", name: "Table", publicMembers: 7 },
  ]);
});

const source = `
export class Pool<T>
  extends Base
  implements Disposable
{
  readonly name: string;
  #size = 0;
  private kept = 1;

  constructor(name: string) {
    super();
    this.name = name;
  }

  /** Comments do not count. */
  get size(): number {
    return this.#size;
  }

  async put(
    value: T,
  ): Promise<void> {
    await store(value);
  }

  protected grow(): void {}
}

class Small {}
`;

test("counts the public members of TypeScript classes", () => {
  expect(classesOf({ path: "a.ts", text: source })).toEqual([
    { path: "a.ts", name: "Pool", publicMembers: 3 },
    { path: "a.ts", name: "Small", publicMembers: 0 },
  ]);
});

test("a class over the limit is a fault, and an exception that is no longer needed, too", () => {
  const files = [{ path: "a.ts", text: source }];
  expect(findLargeClasses(files, { maxPublic: 2, largeClasses: {} })).toEqual([
    "a.ts: Pool has 3 public members, and may have 2",
  ]);
  expect(findLargeClasses(files, { maxPublic: 2, largeClasses: { "a.ts: Pool": 3 } })).toEqual([]);
  expect(findLargeClasses(files, { maxPublic: 3, largeClasses: { "a.ts: Pool": 4 } })).toEqual([
    "a.ts: Pool has 3 public members: remove it from the exceptions",
  ]);
});
