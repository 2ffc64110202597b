// SPDX-License-Identifier: Apache-2.0
#include "worker/memory/client_pages.h"

#include <random>
#include <vector>

#include "testing/check.h"

using namespace millpond::worker;

TEST("whoever looks at a page of the client sees what was written there last, for as long as one looks") {
  constexpr uint64_t kFirst = uint64_t{5} << 32;
  constexpr uint64_t kPages = 24;
  struct Page {
    unsigned views = 0;
    std::byte value{};
  };
  ClientPages pages;
  std::vector<Page> model(kPages);
  std::vector<ClientPages::View> views;
  std::minstd_rand random(16);
  const auto eachPage = [&](const ClientPages::View& view, auto&& visit) {
    for (uint64_t at = 0; at < view.bytes; at += ClientPages::kPage)
      visit(model[(view.address + at - kFirst) / ClientPages::kPage], view.memory + at);
  };
  for (int round = 0; round < 3000; ++round) {
    const unsigned what = random() % 4;
    if (what == 0 || views.empty()) {
      const uint64_t begin = random() % (kPages * ClientPages::kPage);
      const uint64_t bytes = 1 + random() % (kPages * ClientPages::kPage - begin);
      const auto view = pages.view(kFirst + begin, bytes);
      CHECK(view.has_value());
      CHECK_EQ(view->bytes, ClientPages::sizeOf(kFirst + begin, bytes));
      eachPage(*view, [](Page& page, std::byte*) { ++page.views; });
      views.push_back(*view);
    } else if (what == 1) {
      const size_t which = random() % views.size();
      eachPage(views[which], [](Page& page, std::byte*) {
        if (--page.views == 0) page.value = {};
      });
      pages.end(views[which]);
      views.erase(views.begin() + static_cast<ptrdiff_t>(which));
    } else {
      const ClientPages::View& view = views[random() % views.size()];
      const auto value = static_cast<std::byte>(random() % 256);
      eachPage(view, [&](Page& page, std::byte* memory) {
        memory[random() % 2 ? 0 : ClientPages::kPage - 1] = value;
        memory[0] = memory[ClientPages::kPage - 1] = value;
        page.value = value;
      });
    }
    for (const ClientPages::View& view : views)
      eachPage(view, [](const Page& page, const std::byte* memory) {
        CHECK(memory[0] == page.value);
        CHECK(memory[ClientPages::kPage - 1] == page.value);
      });
  }
}

TEST("what reaches over the end of all addresses has no pages") {
  ClientPages pages;
  CHECK(!pages.view(UINT64_MAX - 8, 64).has_value());
  CHECK(!pages.view(4096, 0).has_value());
  CHECK(!pages.view(4096, UINT64_MAX - 4096).has_value());
}

TEST("pages are mapped at their own address, too, where nothing else is") {
  constexpr uint64_t kAddress = uint64_t{5} << 36;
  ClientPages pages;
  const auto elsewhere = pages.view(kAddress + 100, 8);
  CHECK(elsewhere.has_value());
  *elsewhere->at(kAddress + 100) = std::byte{7};
  const auto inPlace = pages.viewInPlace(kAddress, 2 * ClientPages::kPage);
  CHECK(inPlace.has_value());
  CHECK_EQ(reinterpret_cast<uint64_t>(inPlace->memory), kAddress);
  CHECK(inPlace->memory[100] == std::byte{7});
  inPlace->memory[101] = std::byte{8};
  CHECK(*elsewhere->at(kAddress + 101) == std::byte{8});
  CHECK(!pages.viewInPlace(kAddress, ClientPages::kPage).has_value());
  pages.end(*inPlace);
  CHECK(*elsewhere->at(kAddress + 101) == std::byte{8});
  CHECK(!pages.viewInPlace(kAddress + 8, ClientPages::kPage).has_value());
  CHECK(!pages.viewInPlace(kAddress, 100).has_value());
  pages.end(*elsewhere);
}
