// SPDX-License-Identifier: Apache-2.0
#include "client/state/given_functions.h"

#include "testing/check.h"

namespace millpond::client {
namespace {

using Shape = GivenFunctions::Shape;
using Uses = GivenFunctions::Uses;

TEST("a function is run as often as it was given, with its own data and in its own shape") {
  GivenFunctions given;
  CHECK(!given.use(Shape::kOfData, 1, 2));
  given.give(Shape::kOfData, 1, 2, Uses::kOne);
  given.give(Shape::kOfData, 1, 2, Uses::kOne);
  CHECK(!given.use(Shape::kOfData, 1, 3));
  CHECK(!given.use(Shape::kOfData, 2, 2));
  CHECK(!given.use(Shape::kOfStream, 1, 2));
  CHECK(given.use(Shape::kOfData, 1, 2));
  CHECK(given.use(Shape::kOfData, 1, 2));
  CHECK(!given.use(Shape::kOfData, 1, 2));
}

TEST("a function of a graph is run as often as the graph is launched, beside uses of its own") {
  GivenFunctions given;
  given.give(Shape::kOfData, 1, 2, Uses::kAny);
  given.give(Shape::kOfData, 1, 2, Uses::kOne);
  for (int i = 0; i < 5; ++i) CHECK(given.use(Shape::kOfData, 1, 2));
  CHECK(!given.use(Shape::kOfData, 1, 3));
}

}  // namespace
}  // namespace millpond::client
